"""Commands are acknowledged at once and obeyed at a seam; the guard and the clock keep their word."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from core.contract.commands import Command
from core.contract.errors import DataError, RunError
from core.train.channel.command_queue import CommandQueue, Leave
from core.train.channel.meter import Meter
from core.train.channel.reporter import EventReporter
from core.train.safety.guard import require_targets


def wait_for(condition: Any, seconds: float = 2.0) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


def test_a_command_is_acknowledged_within_a_second_whatever_the_loop_does(said: Any, letters: Any) -> None:
    commands = CommandQueue(letters, EventReporter(said)).start()
    letters.waiting = [Command(id="a", verb="save"), Command(id="b", verb="sample", prompt="Hi")]
    begun = time.monotonic()
    wait_for(lambda: len(said.of("acknowledged")) == 2)
    assert time.monotonic() - begun < 1
    assert [event.command_id for event in said.of("acknowledged")] == ["a", "b"]
    taken = [commands.take(), commands.take(), commands.take()]
    assert [command and command.id for command in taken] == ["a", "b", None]
    commands.check()
    commands.close()


def test_one_checkpoint_answers_all_who_asked_for_one_meanwhile(said: Any, letters: Any) -> None:
    commands = CommandQueue(letters, EventReporter(said)).start()
    letters.waiting = [Command(id=name, verb="save") for name in "abc"] + [Command(id="d", verb="sample")]
    wait_for(lambda: len(said.of("acknowledged")) == 4)
    commands.close()
    taken = [commands.take(), commands.take(), commands.take()]
    assert [command and command.id for command in taken] == ["a", "d", None]


def test_who_asks_to_leave_does_not_wait_for_what_cannot_be_called_off(said: Any, letters: Any) -> None:
    """A model's files as they are read by a library: no seam is in there."""
    commands, held = CommandQueue(letters, EventReporter(said)), threading.Event()
    assert commands.meanwhile(lambda: 5) == 5
    with pytest.raises(RunError, match="of its own"):
        commands.meanwhile(
            lambda: (_ for _ in ()).throw(RunError.told_by({"code": "a", "message": "A fault of its own."}))
        )
    commands._leaving = "stop"
    begun = time.monotonic()
    with pytest.raises(Leave):
        commands.meanwhile(held.wait)
    held.set()
    assert time.monotonic() - begun < 2


def test_what_went_on_before_goes_on_after_a_save_or_a_wait(said: Any) -> None:
    """A stall is judged by the stage that was said last, and in "waiting" there is none."""
    reporter = EventReporter(said)
    reporter.stage("training", "", 3, 9, "steps")
    with reporter.aside():
        pass  # nothing comes in between
    with reporter.aside():
        reporter.stage("waiting", "Room on the disk.")
    assert [(event.stage, event.done) for event in said.of("stage")] == [
        ("training", 3),
        ("waiting", 0),
        ("training", 3),
    ]


@pytest.mark.parametrize(
    ("verbs", "obeyed"), [(["pause"], "pause"), (["pause", "stop"], "stop"), (["stop", "pause"], "stop")]
)
def test_leaving_is_obeyed_at_the_seam_and_a_stop_outweighs_a_pause(
    said: Any, letters: Any, verbs: list[Any], obeyed: str
) -> None:
    commands = CommandQueue(letters, EventReporter(said)).start()
    letters.waiting = [Command(verb=verb) for verb in verbs]
    wait_for(lambda: len(said.of("acknowledged")) == len(verbs))
    commands.close()
    assert commands.leaving
    with pytest.raises(Leave) as caught:
        commands.check()
    assert caught.value.verb == obeyed


def test_data_that_trains_nothing_is_refused_with_what_to_do() -> None:
    require_targets(1, 1, 64)
    with pytest.raises(DataError, match="none in 40 rows cut at 64 tokens"):
        require_targets(0, 40, 64)
    with pytest.raises(DataError, match="rows to train on"):
        require_targets(0, 0, 64)


def test_a_stage_is_not_said_more_often_than_a_reader_wants(said: Any) -> None:
    reporter = EventReporter(said)
    for done in range(1000):
        reporter.stage("preparing", "Tokenising rows", done, 1000, "rows")
    reporter.stage("preparing", "Tokenising rows", 1000, 1000, "rows")
    reporter.stage("loading", "Tiny")
    stages = said.of("stage")
    assert len(stages) < 10
    assert [(event.stage, event.done) for event in (stages[0], *stages[-2:])] == [
        ("preparing", 0), ("preparing", 1000), ("loading", 0),
    ]  # fmt: skip


def test_a_nights_log_is_made_of_steps_and_not_of_stages(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight hours of each stage that reports as often as it can: a step every 0.2 s, a file every 0.1 s."""
    clock = [0.0]
    monkeypatch.setattr("core.train.channel.reporter.time", SimpleNamespace(monotonic=lambda: clock[0]))
    reporter = EventReporter(said)
    for number in range(8 * 3600 * 5):
        clock[0] = number * 0.2
        reporter.stage("training", "", number, 8 * 3600 * 5, "steps")
    assert len(said.of("stage")) <= 8 * 60 + 1
    for number in range(8 * 3600 * 10):
        clock[0] = 8 * 3600 + number * 0.1
        reporter.stage("downloading", "A large model", number, 1e9, "bytes")
    stages = said.of("stage")
    assert len(stages) <= 8 * 60 + 1 + 8 * 720 + 400
    assert sum(len(event.model_dump_json()) for event in stages) < 2_000_000
    gaps = [after.done - before.done for before, after in pairwise(stages[-100:])]
    assert max(gaps) <= 51, "a reader sees it move every 5 s"


def test_the_clock_leaves_out_what_is_no_step() -> None:
    meter = Meter()
    with meter.aside():
        time.sleep(0.05)
    assert meter.lap(0).seconds < 0.04
    time.sleep(0.02)
    assert meter.lap(0).seconds >= 0.015
