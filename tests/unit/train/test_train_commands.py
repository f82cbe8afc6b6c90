"""Commands are acknowledged at once and obeyed at a safe point; what is said keeps a pace that a reader can follow."""

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from core.contract.commands import Command
from core.train.channel.command_queue import CommandQueue, Leave
from core.train.channel.meter import Meter
from core.train.channel.reporter import EventReporter


@pytest.fixture
def told(said: Any, letters: Any) -> Iterator[Callable[..., CommandQueue]]:
    """A queue that has acknowledged these commands."""
    commands = CommandQueue(letters, EventReporter(said)).start()

    def tell(*asked: Command) -> CommandQueue:
        letters.waiting, end = list(asked), time.monotonic() + 1
        while len(said.of("acknowledged")) < len(asked):
            assert time.monotonic() < end, "a command is acknowledged within a second"
            time.sleep(0.01)
        return commands

    yield tell
    commands.close()


def taken(commands: CommandQueue) -> list[str]:
    return [command.id for command in iter(commands.take, None)]


def test_a_command_is_acknowledged_at_once_and_one_checkpoint_answers_all_who_asked(said: Any, told: Any) -> None:
    saves = [Command(id=name, verb="save") for name in "abc"]
    commands = told(*saves, Command(id="d", verb="sample", prompt="Hi"))
    assert [event.command_id for event in said.of("acknowledged")] == ["a", "b", "c", "d"]
    commands.check()
    assert taken(commands) == ["a", "d"]


@pytest.mark.parametrize(
    ("verbs", "obeyed"), [(["pause"], "pause"), (["pause", "stop"], "stop"), (["stop", "pause"], "stop")]
)
def test_leaving_is_obeyed_at_a_safe_point_and_a_stop_outweighs_a_pause(
    told: Any, verbs: list[Any], obeyed: str
) -> None:
    commands = told(*[Command(verb=verb) for verb in verbs])
    assert commands.leaving
    with pytest.raises(Leave) as caught:
        commands.check()
    assert caught.value.verb == obeyed


def test_who_asks_to_leave_does_not_wait_for_what_cannot_be_called_off(said: Any, letters: Any) -> None:
    """A model's files as they are read by a library: no safe point is in there."""
    commands, held = CommandQueue(letters, EventReporter(said)), threading.Event()
    assert commands.meanwhile(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        commands.meanwhile(lambda: 1 // 0)
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
    stages = [(event.stage, event.done) for event in said.of("stage")]
    assert stages == [("training", 3), ("waiting", 0), ("training", 3)]


def test_a_stage_is_not_said_more_often_than_a_reader_wants(said: Any) -> None:
    reporter = EventReporter(said)
    for done in range(1001):
        reporter.stage("preparing", "Tokenising rows", done, 1000, "rows")
    reporter.stage("loading", "Tiny")
    stages = [(event.stage, event.done) for event in said.of("stage")]
    assert len(stages) < 10
    assert [stages[0], *stages[-2:]] == [("preparing", 0), ("preparing", 1000), ("loading", 0)]


def test_a_nights_log_is_made_of_steps_and_not_of_stages(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of each stage that reports as often as it can: a step every 0.2 s, a file every 0.1 s."""
    clock = [0.0]
    monkeypatch.setattr("core.train.channel.reporter.time", SimpleNamespace(monotonic=lambda: clock[0]))
    reporter = EventReporter(said)
    for number in range(3600 * 5):
        clock[0] = number * 0.2
        reporter.stage("training", "", number, 3600 * 5, "steps")
    assert len(said.of("stage")) <= 61
    for number in range(3600 * 10):
        clock[0] = 3600 + number * 0.1
        reporter.stage("downloading", "A large model", number, 1e9, "bytes")
    stages = said.of("stage")
    assert len(stages) <= 61 + 720 + 400
    gaps = [after.done - before.done for before, after in pairwise(stages[-100:])]
    assert max(gaps) <= 51, "a reader sees it move every 5 s"


def test_the_clock_leaves_out_what_is_no_step() -> None:
    meter = Meter()
    with meter.aside():
        time.sleep(0.05)
    assert meter.lap(0).seconds < 0.04
    time.sleep(0.02)
    assert meter.lap(0).seconds >= 0.015
