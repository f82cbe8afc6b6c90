"""Checks of answers (``core.report.choices.Check``), in a child of their own: a regular expression may never end.

``python -m core.report.checks`` serves ``{"do": "check", "check": …, "rows": […]}``: a verdict a row, or null where the
check says nothing of it.
"""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from core.contract.errors import DataError, RunError, first_line
from core.data.doctor.findings.languages import LANGUAGES, UNSURE, language_of
from core.data.doctor.findings.text_words import words_of
from core.machine.children.pipe import Child, Limits
from core.machine.children.serve import serve
from core.report.choices import Check, CheckKind
from core.report.schema import Answers, AnswersPart, Tally, Verdict
from core.report.statistics import share

LIMITS = Limits(seconds=5.0, start_seconds=60.0, memory_bytes=512 << 20)
_NUMBER = re.compile(r"(?:(?<![\w.)])[-+])?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
"""A sign behind a digit or a letter ("3-5") is none."""
_FENCED = re.compile(r"```[a-zA-Z]*\n(.*?)```", re.DOTALL)
_LANGUAGES = frozenset(map(str.lower, LANGUAGES))
_SHOWN = 120


class _Nothing(Exception):  # noqa: N818 - it is no error
    """The check says nothing of this row."""


def judged(part: AnswersPart, checks: Sequence[Check], safe_point: Callable[[], object] = lambda: None) -> AnswersPart:
    """The answers with the verdicts of these checks, and their tallies. A check that cannot be used says so.

    Args:
        safe_point: called all the time, also while an expression does not end; what it raises ends the child.
    """
    rows = [row.model_dump(mode="json", exclude={"verdicts"}) for row in part.rows]
    verdicts: list[tuple[Verdict, ...]] = [() for _ in rows]
    tallies = []

    def cancelled() -> bool:
        safe_point()
        return False

    with closing(Child("core.report.checks", "checker", LIMITS)) as child:
        for check in checks:
            said: list[Verdict | None] = [None for _ in rows]
            fault = ""
            try:
                request = {"do": "check", "check": check.model_dump(mode="json"), "rows": rows}
                answer = child.ask(request, check.name, cancelled)
                said = [Verdict.model_validate(one) if one else None for one in answer]
            except DataError as error:
                fault = error.message
            verdicts = [(*row, one) if one else row for row, one in zip(verdicts, said, strict=True)]
            tallies.append(_tally(check, part.rows, said, fault))
    told = zip(part.rows, verdicts, strict=True)
    judged_rows = tuple(row.model_copy(update={"verdicts": verdict}) for row, verdict in told)
    return part.model_copy(update={"rows": judged_rows, "tallies": tuple(tallies)})


def _tally(check: Check, rows: Sequence[Answers], said: Sequence[Verdict | None], fault: str) -> Tally:
    told = [(row.row, one) for row, one in zip(rows, said, strict=True) if one]
    before = [one.before for _, one in told if one.before is not None]
    failing = tuple(row for row, one in told if not one.after)
    passed = len(told) - len(failing)
    return Tally(
        check=check,
        of=len(told),
        passed_before=sum(before) if before else None,
        passed_after=passed,
        before=share(sum(before), len(before)) if before else None,
        after=share(passed, len(told)) if told else None,
        failing=failing,
        fault=fault,
    )


def verdict(check: Check, row: Answers) -> Verdict | None:
    """What the check says of one row; None where it says nothing.

    Raises:
        RunError: the check cannot be used: no regular expression, no schema, no language.
    """
    judge = _JUDGES[check.kind]
    try:
        why = judge(check, row.after, row.reference)
        before = None if row.before is None else not judge(check, row.before, row.reference)
    except _Nothing:
        return None
    except (re.error, ValueError, RecursionError, OverflowError) as error:
        raise RunError("report.check/fault", name=check.name, reason=first_line(error)) from error
    return Verdict(check=check.name, before=before, after=not why, why=why)


# ── a kind each: what is wrong with an answer, in words; empty where it passes ────────────────────────────────────────


def _exact(check: Check, answer: str, reference: str) -> str:
    wanted = _wanted(check, reference)
    return "" if _folded(check, answer) == _folded(check, wanted) else f"Expected {_short(wanted)}."


def _contains(check: Check, answer: str, reference: str) -> str:
    wanted = _wanted(check, reference)
    return "" if _folded(check, wanted) in _folded(check, answer) else f"{_short(wanted)} does not stand in it."


def _number(check: Check, answer: str, reference: str) -> str:
    wanted, found = _last_number(_wanted(check, reference)), _last_number(answer)
    if wanted is None:
        raise _Nothing
    if found is None:
        return f"Expected {wanted:g}, found no number."
    return "" if found == wanted or abs(found - wanted) <= check.tolerance else f"Expected {wanted:g}, found {found:g}."


def _regex(check: Check, answer: str, _reference: str) -> str:
    flags = re.IGNORECASE if check.ignore_case else 0
    return "" if re.search(check.expected, answer, flags) else "The expression is not found in it."


def _json(check: Check, answer: str, _reference: str) -> str:
    schema = json.loads(check.expected) if check.expected.strip() else True
    fenced = _FENCED.findall(answer)
    try:
        value = json.loads((fenced[-1] if fenced else answer).strip(), parse_constant=_no_constant)
    except ValueError as error:
        return f"It is no JSON: {first_line(error)}."
    except RecursionError:
        return "It is JSON that is nested too deeply."
    fault = _against(schema, value)
    if fault is None:
        return ""
    where = f"At {fault.json_path.removeprefix('$.')}: " if fault.path else ""
    return f"{where}{fault.message[:_SHOWN]}."


def _against(schema: Any, value: Any) -> Any:
    """What is worst about the value, or None. What a schema refers to outside of itself is not fetched.

    Raises:
        ValueError: it is no schema, or refers to what is not there.
    """
    from jsonschema import Draft202012Validator, SchemaError  # here: the window, which never checks, starts sooner
    from jsonschema.exceptions import best_match
    from jsonschema_specifications import REGISTRY
    from referencing.exceptions import Unresolvable

    try:
        Draft202012Validator.check_schema(schema)
        return best_match(Draft202012Validator(schema, registry=REGISTRY).iter_errors(value))
    except (SchemaError, Unresolvable) as error:
        raise ValueError(first_line(error)) from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no value of it")


def _label(check: Check, answer: str, reference: str) -> str:
    wanted = _folded(check, _wanted(check, reference))
    labels = [_folded(check, label) for label in check.labels] or [wanted]
    if wanted not in labels:
        raise _Nothing
    said = _folded(check, answer)
    named = [label for label in labels if re.search(rf"(?<!\w){re.escape(label)}(?!\w)", said)]
    named = [label for label in named if not any(label != other and label in other for other in named)]
    return "" if named == [wanted] else f"Expected {_short(wanted)}, found {', '.join(map(_short, named)) or 'none'}."


def _length(check: Check, answer: str, _reference: str) -> str:
    count = len(answer.split()) if check.unit == "words" else len(answer.strip())
    most = check.most or count
    return "" if check.least <= count <= most else f"It has {count:,} {check.unit}."


def _language(check: Check, answer: str, reference: str) -> str:
    wanted, found = check.expected or language_of(reference, words_of(reference)), language_of(answer, words_of(answer))
    if wanted != UNSURE and wanted.strip().lower() not in _LANGUAGES:
        raise ValueError(f"no language of the name {wanted!r} is known, only {', '.join(LANGUAGES)}")
    if wanted == UNSURE or (found == UNSURE and not check.expected):
        raise _Nothing
    return "" if found.lower() == wanted.strip().lower() else f"Expected {wanted}, found {found or 'none surely'}."


_JUDGES: dict[CheckKind, Callable[[Check, str, str], str]] = {
    "exact": _exact,
    "contains": _contains,
    "number": _number,
    "regex": _regex,
    "json": _json,
    "label": _label,
    "length": _length,
    "language": _language,
}


def _wanted(check: Check, reference: str) -> str:
    if not (wanted := check.expected or reference).strip():
        raise _Nothing
    return wanted


def _folded(check: Check, text: str) -> str:
    return text.strip().casefold() if check.ignore_case else text.strip()


def _last_number(text: str) -> float | None:
    found = _NUMBER.findall(text.replace("\N{MINUS SIGN}", "-"))
    return float(found[-1].replace(",", "")) if found else None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return f"“{line[:_SHOWN]}…”" if len(line) > _SHOWN else f"“{line}”"


def _check(request: dict[str, Any]) -> list[Any]:
    check = Check.model_validate(request["check"])
    said = [verdict(check, Answers.model_validate(row)) for row in request["rows"]]
    return [one and one.model_dump(mode="json") for one in said]


if __name__ == "__main__":
    serve({"check": _check})
