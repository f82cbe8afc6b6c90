"""The supervisor with a small worker, from start to every kind of end: real processes, and supervisors in threads where
only what they decide is looked at."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from living_runs import Config, RunsHere, Until, bereaved, chosen, codes, gone, marked, run

from core.contract.commands import parse_command
from core.contract.errors import RunError
from core.contract.events import Starting
from core.machine.cards import CardSet, held_by
from core.machine.locations import REPOSITORY
from core.machine.locks import is_held
from core.runs.control.queue import JobQueue
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import ExportRequest, JobFolder
from core.runs.log.events_log import EventTail
from core.runs.log.handover import ReadyPipe, signal_ready
from core.runs.process.processes import find_worker, read_owners
from core.runs.record.job_record import RunRecord
from tests.bare_run import bare_run


def test_a_run_goes_from_start_to_finished(store: RunStore, config: Config, until: Until) -> None:
    run_id = store.start(config("train 5"))
    record = until(run_id, "finished")
    assert [step.step for step in record.steps] == [1, 2, 3, 4, 5]
    assert (record.attempt, record.last_step, record.hello is not None) == (1, 5, True)
    folder = store.open(run_id)
    assert gone(lambda: is_held(folder.supervisor_lock))
    assert held_by(store.locations, CardSet()) is None
    assert not JobQueue(store.locations).cards()
    with pytest.raises(RunError, match="finished and cannot be resumed"):
        store.resume(run_id)


def test_a_worker_that_dies_is_said_in_one_line(store: RunStore, config: Config) -> None:
    record = run(bare_run(store, config("kill 9")), store.locations)
    assert (record.state, record.failure.code) == ("failed", "worker.died")
    assert "memory" in record.failure.message
    record = run(bare_run(store, config("exit 3")), store.locations)
    assert record.state == "failed"
    assert "exit code 3" in record.failure.message
    assert "\n" not in record.failure.message + record.failure.hint


def answered_after(folder: JobFolder, record: RunRecord) -> float:
    """Seconds between the command's own time and that of the run's last word: what a run takes, not what looking for it
    takes."""
    commands = [parse_command(line) for line in folder.commands.read_bytes().splitlines()]
    assert commands[-1] is not None
    assert record.ended_at is not None
    return record.ended_at - commands[-1].at


def test_stop_now_ends_the_whole_tree(here: RunsHere, config: Config, until: Until) -> None:
    run_id = here.start(config("tree"))
    until(run_id, "training")
    assert len(marked(here.open(run_id))) == 3
    here.stop_now(run_id)
    record = until(run_id, "stopped")
    assert answered_after(here.open(run_id), record) < 3.0
    assert marked(here.open(run_id)) == []
    assert len(record.acknowledged) == 1
    assert gone(lambda: held_by(here.locations, CardSet()))


def test_a_run_at_work_is_discarded_with_all_that_it_saved(store: RunStore, config: Config, until: Until) -> None:
    run_id = store.start(config("train 100000"))
    until(run_id, "training")
    folder = store.open(run_id)
    store.discard(run_id)
    assert not folder.path.exists()
    assert store.list() == []
    assert gone(lambda: bool(marked(folder))), "no process of it is left"
    with pytest.raises(RunError, match=run_id):
        store.discard(run_id)


# ── the queue ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_runs_queue_are_rearranged_and_go_on_when_one_fails(here: RunsHere, config: Config, until: Until) -> None:
    first = here.start(config("train 100000"))
    until(first, "training")
    fails, called_off, stops, last = (here.start(config(what)) for what in ("exit 3", "train 4", "train 2", "train 3"))
    assert gone(lambda: not here.record(last).queued_reason)
    assert here.record(last).queued_reason == f"run {first} holds the CPU"
    assert here.queue() == list(JobQueue(here.locations).cards()) == [fails, called_off, stops, last]
    assert set(here.living()) == {first, fails, called_off, stops, last}
    here.move(last, 0)
    assert here.queue() == [last, fails, called_off, stops]
    here.move(last, 3)
    here.pause(called_off)
    until(called_off, "paused")
    here.stop(stops)
    assert answered_after(here.open(stops), until(stops, "stopped")) < 1.0
    assert here.queue() == [fails, last]
    with pytest.raises(RunError, match="does not wait"):
        here.move(first, 0)
    here.stop(first)
    assert until(first, "stopped").checkpoints
    with pytest.raises(RunError, match="cannot be stopped"):
        here.stop(first)
    assert until(fails, "failed").failure is not None
    assert until(last, "finished").last_step == 3
    assert here.record(called_off).state == "paused"  # it comes back when somebody says so, and not before


def test_a_paused_run_frees_the_cpu_and_goes_on_before_the_others(
    store: RunStore, here: RunsHere, config: Config, until: Until
) -> None:
    first = store.start(config("train 60"))
    until(first, "training")
    store.pause(first)
    paused = until(first, "paused")
    second = here.start(config("train 100000"))
    until(second, "training")
    third = here.start(config("train 1"))
    store.resume(first)
    assert list(JobQueue(store.locations).cards()) == [first, third]
    store.stop_now(second)
    done, last = until(first, "finished"), until(third, "finished")
    assert done.attempt == 2
    assert [step.step for step in done.steps] == list(range(1, 61))
    started = [event for event in EventTail(store.open(first).events).read() if isinstance(event, Starting)]
    assert [event.resumed_step for event in started] == [0, paused.last_step]
    assert last.started_at > done.ended_at


def test_eight_starts_of_one_draft_are_one_run(here: RunsHere, config: Config, until: Until) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lambda _: here.start(config("train 2"), "draft-1"), range(8)))
    assert len(ids) == 1
    run_id = ids.pop()
    assert until(run_id, "finished").attempt == 1
    assert here.start(config("train 2"), "draft-1") == run_id
    assert len(here.list()) == 1
    other = here.start(config("train 2"), "draft-2")
    assert other != run_id
    until(other, "finished")
    here.delete(other)  # its processes are still leaving
    assert [run.run_id for run in here.list()] == [run_id]


# ── supervisors that die, and runs that nobody works on ──────────────────────────────────────────────────────────────


def test_a_worker_without_supervisor_is_adopted_and_the_death_of_both_is_lost(
    store: RunStore, here: RunsHere, config: Config, until: Until
) -> None:
    run_id = store.start(config("train 100000"))
    until(run_id, "training")
    folder = store.open(run_id)
    first, worker = bereaved(folder)
    assert held_by(store.locations, CardSet()) == run_id
    assert RunStore(store.locations, store._command).adopt() == [run_id]
    assert gone(lambda: read_owners(folder).supervisor in (None, first))
    second, _ = bereaved(folder)
    steps = store.record(run_id).last_step  # a look is enough: a new supervisor is on its way
    assert gone(lambda: read_owners(folder).supervisor == second)
    assert gone(lambda: store.record(run_id).last_step <= steps)
    assert (store.record(run_id).state, store.record(run_id).attempt, worker.alive()) == ("training", 1, True)
    bereaved(folder)
    os.kill(worker.pid, signal.SIGKILL)
    assert gone(lambda: is_held(folder.events) or is_held(folder.supervisor_lock))
    assert store.record(run_id).state == "lost"
    assert [run.state for run in store.list()] == ["lost"]
    assert store.living() == []
    here.resume(run_id)
    assert until(run_id, "training").attempt == 2
    here.stop_now(run_id)
    until(run_id, "stopped")


def test_a_lost_run_is_stopped_by_the_store_itself(store: RunStore, config: Config) -> None:
    folder = bare_run(store, config("train 5"))
    assert store.record(folder.name).state == "lost"
    store.stop(folder.name)
    assert store.record(folder.name).state == "stopped"
    store.delete(folder.name)
    assert store.list() == []
    with pytest.raises(RunError, match="found none called"):
        store.record(folder.name)


def test_a_worker_gets_a_fresh_process_as_long_as_it_gets_on(store: RunStore, config: Config) -> None:
    record = run(bare_run(store, config("restart 4")), store.locations)
    assert (record.state, record.attempt, codes(record)) == ("finished", 4, ["worker.restarted"] * 3)
    record = run(bare_run(store, config("exit 75")), store.locations)
    assert (record.state, record.attempt, record.failure.code) == ("failed", 3, "worker.restarts")


def test_an_export_is_a_job_that_does_not_wait_for_the_card(here: RunsHere, config: Config, until: Until) -> None:
    run_id = here.start(config("train 1"))
    until(run_id, "finished")
    blocker = here.start(config("train 100000"))
    until(blocker, "training")
    name = here.export(run_id, ExportRequest(name="adapter"))
    assert gone(lambda: here.export_record(run_id, name).state != "finished"), here.export_record(run_id, name)
    assert here.export_folder(run_id, name).run_folder == here.open(run_id)
    with pytest.raises(RunError, match="found none called"):
        here.export_folder(run_id, "../..")
    with pytest.raises(RunError, match="Expected a checkpoint"):
        here.export(blocker, ExportRequest(name="adapter"))
    with pytest.raises(RunError, match="cannot be deleted"):
        here.delete(blocker)
    here.stop_now(blocker)
    until(blocker, "stopped")


# ── between a worker's start and its first word its supervisor hears ─────────────────────────────────────────────────


def starting(store: RunStore, run_id: str) -> JobFolder:
    """Its worker has been started and has not said a word."""
    folder = store.open(run_id)
    assert gone(lambda: read_owners(folder).worker is None)
    return folder


@pytest.mark.parametrize("verb", ["stop", "pause"])
def test_who_calls_it_off_while_a_worker_comes_up_is_heard_at_once(
    here: RunsHere, config: Config, until: Until, verb: str
) -> None:
    run_id = here.start(config("late 60"))
    folder = starting(here, run_id)
    getattr(here, verb)(run_id)
    until(run_id, "stopped" if verb == "stop" else "paused", seconds=20)
    asked = parse_command(folder.commands.read_bytes())
    (heard,) = [event for event in EventTail(folder.events).read() if event.kind == "acknowledged"]
    assert heard.at - asked.at < 1.0
    assert find_worker(folder) is None, "it was ended before anything was promised"


@pytest.mark.parametrize(
    ("who", "name", "end"), [("supervisor", "late 1", "finished"), ("worker", "late 60", "failed")]
)
def test_while_a_worker_comes_up_neither_waits_for_a_dead_other(
    store: RunStore, config: Config, until: Until, who: str, name: str, end: str
) -> None:
    run_id = store.start(config(name))
    os.kill(getattr(read_owners(starting(store, run_id)), who).pid, signal.SIGKILL)
    record = until(run_id, end, seconds=20)
    assert record.attempt == 1
    assert end == "finished" or record.failure.code == "worker.died"
    assert gone(lambda: held_by(store.locations, CardSet()))


def test_no_worker_goes_on_before_the_log_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, passed = ReadyPipe(), threading.Event()
    for name, value in pipe.environment.items():
        monkeypatch.setenv(name, str(os.dup(int(value))))
    worker = threading.Thread(target=lambda: (signal_ready(), passed.set()))
    worker.start()
    pipe.passed_on()
    assert not pipe.wait(lambda: False)
    assert not passed.wait(0.2)
    pipe.close()
    assert passed.wait(10)
    worker.join()
    assert not any(name in os.environ for name in pipe.environment), "what it starts does not signal again"
    monkeypatch.setenv("LUTHIER_DOOR", "987654")  # a descriptor that is none: nobody waits
    signal_ready()


# ── the folder of a living run is taken away by hand ─────────────────────────────────────────────────────────────────


def processes_of(folder: JobFolder) -> list[psutil.Process]:
    """Supervisor and worker: each is told the folder as its last word."""
    return chosen(lambda process: process.cmdline()[-1:] == [str(folder.path)])


@pytest.mark.parametrize("way", [pytest.param("deleted", marks=pytest.mark.slow), "moved", "deleted while it saves"])
def test_a_run_whose_folder_is_taken_away_ends(store: RunStore, config: Config, until: Until, way: str) -> None:
    folder = store.open(store.start(config("train 100000")))
    until(folder.name, "training")
    assert len(processes_of(folder)) == 2
    if way == "moved":
        folder.path.rename(folder.path.with_name("elsewhere"))
    else:
        shutil.rmtree(folder.path, ignore_errors=True)
    if way == "deleted while it saves":
        (folder.checkpoints / "step-000005").mkdir(parents=True, exist_ok=True)
    assert gone(lambda: processes_of(folder))
    assert gone(folder.path.exists), "nor does what its worker made since stay"
    for ask in (store.stop, store.delete):
        with pytest.raises(RunError, match="none called"):
            ask(folder.name)
    assert held_by(store.locations, CardSet()) is None


def test_a_waiting_run_whose_folder_is_deleted_leaves_the_queue_alone(
    store: RunStore, here: RunsHere, config: Config, until: Until
) -> None:
    first = here.start(config("train 100000"))
    until(first, "training")
    waiting = store.open(store.start(config("train 3")))
    assert gone(lambda: store.record(waiting.name).queued_reason == "")
    shutil.rmtree(waiting.path)
    assert gone(lambda: processes_of(waiting))
    assert store.queue() == []
    before = store.locations.queue.stat().st_ino
    time.sleep(0.5)
    assert store.locations.queue.stat().st_ino == before  # nobody renames it over and over
    assert store.record(first).state == "training"


def test_a_worker_whose_supervisor_is_dead_ends_with_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    works = (
        "import sys, time; from pathlib import Path; from core.runs.folder.job_folder import JobFolder;"
        "from core.runs.folder.standing import ending_with_the_folder\n"
        "with ending_with_the_folder(JobFolder(Path(sys.argv[1]))):\n print('works', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", works, str(folder)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as worker:
        assert worker.stdout.readline() == b"works\n"
        folder.rmdir()
        assert worker.wait(20) == os.EX_NOINPUT


def test_a_run_that_cannot_be_read_is_ended_when_it_is_deleted(store: RunStore, config: Config, until: Until) -> None:
    folder = store.open(store.start(config("train 100000")))
    until(folder.name, "training")
    (folder.path / "name").symlink_to("/dev/zero")
    with pytest.raises(RunError, match="name is a link"):
        store.stop(folder.name)
    store.delete(folder.name)
    assert processes_of(folder) == []
    assert store.list() == []
