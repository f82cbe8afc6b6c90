"""Checks of answers and the intervals of their counts."""

import json
import math
from collections.abc import Callable

import numpy
import pytest

from core.contract.errors import RunError
from core.report import checks as checks_room
from core.report import statistics
from core.report.checks import judged, verdict
from core.report.choices import Check
from core.report.schema import Answers, AnswersPart
from core.report.statistics import compared, mean, share
from core.runs.control.gpu_lease import GiveWay

PERSON = {
    "type": "object",
    "required": ["name", "age"],
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("settings", "answer", "reference", "passes"),
    [
        ({"kind": "exact"}, " oslo.\n", "Oslo.", True),
        ({"kind": "exact", "ignore_case": False}, "oslo.", "Oslo.", False),
        ({"kind": "exact"}, "Oslo.", "", None),
        ({"kind": "contains", "expected": "fjord"}, "A Fjord is long", "", True),
        ({"kind": "contains"}, "It is in Norway.", "Oslo", False),
        ({"kind": "number"}, "12 cats, so 1,024.0 legs", "1024", True),
        ({"kind": "number", "tolerance": 0.01}, "about 3.14", "3.1415", True),
        ({"kind": "number"}, "none at all", "4", False),
        ({"kind": "number"}, "4", "no number here", None),
        ({"kind": "number"}, "between 3-5", "5", True),
        ({"kind": "number"}, "x = \N{MINUS SIGN}5", "-5", True),
        ({"kind": "regex", "expected": r"^\d{4}-\d\d$"}, "2026-11", "", True),
        ({"kind": "json"}, 'Here:\n```json\n{"a": 1}\n```\n', "", True),
        ({"kind": "json"}, '{"a": 1', "", False),
        ({"kind": "json"}, "[" * 5000, "", False),
        ({"kind": "json"}, '{"a": NaN}', "", False),
        ({"kind": "json", "expected": '{"type": "integer"}'}, "1" * 400, "", True),
        ({"kind": "json", "expected": '{"enum": [1]}'}, "true", "", False),
        ({"kind": "json", "expected": json.dumps(PERSON)}, '{"name": "Ada", "age": 36}', "", True),
        ({"kind": "json", "expected": json.dumps(PERSON)}, '{"name": "Ada"}', "", False),
        ({"kind": "label", "labels": ("good", "bad")}, "This is good!", "Good", True),
        ({"kind": "label", "labels": ("good", "bad")}, "good or bad", "good", False),
        ({"kind": "label", "labels": ("safe", "not safe")}, "not safe", "not safe", True),
        ({"kind": "label", "labels": ("good", "bad")}, "good", "fine", None),
        ({"kind": "length", "least": 2, "most": 3}, "one two three four", "", False),
        ({"kind": "length", "unit": "characters", "most": 5}, "four ", "", True),
        ({"kind": "language", "expected": "German"}, "Das ist ein Haus und es ist nicht alt.", "", True),
        (
            {"kind": "language"},
            "The house is on the hill and it is old.",
            "Das ist nicht der Weg und sie ist da.",
            False,
        ),
    ],
)
def test_each_kind_of_check(settings: dict[str, object], answer: str, reference: str, passes: bool | None) -> None:
    check = Check.model_validate({"name": "it", **settings})
    said = verdict(check, Answers(row=1, prompt="?", reference=reference, before=reference or "x", after=answer))
    assert (said and said.after) == passes
    assert said is None or bool(said.why) != said.after


def said_of(value: object, schema: object) -> str:
    check = Check(name="it", kind="json", expected=json.dumps(schema))
    told = verdict(check, Answers(row=1, prompt="?", reference="", before=None, after=json.dumps(value)))
    assert told is not None
    return told.why


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"name": "Ada", "age": 36, "tags": ["a", "b"]}, ""),
        ({"name": "A", "age": 36}, "At name: 'A' is too short."),
        ({"name": "Ada", "age": 36.5}, "At age: 36.5 is not of type 'integer'."),
        ({"name": "Ada", "age": 1, "tags": ["c"]}, "At tags[0]: 'c' is not one of ['a', 'b']."),
        ([], "[] is not of type 'object'."),
    ],
)
def test_a_schema_names_the_fault(value: object, fault: str) -> None:
    assert said_of(value, PERSON) == fault


def test_what_is_no_schema_or_refers_elsewhere_is_said_and_nothing_is_fetched() -> None:
    for schema in ({"$ref": "#/x"}, {"$ref": "https://127.0.0.1:9/it.json"}, {"type": "text"}):
        with pytest.raises(RunError):
            said_of("a", schema)


def test_a_check_that_cannot_be_used_or_never_ends_is_named_and_the_others_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks_room, "LIMITS", checks_room.LIMITS.__class__(0.4, 60.0, 1 << 30))
    rows = tuple(Answers(row=row, prompt="?", before="no", after="a" * 40 * (row % 2) + "!") for row in (3, 4))
    kinds = (
        Check(name="broken", kind="regex", expected="["),
        Check(name="endless", kind="regex", expected="(a+)+$"),
        Check(name="short", kind="length", unit="characters", most=9),
    )
    part = judged(AnswersPart(rows=rows), kinds)
    broken, endless, short = part.tallies
    assert "'broken' cannot be used" in broken.fault
    assert endless.fault
    assert (short.passed_before, short.passed_after, short.of, short.failing) == (2, 1, 2, (3,))
    assert [[one.check for one in row.verdicts] for row in part.rows] == [["short"], ["short"]]
    with pytest.raises(RunError, match="broken"):
        verdict(kinds[0], rows[0])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "regex", "expected": "a{1,4294967296}"}, "too large"),
        ({"kind": "language", "expected": "Deutsch"}, "no language of the name 'Deutsch'.*German"),
    ],
)
def test_a_check_that_is_none_says_what_is_wrong_with_it(settings: dict[str, object], words: str) -> None:
    check = Check.model_validate({"name": "it", **settings})
    with pytest.raises(RunError, match=words):
        verdict(check, Answers(row=1, prompt="?", after="ab"))


def test_an_expression_that_never_ends_holds_up_no_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Never:
        def __init__(self, *_: object) -> None: ...

        def ask(self, _request: object, _about: str, cancelled: Callable[[], bool]) -> None:
            cancelled()
            raise AssertionError("it was not called off")

        def close(self) -> None: ...

    def wanted() -> None:
        raise GiveWay

    monkeypatch.setattr(checks_room, "Child", Never)
    with pytest.raises(GiveWay):
        judged(AnswersPart(rows=(Answers(row=1, prompt="?", after="a"),)), (Check(name="a", kind="regex"),), wanted)


def test_shares_have_the_exact_interval() -> None:
    """By Clopper and Pearson's table, and where a closed form is known."""
    for count, of, low, high in ((0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (3, 20, 0.0321, 0.3789)):
        figure = share(count, of)
        assert (figure.low, figure.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))
    assert share(0, 7).high == pytest.approx(1 - 0.025 ** (1 / 7))


def test_a_bootstrap_holds_the_mean_as_often_as_it_says_and_pairs_are_narrower() -> None:
    dice = numpy.random.default_rng(1)
    for count, least in ((40, 53), (5, 52)):  # plain percentiles of five rows hold 84%, about 50 of 60
        held = 0
        for seed in range(60):
            weights = dice.integers(5, 50, count) if count > 5 else numpy.ones(count)
            figure = mean(weights * dice.normal(2.0, 0.5, count), weights, seed)
            held += (figure.low or 0) <= 2.0 <= (figure.high or 0)
        assert held >= least, "95% of 60 less what chance takes"
    ends = [statistics._tail(count) for count in (5, 20, 10_000)]
    assert ends == pytest.approx([9.54e-4, 0.01588, 0.025], rel=0.03), "by a table of t"
    rows, fall = dice.normal(2.0, 0.8, 60), dice.normal(0.2, 0.05, 60)
    told = compared(rows, rows - fall, numpy.ones(60))
    width = lambda figure: figure.high - figure.low  # noqa: E731
    assert width(told.difference) < width(told.before) / 5
    assert told.change == "better"
    assert compared([1.0, 2.0], [1.0, 2.0], [1, 1]).difference.low is None, "two rows have no interval"
    assert math.isclose(told.difference.value, told.after.value - told.before.value)
