"""Answers to held-out prompts side by side, and the checks that they have to pass."""

from collections.abc import Sequence

from core.report.schema import Answers, AnswersPart, Report, Tally, Verdict
from studio.figures.pictures import shares
from studio.figures.run_figures import UNKNOWN
from studio.pages.report.sections.tables import body, missing, named, row, section, table, told
from studio.pages.report.view import between_shares, check_words
from studio.pages.report.words import say
from studio.shell.markup import Markup, join, tag

OPENED = 3
"""So many answers are open at first."""


def answers(report: Report) -> Markup:
    """The section; what was not measured is said in its place."""
    part, title = report.answers, say("report.part.answers")
    lacking = missing(report.part("answers"))
    if part is None or not part.rows:
        return section("answers", title, lacking or tag("p", say("report.why.none"), class_="hint"))
    scores = report.problem is not None
    about = say("report.answers.scores" if scores else "report.answers.about", tokens=f"{part.most_tokens:,}")
    rows = tag("div", *(_answer(one, place) for place, one in enumerate(part.rows)), class_="report-answers-list")
    return section("answers", title, lacking, tag("p", about, class_="hint"), checks(part), rows)


def checks(part: AnswersPart) -> Markup | None:
    """Each check, how many answers pass it before and after, and the rows that fail."""
    if not part.tallies:
        return None
    head = (say("report.check"), say("report.head.passed"), say("report.head.failing"))
    return table(say("report.checks"), head, body(map(_tally, part.tallies)), kind="drawn-rows")


def _tally(tally: Tally) -> Markup:
    name = named(tally.check.name, check_words(tally.check))
    if tally.fault:
        return row(name, "", told("bad", say("report.check.fault", fault=tally.fault)))
    before, after = tally.passed_before, tally.passed_after
    tone = "quiet" if before is None or before == after else "good" if after > before else "bad"
    ends = f"{after}" if before is None else f"{before} → {after}"
    counts = tag("span", say("report.of", ends=ends, of=tally.of), class_="ends")
    interval = between_shares(tally.after)
    spread = tag("span", f"({interval})", class_="spread") if interval else None
    failing = told("good", say("report.failing.none")) if tally.of else None
    if tally.failing:
        links = (tag("a", f"{number:,}", href=f"#answer-{number}") for number in tally.failing)
        failing = tag("span", say("report.failing"), *links, class_="failing")
    return row(
        name, shares(tally.before, tally.after, tone), join(tag("span", counts, " ", spread, class_="apart"), failing)
    )


def _answer(one: Answers, place: int) -> Markup:
    """One prompt; its summary says how many checks the finetuned answer passes."""
    said = [_said(verdict, verdict.after, verdict.why) for verdict in one.verdicts]
    columns = [column("tuned", say("report.tuned"), one.after, one.cut_after, said, one.scores)]
    if one.before is not None:
        said = [_said(verdict, verdict.before) for verdict in one.verdicts]
        columns.insert(0, column("base", say("report.base"), one.before, one.cut_before, said))
    if one.reference:
        columns.append(column("right", say("report.reference"), one.reference))
    return asked(one.row, one.prompt, tag("div", *columns, class_="answers"), _passed(one), place < OPENED)


def _passed(one: Answers) -> Markup | None:
    said = [verdict.after for verdict in one.verdicts if verdict.after is not None]
    if not said:
        return None
    return told("good" if all(said) else "bad", say("report.passed_of", passed=sum(said), of=len(said)))


def asked(number: int, prompt: str, answers: Markup, marks: Markup | None = None, opened: bool = False) -> Markup:
    """A prompt that opens onto its answers; its anchor stands within what is folded, so that a link to it opens it."""
    first, _, rest = prompt.strip().partition("\n")
    head = (tag("span", say("report.row", row=f"{number:,}"), class_="hint"), tag("b", first, class_="prompt"), marks)
    more = tag("p", rest.strip(), class_="quoted whole") if rest.strip() else None
    content = tag("div", more, answers, id=f"answer-{number}")
    return tag("details", tag("summary", *head), content, open=opened, class_="unfold asked")


def column(
    kind: str, title: str, text: str, cut: bool = False, said: Sequence[Markup | None] = (), scores: str = ""
) -> Markup:
    """One answer, with the scores that it was chosen by, and what each check says of it."""
    words = tag("p", text.strip() or say("try.nothing"), class_="answer-text")
    note = scores or (say("report.cut") if cut else "")
    ending = tag("p", note, class_="hint") if note else None
    lines = [line for line in said if line is not None]
    listed = tag("ul", *lines, class_="verdicts") if lines else None
    return tag("div", tag("h3", title), words, ending, listed, class_=f"answer answer-{kind}")


def _said(verdict: Verdict, passed: bool | None, why: str = "") -> Markup | None:
    if passed is None:
        return None
    reason = tag("span", why, class_="hint") if why and not passed else None
    return tag("li", _mark(verdict.check, passed), reason)


def _mark(name: str, passed: bool | None) -> Markup:
    """A check's name with its sign; the sign is said in words too."""
    sign, tone, words = _SIGNS[passed]
    shown = (tag("span", sign, aria_hidden="true"), f" {name}", tag("span", f", {say(words)}", class_="sr-only"))
    return tag("span", *shown, class_=f"mark tone-{tone}")


_SIGNS: dict[bool | None, tuple[str, str, str]] = {
    True: ("✓", "good", "report.passed"),
    False: ("✗", "bad", "report.failed"),
    None: (UNKNOWN, "quiet", "report.silent"),
}
