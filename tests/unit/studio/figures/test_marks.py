"""Marks on a chart's axis, and a run's lines as numbers."""

from made_routes import made_routes
from made_runs import BEGAN, RUN, MakeRun, past, step

from core.contract.events import Checkpoint, Correction, Evaluation, Event, Paused, Resumed, Starting
from core.machine.locations import Locations
from core.runs.record.job_record import fold
from studio.figures.marks import csv_of, marks_of


def went_on(at_step: int, seconds: float, attempt: int, steps: int = 10) -> list[Event]:
    """A worker that starts again, so long after the step before."""
    began = BEGAN + 1000 * attempt
    starting = Starting(at=began, attempt=attempt, resumed_step=at_step)
    return [starting, *(step(at_step + n, began + seconds + n, attempt) for n in range(1, steps + 1))]


def test_checkpoints_pauses_restarts_and_corrections_are_marked_in_words() -> None:
    events = [
        *past(110),
        Paused(at=BEGAN + 115, attempt=1, step=110),
        Resumed(at=BEGAN + 700, attempt=2),
        *went_on(110, 0.0, 2),
        Correction(attempt=2, step=118, key="train.learning_rate", old="0.0002", new="0.0001", reason="bad numbers"),
        *went_on(118, 5.0, 3),
        Checkpoint(attempt=3, step=128, name="step-000128"),
    ]
    marks = marks_of(fold(events))
    assert [(at, kind) for at, kind, _ in marks] == [
        (100, "checkpoint"), (110, "break"), (118, "break"), (118, "correction"), (128, "checkpoint"),
    ]  # fmt: skip
    words = [words for *_, words in marks]
    assert words[0] == "checkpoint saved, held-out loss 1.210"
    assert words[1].startswith("paused for 31 min") or words[1].startswith("paused for 32 min")
    assert words[2].startswith("interrupted for ")
    assert words[3] == "Learning rate went from 0.0002 to 0.0001: bad numbers"
    assert words[4] == "checkpoint saved"


def test_a_run_that_is_paused_says_so_and_what_was_dropped_is_not_marked() -> None:
    paused = [*past(30), Paused(attempt=1, step=30)]
    assert marks_of(fold(paused)) == [(30, "break", "paused")]
    assert marks_of(fold([*past(150), *went_on(50, 0.0, 2)])) == [
        (50, "break", marks_of(fold([*past(150), *went_on(50, 0.0, 2)]))[0][2])
    ], "its checkpoint came after the one that it went on from"


def test_a_charts_lines_come_as_a_file_of_every_step_at_full_precision(locations: Locations, make_run: MakeRun) -> None:
    exact = step(3).model_copy(update={"loss": 0.1234567890123456, "grad_norm": None})
    told = [*past(2), exact, Evaluation(attempt=1, step=3, loss=1.0000000000000002, rows=5, accuracy=0.75)]
    make_run(told, RUN)
    routes = made_routes(locations)
    answer = routes.client.get(f"/studio/run/{RUN}/lines", params={"names": "loss,evaluation,held_out_accuracy,../x"})
    lines = answer.text.splitlines()
    assert answer.headers["content-type"].startswith("text/csv")
    assert lines[0] == "step,loss,evaluation,held_out_accuracy"
    assert lines[1] == "0,,2.5,"
    assert lines[-1] == "3,0.1234567890123456,1.0000000000000002,0.75"
    assert len(lines) == 1 + 1 + 3
    assert csv_of(fold(told), ["grad_norm"]).splitlines()[-1] == "3,"
