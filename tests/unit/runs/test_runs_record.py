"""The fold: what a run is follows from its events alone."""

import time
from pathlib import Path

import pytest

from core.contract.events import (
    Acknowledged,
    Checkpoint,
    Evaluation,
    Event,
    Exported,
    Failed,
    Finished,
    Note,
    Paused,
    Plan,
    Queued,
    Resumed,
    Sample,
    Stage,
    Starting,
    Step,
    Stopped,
)
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventTail, EventWriter
from core.runs.log.lines import sealed
from core.runs.record.job_record import Folds, RunFold, RunRecord, fold

STORY: list[tuple[Event, str]] = [
    (Queued(at=1, attempt=1), "queued"),
    (Queued(at=2, attempt=1, reason="run a holds the card"), "queued"),
    (Starting(at=3, attempt=1), "starting"),
    (Stage(stage="loading"), "starting"),
    (Stage(stage="first_step"), "training"),
    (Step(step=1, loss=2.0), "training"),
    (Paused(step=1), "paused"),
    (Resumed(attempt=2), "queued"),
    (Starting(attempt=2, resumed_step=1), "starting"),
    (Step(step=2, loss=1.0), "training"),
    (Failed(code="worker.died", message="gone", at=9), "failed"),
    (Resumed(attempt=3), "queued"),
    (Starting(attempt=3, resumed_step=1), "starting"),
    (Stopped(at=10), "stopped"),
    (Note(text="late"), "stopped"),
    (Starting(attempt=4, resumed_step=1), "starting"),
    (Finished(at=11), "finished"),
]


def test_every_event_moves_the_state_as_the_house_says() -> None:
    state = RunFold()
    copies = []
    for event, expected in STORY:
        state.add(event)
        assert state.record.state == expected, event
        copies.append(state.record)
    assert [copy.state for copy in copies] == [expected for _, expected in STORY], "later events leave a record alone"
    record, waiting, failed = copies[-1], copies[1], copies[10]
    assert (record.started_at, record.ended_at, record.attempt, record.failure) == (3, 11, 4, None)
    assert (waiting.queued_reason, waiting.started_at, waiting.attempt) == ("run a holds the card", 1, 1)
    assert (failed.queued_reason, failed.failure.message, failed.ended_at) == ("", "gone", 9)
    assert fold([]) == RunRecord()
    assert not fold([Queued(at=5.0), Stopped(at=70.0)]).begun, "it left the queue before"


def test_a_later_attempt_drops_what_came_after_its_checkpoint() -> None:
    events: list[Event] = [Starting(attempt=1)]
    events += [Step(step=step, attempt=1, loss=1.0) for step in range(1, 8)]
    events += [Evaluation(step=0, loss=3.0), Evaluation(step=4, loss=2.0), Evaluation(step=6, loss=1.0)]
    events += [Checkpoint(step=4, name="step-000004"), Checkpoint(step=6, name="step-000006")]
    events += [Starting(attempt=2, resumed_step=4)]
    record = fold(events)
    assert [step.step for step in record.steps] == [1, 2, 3, 4]
    assert [measured.step for measured in record.evaluations] == [0, 4]
    assert [kept.step for kept in record.checkpoints] == [4]
    assert record.last_step == 4
    again = fold([*events, Step(step=5, attempt=2, loss=0.5), Starting(attempt=2, resumed_step=2)])
    assert [step.step for step in again.steps] == [1, 2]


def test_charts_never_run_backwards_within_an_attempt() -> None:
    steps = [1, 2, 3, 2, 3, 4]
    record = fold([Starting(), *(Step(step=step, loss=float(place)) for place, step in enumerate(steps))])
    assert [(step.step, step.loss) for step in record.steps] == [(1, 0.0), (2, 3.0), (3, 4.0), (4, 5.0)]
    assert [e.step for e in fold([Evaluation(step=2), Evaluation(step=2), Evaluation(step=3)]).evaluations] == [2, 3]


def test_the_log_is_folded_in_its_order_whatever_its_times_say() -> None:
    """A clock that is set back in mid-run, and one that is set forth."""
    for jump in (-8 * 3600.0, 8 * 3600.0):
        record = fold([
            Starting(at=1000.0), Step(step=1, at=1010.0), Stage(stage="saving", at=1020.0),
            Checkpoint(step=1, at=1030.0 + jump), Step(step=2, at=1040.0 + jump), Step(step=3, at=1050.0 + jump),
        ])  # fmt: skip
        assert ([step.step for step in record.steps], record.last_step, record.stepped) == ([1, 2, 3], 3, True)
        assert record.started_at == 1000.0
        assert not fold([Step(step=1, at=2000.0), Stage(stage="saving", at=1000.0)]).stepped


@pytest.mark.parametrize(
    ("command", "next_event", "pending"),
    [
        ("save", Checkpoint(step=1), ""),
        ("pause", Paused(), ""),
        ("stop", Stopped(), ""),
        ("stop", Finished(), ""),
        ("pause", Failed(), ""),
        ("stop", Starting(attempt=2), ""),
        ("stop", Checkpoint(step=3), "stop"),
    ],
)
def test_a_command_is_pending_until_it_is_fulfilled(command: str, next_event: Event, pending: str) -> None:
    begun: list[Event] = [Starting(), Acknowledged(command_id="a", command=command)]
    assert (fold(begun).pending, fold(begun).acknowledged) == (command, {"a"})
    assert fold([*begun, next_event]).pending == pending


def test_what_is_collected_is_kept_in_order() -> None:
    record = fold([Plan(total_steps=9), Note(text="a"), Note(text="b"), Sample(text="s"), Exported(name="x")])
    assert record.plan.total_steps == 9
    assert [note.text for note in record.notes] == ["a", "b"]
    assert (record.samples[0].text, record.exported[0].name) == ("s", "x")


def test_twenty_thousand_steps_fold_within_a_second(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    trained = (Step(step=n, loss=1.2345, grad_norm=0.5, tokens=4096, seconds=1.0) for n in range(1, 20_001))
    lines = (sealed(step.model_dump_json().encode(), step.step) + b"\n" for step in trained)
    path.write_bytes(b"".join(lines))
    began = time.process_time()
    record = fold(EventTail(path).read())
    assert time.process_time() - began < 1.25
    assert (len(record.steps), record.last_step) == (20_000, 20_000)


def test_folds_read_only_what_was_added(tmp_path: Path) -> None:
    folds = Folds()
    folders = [JobFolder(tmp_path / str(number)) for number in range(20)]
    for folder in folders:
        folder.path.mkdir()
        EventWriter(folder.events, 1).write(Step(step=1))
        assert folds.record(folder).last_step == 1
    EventWriter(folders[19].events, 1).write(Step(step=2))
    assert [step.step for step in folds.record(folders[19]).steps] == [1, 2]
    assert folds.record(folders[0]).last_step == 1  # was dropped, and is read again
    folds.forget(folders[19])
    folders[19].events.unlink()
    assert folds.record(folders[19]) == RunRecord()
