"""Between a worker's start and its first word the supervisor hears; then log and mailbox are the worker's alone."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from core.contract.commands import parse_command
from core.contract.config import RunConfig
from core.machine.locks import held_by
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventTail
from core.runs.log.handover import ReadyPipe, signal_ready
from core.runs.process.processes import find_worker, read_owners
from core.runs.record.job_record import RunRecord

Config = Callable[[str], RunConfig]
Until = Callable[..., RunRecord]
HEARD_SECONDS = 1.0


def starting(store: RunStore, run_id: str) -> JobFolder:
    """Its worker has been started and has not said a word."""
    folder, end = store.open(run_id), time.monotonic() + 30
    while read_owners(folder).worker is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    return folder


@pytest.mark.parametrize("verb", ["stop", "pause"])
def test_who_calls_it_off_while_a_worker_comes_up_is_heard_at_once(
    store: RunStore, config: Config, until: Until, verb: str
) -> None:
    run_id = store.start(config("late 60"))
    folder = starting(store, run_id)
    getattr(store, verb)(run_id)
    until(run_id, "stopped" if verb == "stop" else "paused", seconds=20)
    asked = parse_command(folder.commands.read_bytes())
    heard = [event for event in EventTail(folder.events).read() if event.kind == "acknowledged"]
    assert asked is not None
    assert len(heard) == 1
    assert heard[0].at - asked.at < HEARD_SECONDS
    assert find_worker(folder) is None, "it was ended before anything was promised"


def test_a_worker_goes_on_without_the_supervisor_that_heard_for_it(
    store: RunStore, config: Config, until: Until
) -> None:
    run_id = store.start(config("late 1"))
    folder = starting(store, run_id)
    supervisor = read_owners(folder).supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    assert until(run_id, "finished").attempt == 1
    end = time.monotonic() + 30
    while held_by(store.locations, "cpu"):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_worker_that_dies_before_it_knocks_is_not_waited_for(store: RunStore, config: Config, until: Until) -> None:
    run_id = store.start(config("late 60"))
    worker = read_owners(starting(store, run_id)).worker
    assert worker is not None
    os.kill(worker.pid, signal.SIGKILL)
    failure = until(run_id, "failed", seconds=20).failure
    assert failure is not None
    assert failure.code == "worker.died"


def test_nobody_passes_a_door_before_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    door, passed = ReadyPipe(), threading.Event()
    for name, value in door.environment.items():
        monkeypatch.setenv(name, str(os.dup(int(value))))
    worker = threading.Thread(target=lambda: (signal_ready(), passed.set()))
    worker.start()
    door.passed_on()
    asked: list[bool] = []
    assert not door.wait(lambda: bool(asked.append(True)))
    assert not passed.wait(0.2)
    door.close()
    assert passed.wait(10)
    worker.join()
    assert not any(name in os.environ for name in door.environment), "what it starts does not knock again"


def test_what_is_called_off_is_called_off_at_the_first_word() -> None:
    door = ReadyPipe()
    assert door.wait(lambda: True)
    door.close()


def test_without_a_door_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    signal_ready()
    monkeypatch.setenv("LUTHIER_DOOR", "987654")  # a descriptor that is none
    signal_ready()
    assert "LUTHIER_DOOR" not in os.environ
