"""Between a worker's start and its first word the supervisor hears; then log and mailbox are the worker's alone."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from living_runs import Config, Until, gone

from core.contract.commands import parse_command
from core.machine.locks import held_by
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventTail
from core.runs.log.handover import ReadyPipe, signal_ready
from core.runs.process.processes import find_worker, read_owners

HEARD_SECONDS = 1.0


def starting(store: RunStore, run_id: str) -> JobFolder:
    """Its worker has been started and has not said a word."""
    folder = store.open(run_id)
    assert gone(lambda: read_owners(folder).worker is None)
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
    assert len(heard) == 1
    assert heard[0].at - asked.at < HEARD_SECONDS
    assert find_worker(folder) is None, "it was ended before anything was promised"


def test_a_worker_goes_on_without_the_supervisor_that_heard_for_it(
    store: RunStore, config: Config, until: Until
) -> None:
    run_id = store.start(config("late 1"))
    folder = starting(store, run_id)
    supervisor = read_owners(folder).supervisor
    os.kill(supervisor.pid, signal.SIGKILL)
    assert until(run_id, "finished").attempt == 1
    assert gone(lambda: held_by(store.locations, "cpu"))


def test_a_worker_that_dies_before_it_is_ready_is_not_waited_for(store: RunStore, config: Config, until: Until) -> None:
    run_id = store.start(config("late 60"))
    worker = read_owners(starting(store, run_id)).worker
    os.kill(worker.pid, signal.SIGKILL)
    failure = until(run_id, "failed", seconds=20).failure
    assert failure.code == "worker.died"


def test_no_worker_goes_on_before_the_log_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, passed = ReadyPipe(), threading.Event()
    for name, value in pipe.environment.items():
        monkeypatch.setenv(name, str(os.dup(int(value))))
    worker = threading.Thread(target=lambda: (signal_ready(), passed.set()))
    worker.start()
    pipe.passed_on()
    asked: list[bool] = []
    assert not pipe.wait(lambda: bool(asked.append(True)))
    assert not passed.wait(0.2)
    pipe.close()
    assert passed.wait(10)
    worker.join()
    assert not any(name in os.environ for name in pipe.environment), "what it starts does not signal again"


def test_what_is_called_off_is_called_off_at_the_first_word() -> None:
    pipe = ReadyPipe()
    assert pipe.wait(lambda: True)
    pipe.close()


def test_without_a_pipe_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    signal_ready()
    monkeypatch.setenv("LUTHIER_DOOR", "987654")  # a descriptor that is none
    signal_ready()
    assert "LUTHIER_DOOR" not in os.environ
