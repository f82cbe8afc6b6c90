"""Marks and labels as the Data block shows them, and what a method refuses of a whole file."""

import re

import pytest
from made_window import MACHINE, asked_by, report_of

from core.contract.config import RunConfig, TrainChoice
from core.contract.data import Aside, Example, LabelKind, Labels, Marks, Message, PreviewRow, RowProblem, Span
from studio.figures.held_out import question_and_answer
from studio.pages.new_run import summary
from studio.pages.new_run.cache import _for_method
from studio.pages.new_run.data import preview
from studio.pages.new_run.data.block import report_view
from studio.pages.new_run.data.chips import classes_view, label_chip
from studio.pages.new_run.view import View


def test_labels_have_a_colour_of_their_own_and_their_counts() -> None:
    counts = {f"label <{number}>": 40 - number for number in range(12)}
    drawn = classes_view(report_of("/x", labels=Labels(kind="one label", counts=counts, distinct=12)))
    assert drawn.count("<li>") == 12
    assert "12 labels" in drawn
    assert "and 7 more" in drawn
    assert "<0>" not in drawn
    assert label_chip("a") == label_chip("a") != label_chip("b")
    assert len(label_chip("x" * 500)) < 800
    assert "a number" in classes_view(report_of("/x", labels=Labels(kind="number", counts={}, distinct=9)))


@pytest.mark.parametrize(
    ("kind", "counts", "offered"),
    [
        ("one label", {"sport": 90, "culture": 80, "travel": 9}, ["one of 3 labels", "any of 3 labels"]),
        ("one label", {"5": 90, "4": 80, "1": 70}, ["one of 3 labels", "any of 3 labels", "a number"]),
        ("several labels", {"sport": 90, "culture": 80}, []),
        ("number", {}, []),
        ("number", {"7": 2, "9": 1}, ["a number", "one of 2 labels", "any of 2 labels"]),
    ],
)
def test_labels_are_learned_as_they_were_read_or_otherwise(
    kind: LabelKind, counts: dict[str, int], offered: list[str]
) -> None:
    labels = Labels(kind=kind, counts=counts, distinct=len(counts) or 90)
    report = report_of("/x", layout="classification", method="classify", labels=labels)
    for problem in ("auto", "regression") if "a number" in offered else ("auto",):
        trained = RunConfig(method="classify", train=TrainChoice(problem_type=problem))
        drawn = classes_view(report, trained)
        choice = drawn.partition("Learned as")[2].partition("</div>")[0]
        assert re.findall(r">([^<>]+)</button>", choice) == offered
        pressed = re.findall(r'aria-pressed="true"[^>]*>([^<]+)<', choice)
        assert pressed == (["a number"] if problem == "regression" else offered[:1])
        assert not offered or {"train.problem_type": "auto"} in asked_by(choice), "the one that was read"
    assert ("Balance" in drawn, "<em>rare</em>" in drawn) == ("travel" in counts,) * 2
    assert "Learned as" not in classes_view(report, RunConfig(method="sft"))


def test_balancing_can_be_taken_back_and_the_summary_says_what_is_learned() -> None:
    labels = Labels(kind="one label", counts={"sport": 90, "travel": 9}, distinct=2)
    report = report_of("/x", layout="classification", method="classify", labels=labels)
    for chosen, other in (("none", "balanced"), ("balanced", "none")):
        drawn = classes_view(report, RunConfig(method="classify", train=TrainChoice(class_weights=chosen)))
        assert {"train.class_weights": other} in asked_by(drawn)
    said = {
        summary._gives(View(RunConfig(method=method), MACHINE, report=report)) for method in ("auto", "sft", "reward")
    }
    assert said == {"sort texts into 2 labels", "", "score answers"}
    alone = report_of(
        "/x",
        layout="classification",
        method="classify",
        labels=Labels(kind="one label", counts={"sport": 9}, distinct=1),
    )
    assert summary._gives(View(RunConfig(), MACHINE, report=alone)) == ""
    wrong = RunConfig(train=TrainChoice(problem_type="regression"))
    fault = _for_method(View(wrong, MACHINE, report=report)).data_fault
    assert fault is not None
    assert fault.code == "data.labels"


def test_what_is_marked_bad_is_left_out_in_words_and_has_no_right_answer() -> None:
    problem = RowProblem(row=3, code="row.kto_false", text="label is false: a bad answer")
    marks = Marks(good={"true": 390}, bad={"<i>": 10})
    report = report_of(
        "/x.jsonl", layout="kto", asides={"row.kto_false": Aside(rows=10, problems=(problem,))}, marks=marks
    )
    view = _for_method(View(RunConfig(method="sft"), MACHINE, report=report))
    drawn = report_view(view)
    assert "390 of 400 rows can be used" in drawn
    assert "10 rows are left out: label is false: a bad answer (first row 3)." in drawn
    assert "as bad: &lt;i&gt;." in drawn
    turns = (Message(role="user", content="Hi"), Message(role="assistant", content="Go away"))
    assert [question_and_answer(Example(row=1, mark=mark, messages=turns))[1] for mark in (True, False)] == [
        "Go away",
        "",
    ]


def test_a_file_that_a_method_refuses_keeps_its_rows_beside_the_fault() -> None:
    config = RunConfig(method="kto")
    config = config.model_copy(update={"data": config.data.model_copy(update={"path": "/x.jsonl"})})
    report = report_of("/x.jsonl", layout="kto", marks=Marks(good={"true": 400}))
    view = _for_method(View(config, MACHINE, report=report))
    assert view.report is not None
    assert "All 400 answers of x.jsonl are marked good" in report_view(view)
    assert "Fix the data file" in summary.problems(view)
    both = _for_method(
        View(config, MACHINE, report=report.model_copy(update={"marks": Marks(good={"1": 1}, bad={"0": 9})}))
    )
    assert both.data_fault is None
    assert "Makes good answers likelier" in report_view(both)


def test_a_pair_shows_its_prompt_once() -> None:
    asked = Span(text="Why?", kind="read", tokens=2)
    answers = (Span(text="So.", kind="trained", tokens=1), Span(text="No <b>.", kind="avoided", tokens=1, differs=True))
    rows = [
        PreviewRow(row=7, side=side, spans=(asked, answer), tokens=3, trained_tokens=1)
        for side, answer in zip(("chosen", "rejected"), answers, strict=True)
    ]
    (sides,) = preview._by_row(rows)
    drawn = preview._pair(*sides)
    assert drawn.count("Why?") == drawn.count("Row 7") == 1
    assert '<span class="token avoided differs">No &lt;b&gt;.</span>' in drawn
    assert drawn.index("So.") < drawn.index("3 tokens, 1 avoided")
