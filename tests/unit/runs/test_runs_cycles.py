"""Started and stopped again and again, halted and woken at random: nothing is left, nothing grows, nothing is stuck.

The long ones by hand: ``pytest -m slow tests/unit/runs/test_runs_cycles.py``.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil
import pytest
from test_runs_supervisor import gone, marked

from core.contract.config import RunConfig
from core.machine.locks import held_by, is_held
from core.runs.control.queue import JobQueue
from core.runs.control.store import RunStore
from core.runs.process.processes import read_owners
from core.runs.record.job_record import RunRecord

Config = Callable[[str], RunConfig]
Until = Callable[..., RunRecord]
ENDS = ("stop", "stop_now", "pause", "finish", "before it runs")
SEED = 7


@dataclass(frozen=True)
class Held:
    """What this process, which plays the studio, holds."""

    resident_bytes: int
    descriptors: int
    threads: int
    children: int

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        process = psutil.Process()
        return cls(
            process.memory_info().rss, process.num_fds(), process.num_threads(), len(process.children(recursive=True))
        )


def of_this_root(store: RunStore) -> list[str]:
    """Every process of these runs, zombies among them, by its command line."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and str(store.locations.home) in " ".join(process.cmdline()):
                found.append(" ".join(process.cmdline()))
    return found


def cycle(store: RunStore, config: Config, until: Until, end: str) -> None:
    run_id = store.start(config("train 2" if end == "finish" else "train 100000"))
    if end == "before it runs":
        store.stop_now(run_id)
        until(run_id, "stopped")
    elif end == "finish":
        until(run_id, "finished")
    else:
        until(run_id, "training")
        getattr(store, end)(run_id)
        until(run_id, "paused" if end == "pause" else "stopped")
    folder = store.open(run_id)
    assert gone(lambda: is_held(folder.supervisor_lock) or is_held(folder.events)), end
    assert marked(folder) == []
    store.delete(run_id)


def cycles(store: RunStore, config: Config, until: Until, count: int) -> None:
    for number in range(5):  # what is imported and cached once
        cycle(store, config, until, ENDS[number])
    assert gone(lambda: bool(of_this_root(store)))
    before = Held.now()
    for number in range(count):
        cycle(store, config, until, ENDS[number % len(ENDS)])
    assert gone(lambda: bool(of_this_root(store)) or Held.now().threads > before.threads)
    after = Held.now()
    print(f"{count} cycles: {before} -> {after}")
    assert (after.descriptors, after.threads, after.children) == (
        before.descriptors, before.threads, before.children,
    )  # fmt: skip
    assert after.resident_bytes - before.resident_bytes < 2_000_000 + 10_000 * count
    assert held_by(store.locations, "cpu") is None
    assert JobQueue(store.locations).waiting() == []
    assert [path.name for path in store.locations.runs.iterdir() if path.name[0] != "."] == []


def test_ten_cycles_leave_nothing(store: RunStore, config: Config, until: Until) -> None:
    cycles(store, config, until, 5)


@pytest.mark.slow
def test_five_hundred_cycles_leave_nothing(store: RunStore, config: Config, until: Until) -> None:
    cycles(store, config, until, 500)


def halt(store: RunStore, run_id: str, draw: random.Random) -> None:
    """Worker, supervisor or both sleep for a moment, as they do when a machine is closed and opened again."""
    owners = read_owners(store.open(run_id))
    chosen = draw.choice([[owners.worker], [owners.supervisor], [owners.worker, owners.supervisor]])
    living = [who.pid for who in chosen if who is not None and who.alive()]
    for number, pause in ((signal.SIGSTOP, draw.uniform(0.0, 0.4)), (signal.SIGCONT, draw.uniform(0.0, 0.2))):
        for pid in living:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(pause)


def halts(store: RunStore, config: Config, until: Until, count: int, steps: int) -> None:
    """A run that is halted at random moments is the run that was never halted: each step once, one attempt."""
    draw = random.Random(SEED)
    run_id = store.start(config(f"train {steps}"))
    until(run_id, "training")
    for _ in range(count):
        halt(store, run_id, draw)
    record = until(run_id, "finished", seconds=120 + steps * 0.1)
    assert [step.step for step in record.steps] == list(range(1, steps + 1))
    assert (record.attempt, record.notes) == (1, ())
    assert gone(lambda: bool(of_this_root(store)))


def test_a_run_that_is_halted_at_random_is_none_the_worse(store: RunStore, config: Config, until: Until) -> None:
    halts(store, config, until, count=6, steps=60)


@pytest.mark.slow
def test_two_hundred_halts_are_none_the_worse(store: RunStore, config: Config, until: Until) -> None:
    halts(store, config, until, count=200, steps=2500)


@pytest.mark.slow
def test_halted_while_it_starts_and_while_it_is_stopped(store: RunStore, config: Config, until: Until) -> None:
    draw = random.Random(SEED)
    for number in range(60):
        run_id = store.start(config("train 100000"))
        time.sleep(draw.uniform(0.0, 0.8))
        halt(store, run_id, draw)
        verb = draw.choice(["stop", "stop_now", "pause"])
        getattr(store, verb)(run_id)
        halt(store, run_id, draw)
        record = until(run_id, "paused" if verb == "pause" else "stopped", seconds=40)
        assert len(record.acknowledged) == 1, f"cycle {number}"
        folder = store.open(run_id)
        assert gone(lambda path=folder: is_held(path.supervisor_lock) or is_held(path.events))  # type: ignore[misc]
    assert gone(lambda: bool(of_this_root(store)))
    assert held_by(store.locations, "cpu") is None
