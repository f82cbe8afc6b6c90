"""What is best and what became of a run: one notion of it for log, checkpoints, window and command line."""

import json
import os
from pathlib import Path

import pytest

from core.cli.follow import of_result
from core.contract.events import Evaluation, Event, Finished, Starting, Step, Stopped
from core.runs.folder.job_folder import JobFolder
from core.runs.record.job_record import fold
from core.runs.record.outcome import Measure, best, by_merit, measures, outcome, standing
from core.runs.record.summary import summarise
from core.runs.record.words import outcome_line


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
        ((3.825, None, float("nan")), Finished(), "unmeasured"),
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


def test_the_line_names_the_step_where_the_best_was_not_the_last() -> None:
    lines = of_result(fold(measured(3.825, 4.03, 4.5, end=Finished())))
    assert lines[-1] == "result    Worse than before training: held-out loss 3.825 → 4.030 (step 100)"
    assert "lower learning rate" in lines[0]
    good = of_result(fold(measured(3.825, 2.0, 1.2, end=Finished())))
    assert good == ["result    Better than before training: held-out loss 3.825 → 1.200"]


def test_a_listing_has_it_cold_and_warm(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "2026-11-20_2243_test_k3f9")
    folder.path.mkdir()
    folder.run_yaml.write_text("data: {path: /data/rows.jsonl}\n")
    events = measured(3.825, 4.03, 4.5, end=Finished())
    folder.events.write_text("".join(f"{event.model_dump_json()}\n" for event in events))
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
