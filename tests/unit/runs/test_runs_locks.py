"""Locks, the queue and the recognition of processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from living_runs import gone

from core.machine.disk import write_whole
from core.machine.hardware import Gpu, Machine
from core.machine.locations import Locations
from core.machine.locks import CardLock, FileLock, held_by, is_held, locked
from core.runs.control.queue import JobQueue, Turn, card_wanted
from core.runs.folder.job_folder import JobFolder
from core.runs.process.launch import inherited_lock
from core.runs.process.processes import (
    MARK,
    Identity,
    Owners,
    end_tree,
    find_worker,
    identify,
    read_owners,
    write_owners,
)

MACHINE = Machine((), 2, 0, 0, None, "Linux", False)
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def runs(locations: Locations) -> Iterator[list[FileLock]]:
    """Three runs a, b, c in the queue whose supervisors live, by their locks."""
    locks = []
    for letter in "abc":
        folder = JobFolder(locations.runs / name(letter))
        folder.path.mkdir()
        locks.append(FileLock(folder.supervisor_lock))
        locks[-1].acquire()
        JobQueue(locations).add(folder.name)
    yield locks
    for lock in locks:
        lock.release()


def name(letter: str) -> str:
    return f"2026-11-20_2243_{letter}_k3f9"


def test_a_card_has_one_holder_and_tells_who(locations: Locations) -> None:
    first, second = CardLock(locations, "gpu-1"), CardLock(locations, "gpu-1")
    assert held_by(locations, "gpu-1") is None
    assert first.acquire(wait=False, holder=name("a"))
    assert not second.acquire(wait=False)
    assert held_by(locations, "gpu-1") == name("a")
    assert CardLock(locations, "gpu-2").acquire(wait=False)
    first.release()
    assert second.acquire(wait=True, holder="Try")
    threading.Timer(0.3, second.release).start()
    assert not first.acquire(wait=False)
    assert first.acquire(wait=False, holder="b", seconds=10.0)
    first.release()
    assert second.acquire(wait=False, holder="Try")
    assert held_by(locations, "gpu-1") == "Try"
    second.release()
    assert held_by(locations, "gpu-1") is None


def test_a_lock_lives_on_in_the_child_that_inherited_it(locations: Locations) -> None:
    card = CardLock(locations, "cpu")
    assert card.acquire(wait=False, holder=name("a"))
    heir = subprocess.Popen(SLEEP, pass_fds=[card.fileno()])
    stranger = subprocess.Popen(SLEEP)
    card.release()
    assert held_by(locations, "cpu") == name("a")
    heir.kill()
    heir.wait()
    assert held_by(locations, "cpu") is None
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


def test_the_queue_keeps_its_order(locations: Locations, runs: list[FileLock]) -> None:
    queue = JobQueue(locations)
    assert queue.waiting() == [name("a"), name("b"), name("c")]
    queue.add(name("c"), head=True)
    queue.add(name("c"), head=True)
    assert queue.waiting() == [name("c"), name("a"), name("b")]
    queue.remove(name("a"))
    queue.remove(name("a"))
    assert queue.waiting() == [name("c"), name("b")]
    assert card_wanted(locations, "cpu")


def test_the_dead_are_passed_over_and_dropped(locations: Locations, runs: list[FileLock]) -> None:
    queue = JobQueue(locations)
    runs[0].release()
    assert queue.first_living("cpu") == name("b")
    assert queue.waiting() == [name("b"), name("c")]
    runs[1].release()
    runs[2].release()
    assert queue.first_living("cpu") is None
    assert not card_wanted(locations, "cpu")


def test_a_waiting_run_is_moved_among_the_living(locations: Locations, runs: list[FileLock]) -> None:
    queue = JobQueue(locations)
    assert queue.move(name("c"), 0)
    assert queue.order() == [name("c"), name("a"), name("b")]
    assert queue.move(name("c"), 1)
    assert queue.order() == [name("a"), name("c"), name("b")]
    assert queue.move(name("a"), 99)
    assert queue.move(name("b"), -3)
    assert queue.order() == [name("b"), name("c"), name("a")]
    runs[1].release()  # b died: no place of its own any more
    assert queue.move(name("a"), 0)
    assert queue.order() == queue.waiting() == [name("a"), name("c")]
    assert not queue.move(name("b"), 0)
    queue.remove(name("c"))  # it took the card while somebody dragged it
    assert not queue.move(name("c"), 0)
    assert queue.order() == [name("a")]


def test_who_waits_stands_in_the_queue_again_when_its_file_was_lost(locations: Locations, runs: list[FileLock]) -> None:
    turn, card = Turn(locations, MACHINE, name("b")), CardLock(locations, "cpu")
    locations.queue.unlink()
    assert turn.take(card)
    card.release()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"waiting": 3}', '{"waiting": [1, "../../etc"]}'])
def test_a_damaged_queue_is_an_empty_one(locations: Locations, text: str) -> None:
    locations.queue.write_text(text)
    assert JobQueue(locations).waiting() == []
    JobQueue(locations).add(name("a"))
    assert json.loads(locations.queue.read_text()) == {"waiting": [name("a")]}


def test_many_change_the_queue_at_once_and_none_is_lost(locations: Locations) -> None:
    letters = "abcdefghijkl"
    threads = [threading.Thread(target=JobQueue(locations).add, args=[name(letter)]) for letter in letters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(JobQueue(locations).waiting()) == [name(letter) for letter in letters]


def test_a_turn_comes_when_first_and_free(locations: Locations, runs: list[FileLock]) -> None:
    card, other = CardLock(locations, "cpu"), CardLock(locations, "cpu")
    first, second = Turn(locations, MACHINE, name("a")), Turn(locations, MACHINE, name("b"))
    second.join()
    assert JobQueue(locations).waiting() == [name("a"), name("b"), name("c")]
    assert not second.take(card)
    assert second.reason() == f"run {name('a')} is before it in the queue"
    assert first.reason() == ""
    other.acquire(wait=False, holder="Try")
    assert not first.take(card)
    assert first.reason() == "Try holds the CPU"
    other.release()
    assert first.take(card)
    assert second.reason() == f"run {name('a')} holds the CPU"
    assert JobQueue(locations).waiting() == [name("b"), name("c")]
    card.release()


def test_a_run_waits_behind_those_of_its_own_card_only(locations: Locations, runs: list[FileLock]) -> None:
    cards = {letter: f"gpu-{1 if letter == 'b' else 0}" for letter in "abc"}
    queue = JobQueue(locations)
    assert queue.first_living("gpu-1") == name("a"), "whose card is not known yet waits for any"
    for letter, card in cards.items():
        queue.waits_for(name(letter), card)
    assert queue.first_living("gpu-0") == name("a")
    assert queue.first_living("gpu-1") == name("b")
    assert not card_wanted(locations, "cpu")
    on_second = replace(MACHINE, gpus=(Gpu(1, "1", "x", 1, 1, (8, 6)),))
    turn, card = Turn(locations, on_second, name("b")), CardLock(locations, "gpu-1")
    assert turn.take(card), "it does not wait behind the first card's runs"
    assert queue.cards() == {name("a"): "gpu-0", name("c"): "gpu-0"}
    queue.add(name("c"), head=True)
    assert queue.cards() == {name("c"): "gpu-0", name("a"): "gpu-0"}
    card.release()


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
