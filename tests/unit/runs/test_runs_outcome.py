"""What is best and what became of a run: one notion of it for log, checkpoints, window and command line."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from core.cli.follow import of_result
from core.contract.events import Evaluation, Event, Finished, Starting, Step, Stopped
from core.contract.methods import METHODS, Method
from core.runs.folder.job_folder import JobFolder
from core.runs.record.job_record import fold
from core.runs.record.outcome import Measure, best, by_merit, measures, outcome, standing
from core.runs.record.summary import summarise
from core.runs.record.words import STATE_WORDS, outcome_line, state_word
from studio.figures.history_rows import row
from studio.figures.run_figures import state_of


def measured(*losses: float | None, end: Event | None = None) -> list[Event]:
    """Held-out losses at the steps 0, 100, 200 …"""
    told: list[Event] = [Starting(attempt=1)]
    for number, loss in enumerate(losses):
        told += [Step(step=number * 100)] if number else []
        told.append(Evaluation(step=number * 100, loss=loss, rows=5))
    return [*told, *([end] if end else [])]


@pytest.mark.parametrize(
    ("losses", "end", "verdict"),
    [
        ((3.825, 4.03, 4.5, 4.031), Finished(), "worse"),
        ((3.825, 2.0, 1.2), Finished(), "better"),
        ((3.825, 1.2, 4.5), Finished(), "better"),
        ((3.825, 3.82, 3.83), Finished(), "no_better"),
        ((0.693, 0.5), Finished(), "better"),
        ((3.825,), Finished(), "unmeasured"),
        ((None, 2.0), Finished(), "unmeasured"),
        ((3.825, None, float("nan")), Finished(), "diverged"),
        ((3.825, 1.2, None), Finished(), "diverged"),
        ((), Finished(), "unmeasured"),
        ((3.8, 1.2), Stopped(), "better"),
        ((3.8,), Stopped(), None),
        ((3.8, 1.2), None, None),
    ],
)
def test_the_best_after_training_is_judged_against_the_model_before_it(
    losses: tuple[float | None, ...], end: Event | None, verdict: str | None
) -> None:
    """No verdict stands before the end, and a stopped run has one where it was measured."""
    became = outcome(fold(measured(*losses, end=end)))
    assert (became and became.verdict) == verdict
    assert became is None or outcome_line(became)


def test_the_measure_before_training_counts_and_of_equal_ones_the_earliest() -> None:
    assert best(measures(fold(measured(3.825, 4.03, 4.5)))) == Measure(3.825, 0)
    assert best(measures(fold(measured(3.8, 1.2, 1.2)))) == Measure(1.2, 100)
    assert best(()) is None


def scored(*told: tuple[float, float], by: str, measure: str) -> list[Event]:
    return [
        Starting(attempt=1),
        *(
            Evaluation(step=100 * number, loss=loss, rows=50, best_by=by, **{measure: value})
            for number, (loss, value) in enumerate(told)
        ),
        Finished(),
    ]


@pytest.mark.parametrize(
    ("measure", "told", "step"),
    [
        ("accuracy", ((0.7, 0.5), (0.4, 0.8), (0.6, 0.9), (0.5, 0.7)), 200),
        ("accuracy", ((0.7, 0.5), (0.4, 0.9), (0.3, 0.9), (0.5, 0.9)), 200),
        ("mean_error", ((4.0, 2.0), (3.0, 0.5), (2.0, 1.0)), 100),
    ],
)
def test_the_best_is_found_by_what_the_method_measures(
    measure: str, told: tuple[tuple[float, float], ...], step: int
) -> None:
    """A classifier's checkpoint of the lowest loss was used where another one was right more often."""
    record = fold(scored(*told, by=measure, measure=measure))
    first, became = best(measures(record)), outcome(record)
    assert first is not None
    assert (first.step, first.told[0]) == (step, measure)
    assert became is not None
    assert became.own is not None
    assert became.own.after == first.own
    older = best(measures(fold(scored(*told, by="", measure=measure))))
    assert older == min((Measure(loss, 100 * at) for at, (loss, _) in enumerate(told)), key=lambda one: one.loss)


def test_a_run_that_an_older_version_began_goes_by_its_losses() -> None:
    old, new = Measure(0.5, 100), Measure(0.6, 200, 0.9, "accuracy")
    assert best((old, new)) == old
    assert measures(fold([Starting(attempt=1), Evaluation(step=1, loss=0.5, best_by="__class__")])) == (
        Measure(0.5, 1),
    )


def test_the_line_names_the_step_where_the_best_was_not_the_last() -> None:
    lines = of_result(fold(measured(3.825, 4.03, 4.5, end=Finished())))
    assert lines[-1] == "result    Do not use this one: it got worse, held-out loss 3.825 → 4.030 (step 100)"
    assert "lower learning rate" in lines[0]
    good = of_result(fold(measured(3.825, 2.0, 1.2, end=Finished())))
    assert good[-1] == "result    It learned: held-out loss 3.825 → 1.200"


OWN: dict[str, tuple[str, tuple[tuple[float, float], ...], str, str]] = {
    # the measure; loss and measure at the steps 0, 100, 200 …
    "the loss rose, the labels came": (
        "accuracy", ((0.70, 0.50), (0.72, 0.90), (0.90, 0.91)),
        "better", "It learned: held-out accuracy 50% → 90% (step 100)",
    ),
    "the loss fell, the labels went": (
        "accuracy", ((0.70, 0.80), (0.60, 0.60)),
        "worse", "Do not use this one: it got worse, held-out accuracy 80% → 60%",
    ),
    "one row of fifty more is chance": (
        "accuracy", ((0.70, 0.80), (0.70, 0.82)),
        "no_better", "It learned next to nothing: held-out accuracy 80% → 82%",
    ),
    "all were right already, and surer": (
        "accuracy", ((0.69, 1.0), (0.2, 1.0)), "better", "It learned: held-out loss 0.690 → 0.200",
    ),
    "a number is nearer": (
        "mean_error", ((4.0, 1.5), (4.1, 0.5)), "better", "It learned: held-out mean error 1.500 → 0.500",
    ),
    "a number is farther": (
        "mean_error", ((4.0, 1.5), (3.0, 2.5)),
        "worse", "Do not use this one: it got worse, held-out mean error 1.500 → 2.500",
    ),
    "no ranking measure": ("margin", ((0.70, 0.0), (0.60, -1.0)), "better", "It learned: held-out loss 0.700 → 0.600"),
}  # fmt: skip


@pytest.mark.parametrize("case", OWN)
def test_a_run_is_judged_by_what_its_method_measures(case: str, tmp_path: Path) -> None:
    measure, told, verdict, line = OWN[case]
    events: list[Event] = [Starting(attempt=1)]
    for number, (loss, value) in enumerate(told):
        events.append(Evaluation(step=100 * number, loss=loss, rows=50, **{measure: value}))
    became = outcome(fold([*events, Finished()]))
    assert became is not None
    assert (became.verdict, outcome_line(became)) == (verdict, line)
    run = JobFolder(tmp_path / "run")
    run.path.mkdir()
    run.events.write_text("".join(event.model_dump_json() + "\n" for event in [*events, Finished()]))
    listed = summarise(run)
    assert listed.outcome == became, "a list says the same"
    if became.own:
        assert row(listed)["measured"] in line or "loss" in line


@pytest.mark.parametrize(
    ("method", "rows", "after", "verdict"),
    [
        ("dpo", 15, 7, "better"),  # a fall of three pairs of fifteen is chance, a loss that fell by a fifth is none
        ("orpo", 15, 7, "better"),
        ("dpo", 200, 60, "worse"),
        ("reward", 15, 7, "worse"),  # found by it: at no step were more of them right
        ("classify", 15, 7, "worse"),
        ("dpo", 15, 14, "better"),
    ],
)
def test_pairs_whose_loss_fell_are_not_called_worse_for_a_few_that_turned(
    method: Method, rows: int, after: int, verdict: str
) -> None:
    """The row of METHODS says by what the best is found; a run of pairs was red while the loss that found it fell."""
    by = next((name for name in METHODS[method].best_by if name == "accuracy"), "")
    told = [(0.7, 10 * rows // 15 / rows), (0.56, after / rows)]
    events = [
        Evaluation(step=100 * at, loss=loss, rows=rows, accuracy=right, best_by=by)
        for at, (loss, right) in enumerate(told)
    ]
    became = outcome(fold([Starting(attempt=1), *events, Finished()]))
    assert became is not None
    assert became.verdict == verdict


def test_rows_learned_by_heart_are_told_by_the_methods_measure() -> None:
    """The held-out loss of a classifier rises as it becomes surer; by heart it is where its labels become wrong."""
    for last, verdict in ((0.9, "better"), (0.7, "by_heart")):
        told: list[Event] = [Starting(attempt=1)]
        for step in range(301):
            told += [Step(step=step, loss=0.7 - step / 500)] if step else []
            if step in (0, 100, 300):
                loss, right = {0: (0.7, 0.5), 100: (0.3, 0.9), 300: (0.5, last)}[step]
                told.append(Evaluation(step=step, loss=loss, accuracy=right, rows=100))
        became = outcome(fold([*told, Finished()]))
        assert became is not None
        assert became.verdict == verdict
        assert verdict == "better" or outcome_line(became).endswith("held-out accuracy 50% → 90%, then 70%")


def trained(course: Callable[[int], float | None], held_out: dict[int, float | None], steps: int = 300) -> list[Event]:
    """A finished run with a training loss for each step, and the held-out losses of some."""
    told: list[Event] = [Starting(attempt=1)]
    for number in range(steps + 1):
        told += [Step(step=number, loss=course(number))] if number else []
        told += [Evaluation(step=number, loss=held_out[number], rows=5)] if number in held_out else []
    return [*told, Finished()]


FALLS, RISES, FLAT = (lambda n: 2.5 - n / 150), (lambda n: 2.0 + n / 60), (lambda n: 2.0 + 0.05 * (n % 3))
ROSE, NO_NUMBER = "its loss rose from 2.092 to 6.925", "its loss is no number any more"
BY_HEART = "It began to learn rows by heart after step 100: held-out loss"
UNMEASURED = "Not measured: no held-out loss from before and after training"
RECORDED: dict[str, tuple[list[Event], str, str]] = {
    "it learned": (
        trained(FALLS, {0: 2.5, 100: 1.9, 300: 1.4}), "better", "It learned: held-out loss 2.500 → 1.400"
    ),
    "nothing moved": (
        trained(FLAT, {0: 2.0, 300: 1.995}), "no_better", "It learned next to nothing: held-out loss 2.000 → 1.995"
    ),
    "worse from the start": (
        trained(FALLS, {0: 2.5, 100: 2.6, 300: 2.9}),
        "worse", "Do not use this one: it got worse, held-out loss 2.500 → 2.600 (step 100)",
    ),
    "by heart": (
        trained(FALLS, {0: 2.5, 100: 1.6, 200: 1.8, 300: 2.0}), "by_heart", f"{BY_HEART} 2.500 → 1.600, then 2.000"
    ),
    "by heart from the start": (
        trained(FALLS, {0: 1.61, 100: 1.6, 300: 2.0}), "by_heart", f"{BY_HEART} 1.610 → 1.600, then 2.000"
    ),
    "a little past the best": (
        trained(FALLS, {0: 2.5, 200: 1.4, 300: 1.41}), "better", "It learned: held-out loss 2.500 → 1.400 (step 200)"
    ),
    "the rows were easier at the end": (
        trained(RISES, {0: 2.5, 300: 1.4}), "better", "It learned: held-out loss 2.500 → 1.400"
    ),
    "both losses rose": (
        trained(RISES, {0: 2.0, 100: 3.0, 300: 6.0}),
        "diverged", f"Do not use this one: training diverged, {ROSE}",
    ),
    "it broke after a good while": (
        trained(RISES, {0: 2.5, 100: 1.5, 300: 6.0}), "diverged", f"Training diverged after step 100, {ROSE}"
    ),
    "its numbers ended": (
        trained(lambda n: FALLS(n) if n < 298 else None, {0: 2.5, 100: 1.5}),
        "diverged", f"Training diverged after step 100, {NO_NUMBER}",
    ),
    "its held-out numbers ended": (
        trained(FALLS, {0: 2.5, 100: 2.5, 300: None}),
        "diverged", f"Do not use this one: training diverged, {NO_NUMBER}",
    ),
    "nothing held out, and it rose": (
        trained(RISES, {}), "diverged", f"Do not use this one: training diverged, {ROSE}"
    ),
    "nothing held out": (trained(FALLS, {}), "unmeasured", UNMEASURED),
    "too few steps to say": (trained(RISES, {}, steps=5), "unmeasured", UNMEASURED),
}  # fmt: skip
"""What a log tells, its verdict, and the sentence."""
RUINED_WORDS = {"worse": "Came out worse", "diverged": "Diverged"}


def written(runs: Path, events: list[Event]) -> JobFolder:
    folder = JobFolder(runs / "2026-11-20_2243_test_k3f9")
    folder.path.mkdir()
    folder.run_yaml.write_text("data: {path: /data/rows.jsonl}\n")
    folder.events.write_text("".join(f"{event.model_dump_json()}\n" for event in events))
    return folder


@pytest.mark.parametrize("name", RECORDED)
def test_each_verdict_from_a_recorded_log_and_no_ruined_model_reads_finished_in_green(
    name: str, tmp_path: Path
) -> None:
    events, verdict, sentence = RECORDED[name]
    word = RUINED_WORDS.get(verdict, "Finished")
    record = fold(events)
    became = outcome(record)
    assert became is not None
    assert (became.verdict, state_word("finished", became), outcome_line(became)) == (verdict, word, sentence)
    shown, tone = state_of("finished", became)
    assert (tone == "good") == (verdict == "better"), "green is for what learned alone"
    if became.ruined:
        assert (tone, shown) == ("bad", word)
        assert shown != STATE_WORDS["finished"]
        assert state_of("stopped", became) == (word, "bad")
    listed = summarise(written(tmp_path, events))
    assert listed.outcome == became, "a listing judges as the page does"
    assert (row(listed)["word"], row(listed)["tone"]) == (shown, tone)


def test_a_resumed_run_is_judged_by_what_its_attempts_left(tmp_path: Path) -> None:
    """A course that was dropped, with a checkpoint before it, decides nothing: in the listing neither."""
    events = [*trained(RISES, {0: 2.5, 100: 2.2, 300: 6.0})[:-1], Starting(attempt=2, resumed_step=100)]
    events += [Step(step=number, loss=FALLS(number), attempt=2) for number in range(101, 301)]
    events += [Evaluation(step=300, loss=1.2, rows=5, attempt=2), Finished(attempt=2)]
    folder = written(tmp_path, events)
    became = outcome(fold(events))
    assert became is not None
    assert (became.verdict, summarise(folder).outcome) == ("better", became)


def test_a_listing_has_it_cold_and_warm(tmp_path: Path) -> None:
    events = measured(3.825, 4.03, 4.5, end=Finished())
    folder = written(tmp_path, events)
    cold, warm = summarise(folder), summarise(folder)
    assert cold == warm
    assert (cold.verdict, cold.before_loss, cold.best_loss, cold.best_step) == ("worse", 3.825, 4.03, 100)
    assert cold.outcome == outcome(fold(events))


def test_checkpoints_by_merit_and_what_cannot_be_read_is_not_measured(tmp_path: Path) -> None:
    written = {1: 2.0, 2: 1.0, 3: None, 4: "1", 5: 1.0, 6: True}
    for step, loss in written.items():
        (tmp_path / f"step-{step:06d}").mkdir()
        (tmp_path / f"step-{step:06d}" / "MANIFEST.json").write_text(json.dumps({"eval_loss": loss}))
    for step, text in ((7, "[" * 100_000), (8, '{"eval_loss": NaN}'), (9, "")):
        (tmp_path / f"step-{step:06d}").mkdir()
        (tmp_path / f"step-{step:06d}" / "MANIFEST.json").write_text(text)
    (tmp_path / "step-000010").mkdir()
    (tmp_path / "step-000011").mkdir()
    os.mkfifo(tmp_path / "step-000011" / "MANIFEST.json")
    assert [int(path.name[5:]) for path in by_merit(tmp_path)] == [2, 5, 1, 9, 8, 7, 6, 4, 3]
    assert [path.name for path in standing(tmp_path)] == [f"step-{step:06d}" for step in range(1, 10)]


def test_checkpoints_by_what_their_method_measures(tmp_path: Path) -> None:
    for step, loss, own in ((1, 0.4, 0.8), (2, 0.6, 0.9), (3, 0.5, 0.9)):
        (tmp_path / f"step-{step:06d}").mkdir()
        told = {"step": step, **Measure(loss, step, own, "accuracy").facts}
        (tmp_path / f"step-{step:06d}" / "MANIFEST.json").write_text(json.dumps(told))
    assert [int(path.name[5:]) for path in by_merit(tmp_path)] == [3, 2, 1]
    assert [one.told for one in standing(tmp_path).values() if one] == [("accuracy", own) for own in (0.8, 0.9, 0.9)]
