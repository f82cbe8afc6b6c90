"""Real processes: the supervisor with a small worker, from start to every kind of end."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from living_runs import Config, Until, bereaved, gone, marked

from core.contract.commands import parse_command
from core.contract.errors import RunError
from core.contract.events import Starting, Step
from core.machine.locks import held_by, is_held
from core.runs.control.queue import JobQueue
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import ExportRequest, JobFolder
from core.runs.log.events_log import EventTail
from core.runs.process.processes import read_owners
from core.runs.record.job_record import RunRecord


def test_a_run_goes_from_start_to_finished(store: RunStore, config: Config, until: Until) -> None:
    run_id = store.start(config("train 5"))
    record = until(run_id, "finished")
    assert [step.step for step in record.steps] == [1, 2, 3, 4, 5]
    assert (record.attempt, record.last_step, record.hello is not None) == (1, 5, True)
    folder = store.open(run_id)
    assert gone(lambda: is_held(folder.supervisor_lock))
    assert held_by(store.locations, "cpu") is None
    assert JobQueue(store.locations).waiting() == []
    with pytest.raises(RunError, match="finished and cannot be resumed"):
        store.resume(run_id)
    again = store.start(config("train 1"))
    until(again, "finished")
    store.delete(again)  # its processes are still leaving
    assert [run.run_id for run in store.list()] == [run_id]


def test_a_worker_that_dies_is_said_in_one_line(store: RunStore, config: Config, until: Until) -> None:
    record = until(store.start(config("kill 9")), "failed")
    assert record.failure.code == "worker.died"
    assert "memory" in record.failure.message
    record = until(store.start(config("exit 3")), "failed")
    assert "exit code 3" in record.failure.message
    assert "\n" not in record.failure.message + record.failure.hint


def test_half_a_line_of_a_killed_worker_is_cut_away(store: RunStore, config: Config, until: Until) -> None:
    run_id = store.start(config("torn"))
    record = until(run_id, "failed")
    assert "step 3" in record.failure.hint
    lines = store.open(run_id).events.read_bytes().splitlines()
    assert all(line.endswith(b"}") for line in lines)
    assert not any(isinstance(event, Step) for event in EventTail(store.open(run_id).events).read())


def answered_after(folder: JobFolder, record: RunRecord) -> float:
    """Seconds between the command's own time and that of the run's last word: what a run takes, not what looking for it
    takes."""
    commands = [parse_command(line) for line in folder.commands.read_bytes().splitlines()]
    assert commands[-1] is not None
    assert record.ended_at is not None
    return record.ended_at - commands[-1].at


def test_stop_now_ends_the_whole_tree(store: RunStore, config: Config, until: Until) -> None:
    run_id = store.start(config("tree"))
    until(run_id, "training")
    assert len(marked(store.open(run_id))) == 3
    store.stop_now(run_id)
    record = until(run_id, "stopped")
    assert answered_after(store.open(run_id), record) < 3.0
    assert marked(store.open(run_id)) == []
    assert len(record.acknowledged) == 1
    assert held_by(store.locations, "cpu") is None or gone(lambda: held_by(store.locations, "cpu") is not None)


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


def test_runs_queue_and_a_waiting_one_stops_within_a_second(store: RunStore, config: Config, until: Until) -> None:
    first = store.start(config("train 100000"))
    until(first, "training")
    second, third = store.start(config("train 2")), store.start(config("train 3"))
    assert gone(lambda: not store.record(third).queued_reason)
    assert store.record(third).queued_reason == f"run {first} holds the CPU"
    assert JobQueue(store.locations).waiting() == [second, third]
    assert set(store.living()) == {first, second, third}
    store.stop(second)
    assert answered_after(store.open(second), until(second, "stopped")) < 1.0
    store.stop(first)
    assert until(first, "stopped").checkpoints
    assert until(third, "finished").last_step == 3
    with pytest.raises(RunError, match="cannot be stopped"):
        store.stop(first)


def test_the_queue_is_rearranged_and_goes_on_when_one_fails(store: RunStore, config: Config, until: Until) -> None:
    first = store.start(config("train 100000"))
    until(first, "training")
    fails, called_off, last = (store.start(config(what)) for what in ("exit 3", "train 4", "train 3"))
    assert gone(lambda: store.queue() != [fails, called_off, last])
    store.move(last, 0)
    assert store.queue() == [last, fails, called_off]
    store.move(last, 2)
    store.pause(called_off)
    until(called_off, "paused")
    assert store.queue() == [fails, last]
    with pytest.raises(RunError, match="does not wait"):
        store.move(first, 0)
    store.stop_now(first)
    assert until(fails, "failed").failure is not None
    assert until(last, "finished").last_step == 3
    assert store.record(called_off).state == "paused"  # it comes back when somebody says so, and not before


def test_a_paused_run_frees_the_cpu_and_goes_on_before_the_others(
    store: RunStore, config: Config, until: Until
) -> None:
    first = store.start(config("train 60"))
    until(first, "training")
    store.pause(first)
    paused = until(first, "paused")
    second = store.start(config("train 100000"))
    until(second, "training")
    third = store.start(config("train 1"))
    store.resume(first)
    assert JobQueue(store.locations).waiting() == [first, third]
    store.stop(second)
    done, last = until(first, "finished"), until(third, "finished")
    assert done.attempt == 2
    assert [step.step for step in done.steps] == list(range(1, 61))
    started = [event for event in EventTail(store.open(first).events).read() if isinstance(event, Starting)]
    assert [event.resumed_step for event in started] == [0, paused.last_step]
    assert last.started_at is not None
    assert done.ended_at is not None
    assert last.started_at > done.ended_at


def test_a_worker_without_supervisor_trains_on_and_is_adopted(store: RunStore, config: Config, until: Until) -> None:
    run_id = store.start(config("train 100000"))
    until(run_id, "training")
    folder = store.open(run_id)
    supervisor, worker = bereaved(folder)
    assert held_by(store.locations, "cpu") == run_id
    assert RunStore(store.locations, store._command).adopt() == [run_id]
    assert gone(lambda: read_owners(folder).supervisor in (None, supervisor))
    assert worker.alive()
    steps = store.record(run_id).last_step
    assert gone(lambda: store.record(run_id).last_step <= steps)
    store.stop_now(run_id)
    assert until(run_id, "stopped").attempt == 1
    assert not worker.alive()


def test_a_look_adopts_and_the_death_of_both_is_lost(store: RunStore, config: Config, until: Until) -> None:
    run_id = store.start(config("train 100000"))
    until(run_id, "training")
    folder = store.open(run_id)
    supervisor, worker = bereaved(folder)
    assert store.record(run_id).state == "training"  # and a new supervisor is on its way
    assert gone(lambda: read_owners(folder).supervisor == supervisor)
    second = read_owners(folder).supervisor
    os.kill(second.pid, signal.SIGKILL)
    os.kill(worker.pid, signal.SIGKILL)
    assert gone(lambda: is_held(folder.events) or is_held(folder.supervisor_lock))
    assert store.record(run_id).state == "lost"
    assert [run.state for run in store.list()] == ["lost"]
    assert store.living() == []
    store.resume(run_id)
    assert until(run_id, "training").attempt == 2
    store.stop_now(run_id)
    until(run_id, "stopped")


def test_a_lost_run_is_stopped_by_the_store_itself(store: RunStore, config: Config) -> None:
    folder = store.create(config("train 5"))
    assert store.record(folder.name).state == "lost"
    store.stop(folder.name)
    record = store.record(folder.name)
    assert record.state == "stopped"
    store.delete(folder.name)
    assert store.list() == []
    with pytest.raises(RunError, match="found none called"):
        store.record(folder.name)


def test_the_same_draft_starts_one_run(store: RunStore, config: Config, until: Until) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lambda _: store.start(config("train 2"), "draft-1"), range(8)))
    assert len(ids) == 1
    run_id = ids.pop()
    assert until(run_id, "finished").attempt == 1
    assert store.start(config("train 2"), "draft-1") == run_id
    assert len(store.list()) == 1
    assert store.start(config("train 2"), "draft-2") != run_id


def test_a_worker_gets_a_fresh_process_as_long_as_it_gets_on(store: RunStore, config: Config, until: Until) -> None:
    record = until(store.start(config("restart 5")), "finished")
    assert record.attempt == 5
    assert [note.code for note in record.notes] == ["worker.restarted"] * 4
    record = until(store.start(config("exit 75")), "failed")
    assert record.attempt == 3
    assert record.failure.code == "worker.restarts"


def test_an_export_is_a_job_that_does_not_wait_for_the_card(store: RunStore, config: Config, until: Until) -> None:
    run_id = store.start(config("train 1"))
    until(run_id, "finished")
    blocker = store.start(config("train 100000"))
    until(blocker, "training")
    name = store.export(run_id, ExportRequest(name="adapter"))
    assert gone(lambda: store.export_record(run_id, name).state != "finished"), store.export_record(run_id, name)
    assert store.export_folder(run_id, name).run_folder == store.open(run_id)
    with pytest.raises(RunError, match="found none called"):
        store.export_folder(run_id, "../..")
    with pytest.raises(RunError, match="Expected a checkpoint"):
        store.export(blocker, ExportRequest(name="adapter"))
    with pytest.raises(RunError, match="cannot be deleted"):
        store.delete(blocker)
    store.stop_now(blocker)
    until(blocker, "stopped")
