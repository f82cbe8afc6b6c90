"""Started and stopped again and again, halted and woken at random: nothing is left, nothing grows, nothing is stuck.

The long ones by hand: ``pytest -m slow tests/unit/runs/test_runs_cycles.py``.
"""

import gc
import os
import random
import signal
import time
from contextlib import suppress

import psutil
import pytest
from living_runs import Config, Until, chosen, gone, marked

from core.machine.cards import CardSet, held_by
from core.machine.locks import is_held
from core.runs.control.queue import JobQueue
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from core.runs.process.processes import read_owners

ENDS = ("stop", "stop_now", "pause", "finish", "before it runs")
SEED = 7


def held() -> tuple[int, int, int, int]:
    """What this process, which plays the studio, holds: descriptors, threads, children, bytes."""
    gc.collect()
    me = psutil.Process()
    return me.num_fds(), me.num_threads(), len(me.children(recursive=True)), me.memory_info().rss


def of_this_root(store: RunStore) -> list[psutil.Process]:
    """Every process of these runs."""
    home = str(store.locations.home)
    return chosen(lambda process: process.pid != os.getpid() and home in " ".join(process.cmdline()))


def left(folder: JobFolder) -> None:
    """Waits until nobody works here any more."""
    assert gone(lambda: is_held(folder.supervisor_lock) or is_held(folder.events))
    assert marked(folder) == []


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
    left(store.open(run_id))
    store.delete(run_id)


@pytest.mark.parametrize("count", [2, pytest.param(500, marks=pytest.mark.slow)])
def test_cycles_leave_nothing(store: RunStore, config: Config, until: Until, count: int) -> None:
    for end in ENDS[:count]:  # what is imported and cached once
        cycle(store, config, until, end)
    assert gone(lambda: of_this_root(store))
    before = held()
    for number in range(count):
        cycle(store, config, until, ENDS[number % len(ENDS)])
    assert gone(
        lambda: of_this_root(store) or any(now > then for now, then in zip(held()[1:3], before[1:3], strict=True))
    )
    after = held()
    print(f"{count} cycles: {before} -> {after}")
    assert after[:3] == before[:3]
    assert after[3] - before[3] < 2_000_000 + 10_000 * count
    assert held_by(store.locations, CardSet()) is None
    assert not JobQueue(store.locations).cards()
    assert [path.name for path in store.locations.runs.iterdir() if path.name[0] != "."] == []


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


@pytest.mark.parametrize(("count", "steps"), [(6, 60), pytest.param(200, 2500, marks=pytest.mark.slow)])
def test_a_run_that_is_halted_at_random_is_none_the_worse(
    store: RunStore, config: Config, until: Until, count: int, steps: int
) -> None:
    """It is the run that was never halted: each step once, one attempt."""
    draw = random.Random(SEED)
    run_id = store.start(config(f"train {steps}"))
    until(run_id, "training")
    for _ in range(count):
        halt(store, run_id, draw)
    record = until(run_id, "finished", seconds=120 + steps * 0.1)
    assert [step.step for step in record.steps] == list(range(1, steps + 1))
    assert (record.attempt, record.notes) == (1, ())
    assert gone(lambda: of_this_root(store))


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
        left(store.open(run_id))
    assert gone(lambda: of_this_root(store))
    assert held_by(store.locations, CardSet()) is None
