"""Locks, the queue and the recognition of processes."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from living_runs import gone

from core.contract.config import RunConfig
from core.machine.cards import CardLock, CardSet, held_by
from core.machine.disk import write_whole
from core.machine.hardware import Gpu, Machine
from core.machine.locations import Locations
from core.machine.locks import FileLock, is_held, locked
from core.runs.control.gpu_lease import TRY, spare_first
from core.runs.control.queue import JobQueue, card_wanted
from core.runs.control.takeover import take_over
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config
from core.runs.process.processes import (
    MARK,
    Identity,
    Owners,
    end_tree,
    find_worker,
    identify,
    inherited_lock,
    read_owners,
    write_owners,
)
from core.runs.supervise.worker_process import chosen_machine

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
ONE = CardSet(("GPU-1",))
A, B, C = (f"2026-11-20_2243_{letter}_k3f9" for letter in "abc")


@pytest.fixture
def runs(locations: Locations) -> Iterator[list[FileLock]]:
    """Three runs a, b, c in the queue whose supervisors live, by their locks."""
    locks = []
    for name in (A, B, C):
        folder = JobFolder(locations.runs / name)
        folder.path.mkdir()
        locks.append(FileLock(folder.supervisor_lock))
        locks[-1].acquire()
        JobQueue(locations).add(folder.name)
    yield locks
    for lock in locks:
        lock.release()


@pytest.fixture
def queue(locations: Locations) -> JobQueue:
    return JobQueue(locations)


def test_a_card_has_one_holder_and_tells_who(locations: Locations) -> None:
    first, second = CardLock(locations, ONE), CardLock(locations, ONE)
    assert held_by(locations, ONE) is None
    assert first.acquire(A)
    assert not second.acquire("Try")
    assert held_by(locations, ONE) == A
    assert CardLock(locations, CardSet(("GPU-2",))).acquire(B), "another card is free"
    first.release()
    assert second.acquire("Try")
    assert held_by(locations, ONE) == "Try"
    second.release()
    assert held_by(locations, ONE) is None


def test_several_cards_are_one_value_locked_queued_and_launched_together(
    locations: Locations, queue: JobQueue, runs: list[FileLock]
) -> None:
    pair = CardSet(("GPU-2", "GPU-1"))
    assert (CardSet.parse(str(pair)).locks, CardSet.parse(str(CardSet()))) == (pair.locks, CardSet())
    assert [pair.environment({}, rank)["CUDA_VISIBLE_DEVICES"] for rank in (0, 1)] == ["GPU-2", "GPU-1"]
    both, one = CardLock(locations, pair), CardLock(locations, ONE)
    assert one.acquire("Try")
    assert (both.acquire(A), held_by(locations, pair)) == (False, "Try")
    assert held_by(locations, CardSet(("GPU-2",))) is None, "all cards or none"
    one.release()
    queue.waits_for(A, pair)
    queue.waits_for(B, ONE)
    assert queue.reason(B, ONE) == f"run {A} is before it in the queue"
    assert queue.take_turn(A, pair, both)
    assert not one.acquire(B)
    assert len(both.filenos()) == 2
    both.release()


def test_who_needs_any_card_takes_one_that_no_run_has(locations: Locations) -> None:
    gpus = tuple(Gpu(at, f"GPU-{at}", "NVIDIA GeForce RTX 3060", 12, 11, (8, 6)) for at in range(3))
    machine = Machine(gpus, 8, 64, 60, None, "Linux", wsl=False)

    def first(own: str | None = None) -> str:
        return spare_first(machine, locations, own).cards.ids[0]

    assert first() == "GPU-0"
    training, trying = CardLock(locations, CardSet(("GPU-0", "GPU-1"))), CardLock(locations, CardSet(("GPU-2",)))
    assert training.acquire(A)
    assert first() == "GPU-2"
    assert trying.acquire(TRY)
    assert first(TRY) == "GPU-2", "it is its own"
    assert first() == "GPU-0", "it is another program's"
    training.release()
    assert first(TRY) == "GPU-0", "a free one before its own"
    assert training.acquire(A)
    trying.release()
    small = replace(gpus[2], name="NVIDIA GeForce GT 1030", total_bytes=2, compute_capability=(6, 1))
    assert spare_first(replace(machine, gpus=(*gpus[:2], small)), locations).cards.ids[0] == "GPU-0", "of another kind"
    assert trying.acquire(B)
    assert first() == "GPU-0", "none is spare: who has the first is said"
    trying.release()
    training.release()
    assert spare_first(replace(machine, gpus=gpus[:1]), locations).cards.ids == ("GPU-0",)


def test_a_lock_lives_on_in_the_child_that_inherited_it(locations: Locations) -> None:
    card = CardLock(locations, CardSet())
    assert card.acquire(A)
    heir = subprocess.Popen(SLEEP, pass_fds=card.filenos())
    stranger = subprocess.Popen(SLEEP)
    card.release()
    assert held_by(locations, CardSet()) == A
    heir.kill()
    heir.wait()
    assert held_by(locations, CardSet()) is None
    stranger.kill()
    stranger.wait()


def test_waiting_ends_when_the_lock_is_free(tmp_path: Path) -> None:
    lock, other = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert lock.acquire()
    threading.Timer(0.3, lock.release).start()
    assert other.acquire(10.0)
    assert other.acquire()  # ours already
    other.release()
    with locked(tmp_path / "lock"):
        assert is_held(tmp_path / "lock")
    assert not is_held(tmp_path / "lock")
    assert not is_held(tmp_path / "missing")


def test_a_supervisor_goes_on_with_the_lock_that_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = JobFolder(tmp_path)
    given = FileLock(folder.supervisor_lock)
    given.acquire()
    assert inherited_lock(folder) is None
    monkeypatch.setenv("LUTHIER_SUPERVISOR_LOCK", str(os.dup(given.fileno())))
    mine = inherited_lock(folder)
    given.release()
    assert is_held(folder.supervisor_lock)
    assert not os.get_inheritable(mine.fileno())
    mine.release()
    with (tmp_path / "other").open("w") as other:
        for wrong in (str(other.fileno()), "999", "x"):
            monkeypatch.setenv("LUTHIER_SUPERVISOR_LOCK", wrong)
            fresh = inherited_lock(folder)
            assert fresh.fileno() != other.fileno()
            fresh.release()


# ── the queue ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_queue_keeps_its_order_and_the_dead_are_passed_over(
    locations: Locations, queue: JobQueue, runs: list[FileLock]
) -> None:
    assert list(queue.cards()) == [A, B, C]
    queue.add(C, head=True)
    queue.add(C, head=True)
    assert list(queue.cards()) == [C, A, B]
    queue.remove(B)
    queue.remove(B)
    assert list(queue.cards()) == [C, A]
    runs[2].release()
    assert queue.first_living(CardSet()) == A
    assert list(queue.cards()) == [A]
    assert card_wanted(locations, CardSet())
    runs[0].release()
    assert queue.first_living(CardSet()) is None
    assert not card_wanted(locations, CardSet())


def test_a_waiting_run_is_moved_among_the_living(queue: JobQueue, runs: list[FileLock]) -> None:
    assert queue.move(C, 0)
    assert queue.order() == [C, A, B]
    assert queue.move(C, 1)
    assert queue.order() == [A, C, B]
    assert queue.move(A, 99)
    assert queue.move(B, -3)
    assert queue.order() == [B, C, A]
    runs[1].release()  # b died: no place of its own any more
    assert queue.move(A, 0)
    assert queue.order() == list(queue.cards()) == [A, C]
    assert not queue.move(B, 0)
    queue.remove(C)  # it took the card while somebody dragged it
    assert not queue.move(C, 0)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"waiting": 3}', '{"waiting": [1, "../../etc"]}'])
def test_a_damaged_queue_is_an_empty_one(locations: Locations, queue: JobQueue, text: str) -> None:
    locations.queue.write_text(text)
    assert not queue.cards()
    queue.add(A)
    assert json.loads(locations.queue.read_text()) == {"waiting": [A]}


def test_many_change_the_queue_at_once_and_none_is_lost(locations: Locations, queue: JobQueue) -> None:
    names = [A.replace("_a_", f"_{letter}_") for letter in "abcdefghijkl"]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(JobQueue(locations).add, names))
    assert sorted(queue.cards()) == names


def test_a_turn_comes_when_first_and_free(locations: Locations, queue: JobQueue, runs: list[FileLock]) -> None:
    cpu = CardSet()
    lock, other = CardLock(locations, cpu), CardLock(locations, cpu)
    assert not queue.take_turn(B, cpu, lock)
    assert queue.reason(B, cpu) == f"run {A} is before it in the queue"
    assert queue.reason(A, cpu) == ""
    other.acquire("Try")
    assert not queue.take_turn(A, cpu, lock)
    assert queue.reason(A, cpu) == "Try holds the CPU"
    other.release()
    assert queue.take_turn(A, cpu, lock)
    assert queue.reason(B, cpu) == f"run {A} holds the CPU"
    assert list(queue.cards()) == [B, C]
    lock.release()
    locations.queue.unlink()
    assert queue.take_turn(B, cpu, lock), "who waits stands in the queue again when its file was lost"
    lock.release()


def test_a_run_waits_behind_those_of_its_own_card_only(
    locations: Locations, queue: JobQueue, runs: list[FileLock]
) -> None:
    other = CardSet(("GPU-2",))
    assert queue.first_living(ONE) == A, "whose card is not known yet waits for any"
    for name, card in ((A, other), (B, ONE), (C, other)):
        queue.waits_for(name, card)
    assert queue.first_living(other) == A
    assert queue.first_living(ONE) == B
    assert not card_wanted(locations, CardSet())
    lock = CardLock(locations, ONE)
    assert queue.take_turn(B, ONE, lock), "it does not wait behind the other card's runs"
    assert list(queue.cards().items()) == [(A, other), (C, other)]
    queue.add(C, head=True)
    assert list(queue.cards().items()) == [(C, other), (A, other)]
    assert json.loads(locations.queue.read_text())["cards"] == {A: "gpu-GPU-2", C: "gpu-GPU-2"}
    lock.release()


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_process_is_known_by_pid_and_birth(tmp_path: Path) -> None:
    child = subprocess.Popen(SLEEP)
    known = identify(child.pid)
    assert known.alive()
    assert not Identity(known.pid, known.created - 5, known.boot).alive()
    assert not Identity(known.pid, known.created, "another boot").alive()
    child.kill()
    assert gone(known.alive), "a zombie is dead"
    child.wait()
    assert identify(child.pid) is None
    folder = JobFolder(tmp_path)
    assert read_owners(folder) == Owners()
    write_owners(folder, Owners(known, None, 3))
    assert read_owners(folder) == Owners(known, None, 3)
    for rubbish in ("", "[]", '{"supervisor": {"pid": 1, "wrong": 2}}', '{"supervisor": 5}'):
        write_whole(folder.supervisor_json, rubbish)
        assert read_owners(folder) == Owners()


def test_a_worker_is_found_by_its_mark_where_nobody_wrote_it_down(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    assert find_worker(folder) is None
    child = subprocess.Popen(SLEEP, env={**os.environ, MARK: str(folder.path)}, start_new_session=True)
    known = identify(child.pid)
    assert gone(lambda: find_worker(folder) is None), "its environment is there a moment after it is started"
    assert find_worker(folder) == known
    bystander = subprocess.Popen(SLEEP, env={**os.environ, MARK: "/another/job"}, start_new_session=True)
    end_tree(folder, known, 0.0)
    assert not known.alive()  # a zombie until its parent, this test, asks for it
    child.wait()
    assert bystander.poll() is None
    assert find_worker(folder) is None
    bystander.kill()
    bystander.wait()


def test_a_run_that_stopped_goes_on_with_other_cards(locations: Locations) -> None:
    """As a correction in its log, which names the settings of the next attempt; run.yaml stays."""
    folder = JobFolder(locations.runs / A)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.run_yaml.write_text(dump_config(RunConfig()), encoding="utf-8")
    with take_over(folder) as dead:
        assert dead
        assert (dead.moved(None), dead.moved("")) == ((), ())
        dead.say(2, *dead.moved("0,1"))
    bare = Machine((), 2, 0, 0, None, "Linux", False)
    machine, unfit = chosen_machine(folder, bare)
    assert (machine.cards.ranks, unfit) == (2, None)
    card = replace(bare, gpus=(Gpu(0, "GPU-1", "RTX", None, None, None),))
    assert chosen_machine(folder, card)[1].code == "card.missing"  # type: ignore[union-attr]
    assert folder.config().train.cards == ""
