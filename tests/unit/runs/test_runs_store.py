"""The store without processes: making, listing, refusing, deleting."""

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from living_runs import Config, finished

from core.contract.config import RunConfig
from core.contract.errors import ConfigError, MachineError, RunError
from core.contract.events import Checkpoint, Finished, Plan, Queued, Starting, Step, Stopped
from core.contract.forms import FORMS
from core.machine.locks import FileLock
from core.runs.control import create
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import ExportRequest, JobFolder
from core.runs.folder.notes import changed_since
from core.runs.folder.run_yaml import dump_config
from core.runs.log.events_log import EventTail, EventWriter
from core.runs.record.summary import summarise
from tests.bare_run import bare_run

RUN = "2026-11-20_2243_a_k3f9"
DAMAGED_SUMMARIES = (
    "", "[]", "null", '{"key": 1}', '{"key": [1,2,3], "summary": {}}', '{"key": 1, "summary": {"run_id": 5}}',
    '{"key": [], "summary": {"state": "nonsense"}}', '{"summary":' + "[" * 30_000,
)  # fmt: skip
HOSTILE = ["", ".", "..", "../runs", "/etc", "a/b", f"{RUN}/..", f"{RUN}\n", "\0", "x" * 999]


def test_a_run_is_made_whole_and_complete(store: RunStore, config: Config) -> None:
    folder = bare_run(store, config("My first run!"))
    assert "_my-first-run_" in folder.name
    assert folder.config() == config("My first run!")
    assert sorted(path.name for path in store.locations.runs.iterdir()) == [folder.name]
    assert folder.path.stat().st_mode & 0o077 == 0
    assert store.open(folder.name) == folder
    again = bare_run(store, config("x"), "draft")
    assert bare_run(store, config("y"), "draft") == again
    with pytest.raises(ConfigError, match=r"data\.path"):
        store.start(RunConfig())
    assert len(store.list()) == 2, "a config with faults makes nothing"


def test_what_a_run_was_made_with_is_remembered_beside_its_run_yaml(store: RunStore, config: Config) -> None:
    made = config("one")
    folder = bare_run(store, made)
    assert changed_since(folder, folder.config()) == ""
    other = made.model_copy(update={"train": made.train.model_copy(update={"seed": 5, "max_steps": 9})})
    assert changed_since(folder, other) == "train.max_steps 9 in place of 0, train.seed 5 in place of 3407"
    (folder.path / "began.json").write_text((folder.path / "began.json").read_text().replace("3407", "3408"))
    assert changed_since(folder, other) == "", "a damaged note is none"


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def no_room(*_: object) -> None:
    raise MachineError.told_by(
        {"code": "disk.write", "message": "Could not write events.jsonl (No space left on device)."}
    )


@pytest.mark.parametrize(
    ("place", "refuse"),
    [
        ("control.create.make_durable", full),
        ("log.events_log.EventWriter.write", no_room),
        ("control.queue.JobQueue.add", full),
    ],
    ids=["the folder", "its first word", "the queue"],
)
def test_a_full_disk_leaves_nothing_behind(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch, place: str, refuse: Callable[..., None]
) -> None:
    monkeypatch.setattr(f"core.runs.{place}", refuse)
    with pytest.raises(MachineError, match="No space left") as caught:
        store.start(config("x"), "draft")
    assert caught.value.code == "disk.write"
    assert store.list() == []
    assert [path.name for path in store.locations.runs.iterdir() if path.name != ".drafts"] == []


class Killed(BaseException):
    pass


@pytest.mark.parametrize(("place", "left"), [("create.make_durable", 0), ("queue.JobQueue.add", 1)])
def test_a_starter_killed_half_way_leaves_no_second_run_of_its_draft(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch, place: str, left: int
) -> None:
    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(f"core.runs.control.{place}", kill)
        with pytest.raises(Killed):
            store.start(config("x"), "draft")
    assert len(store.list()) == left
    name = bare_run(store, config("x"), "draft").name
    assert [run.run_id for run in store.list()] == [name]


def test_a_supervisor_that_cannot_start_is_said(store: RunStore, config: Config) -> None:
    broken = RunStore(store.locations, ("/no/such/program",))
    with pytest.raises(MachineError, match="Could not start a process"):
        broken.start(config("x"))
    assert [run.state for run in broken.list()] == ["lost"]


@pytest.mark.parametrize("run_id", HOSTILE)
def test_only_run_ids_open_runs(store: RunStore, run_id: str) -> None:
    for ask in (store.open, store.record, store.stop, store.delete, store.resume):
        with pytest.raises(RunError, match="found none called"):
            ask(run_id)


def test_a_listing_tells_what_the_log_tells(store: RunStore, config: Config) -> None:
    folder = finished(store, config("a"), 5)
    (run,) = store.list()
    assert (run.run_id, run.name, run.state) == (folder.name, "a", "finished")
    assert (run.method, run.model_name) == ("sft", "starter")
    assert (run.data_name, run.last_step, run.total_steps, run.train_loss) == ("rows.jsonl", 5, 5, 0.2)
    assert (run.eval_loss, run.bytes_on_disk is not None, run.ended_at is not None) == (0.25, True, True)
    for damage in DAMAGED_SUMMARIES:
        folder.summary_json.write_text(damage)
        assert store.list() == [run]
    folder.summary_json.unlink()
    assert store.list() == [run]
    folder.run_yaml.write_text("{")  # a run whose config cannot be read is still listed
    folder.summary_json.unlink()
    assert [(run.name, run.state, run.model_name) for run in store.list()] == [(folder.name, "finished", "")]


def test_a_summary_is_valid_for_its_byte_count_only(store: RunStore, config: Config) -> None:
    folder = finished(store, config("a"))
    assert store.list()[0].state == "finished"
    kept = json.loads(folder.summary_json.read_text())
    kept["summary"]["name"] = "believed"
    folder.summary_json.write_text(json.dumps(kept))
    assert store.list()[0].name == "believed"
    EventWriter(folder.events, 2).write(Starting(resumed_step=2))
    run = store.list()[0]
    assert (run.name, run.state, run.last_step) == ("a", "lost", 2)
    lock = FileLock(folder.supervisor_lock)
    lock.acquire()
    assert store.list()[0].state == "starting"  # liveness is never cached
    lock.release()
    assert store.list()[0].state == "lost"


def test_a_summary_folds_to_what_the_whole_log_folds_to(store: RunStore, config: Config) -> None:
    folder = bare_run(store, config("a"))
    writer = EventWriter(folder.events, 1)
    for event in (Queued(), Starting(), *(Step(step=n, loss=n / 1) for n in range(1, 9)), Checkpoint(step=6)):
        writer.write(event)
    for event in (Starting(resumed_step=6), *(Step(step=n, loss=n / 10) for n in range(7, 9)), Stopped(step=8)):
        writer.write(event)
    summary, record = summarise(folder), store.record(folder.name)
    assert (summary.state, summary.last_step) == (record.state, record.last_step) == ("stopped", 8)
    assert summary.train_loss == record.steps[-1].loss == 0.8
    for begin in (7, 6, 0):  # a fresh attempt has no step yet: what stands is that of its checkpoint, if any
        writer.write(Starting(resumed_step=begin))
        record = store.record(folder.name)
        assert summarise(folder).train_loss == (record.steps[-1].loss if record.steps else None)
    assert summarise(folder).train_loss is None


def test_deleting_keeps_out_of_the_way_of_the_living(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.runs.control.store.LEAVING_SECONDS", 0.2)
    folder = finished(store, config("a"))
    job = JobFolder(folder.jobs / "adapter")
    job.path.mkdir(parents=True)
    for living in (folder, job):
        lock = FileLock(living.supervisor_lock)
        lock.acquire()
        with pytest.raises(RunError, match="cannot be deleted"):
            store.delete(folder.name)
        lock.release()
    store.delete(folder.name)
    assert list(store.locations.runs.iterdir()) == []
    assert store.list() == []


def test_an_export_name_that_is_taken_gets_a_number(store: RunStore, config: Config) -> None:
    run = finished(store, config("a"))
    wish = ExportRequest(name="adapter")
    first, lock = create.make_export(run, wish)
    assert first.export_request() == wish
    second, other = create.make_export(run, wish)
    assert (second.name, second.export_request().name) == ("adapter-2", "adapter-2")
    lock.release()
    other.release()
    third, lock = create.make_export(run, wish)  # the first died and made nothing: its name is free again
    assert third.name == "adapter"
    lock.release()
    (run.exports / "adapter").mkdir(parents=True)
    fourth, lock = create.make_export(run, wish)
    assert fourth.name == "adapter-2"
    lock.release()


def test_exports_at_once_have_a_folder_each_and_leave_each_other_alone(store: RunStore, config: Config) -> None:
    run = finished(store, config("a"))
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda name: create.make_export(run, ExportRequest(name=name)), ["a", "b", "a"]))
    names = [job.name for job, _ in made]
    assert sorted(names) == ["a", "a-2", "b"]
    for name in names:
        run.export_draft(name).mkdir(parents=True)
    made[0][1].release()  # one of them dies
    assert create.sweep_exports(run) == 0
    assert {*run.export_drafts()} == {*names} - {names[0]}
    for _, lock in made[1:]:
        lock.release()


@pytest.mark.parametrize("name", ["CON", "nul.txt", "Lpt1", "mine."])
def test_an_export_name_that_windows_forbids_is_refused(store: RunStore, config: Config, name: str) -> None:
    run = finished(store, config("a"))
    with pytest.raises(RunError, match="Windows") as caught:
        create.make_export(run, ExportRequest(name=name))
    assert caught.value.code == "export.name"
    assert not run.jobs.exists()
    with pytest.raises(ValueError, match="name"):
        ExportRequest(name="mine ")


def test_a_form_whose_package_is_missing_says_how_to_install_it(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bare_run(store, config("a"), "d")
    monkeypatch.setitem(FORMS, "merged", replace(FORMS["merged"], needs=("json", "gone_away")))
    monkeypatch.setattr(JobFolder, "newest_checkpoint", lambda self: self.path)
    with pytest.raises(RunError, match="gone_away") as caught:
        store.export(run.name, ExportRequest(name="mine", form="merged"))
    assert caught.value.hint.endswith("-m pip install gone_away")


def test_what_a_killed_export_left_is_counted_while_it_stands_and_swept_when_nobody_lives(
    store: RunStore, config: Config
) -> None:
    folder = finished(store, config("a"))
    job, lock = create.make_export(folder, ExportRequest(name="merged"))
    before = store.list()[0].bytes_on_disk or 0
    draft = folder.export_draft(job.name)
    draft.mkdir(parents=True)
    for part in (1, 2):
        (draft / f"model-{part}.safetensors").write_bytes(bytes(5_000_000))
        assert (store.list()[0].bytes_on_disk or 0) - before >= part * 5_000_000
    store.adopt()
    assert store.export_record(folder.name, "merged").state == "queued"
    assert draft.exists(), "somebody works on it"
    lock.release()
    assert store.export_record(folder.name, "merged").state == "lost"
    assert not draft.exists()
    draft.mkdir()
    (draft / "written.json").write_text("{}")
    store.adopt()  # as a studio does that opens
    assert draft.exists(), "the same export can go on from it, for a day"
    os.utime(draft / "written.json", (0, 0))
    store.adopt()
    assert not draft.exists()
    assert (store.list()[0].bytes_on_disk or 0) - before < 1_000_000


def test_a_stopped_draft_is_not_started_again(store: RunStore, config: Config) -> None:
    folder = bare_run(store, config("a"), "d")
    EventWriter(folder.events, 1).write(Stopped())
    assert store.start(config("a"), "d") == folder.name
    assert store.record(folder.name).state == "stopped"
    assert [event.kind for event in EventTail(folder.events).read()] == ["stopped"]


@pytest.mark.parametrize(
    ("count", "cold_seconds", "warm_seconds"), [(50, 1.5, 0.08), pytest.param(500, 4.0, 0.2, marks=pytest.mark.slow)]
)
def test_many_runs_are_listed_in_no_time(
    store: RunStore, config: Config, count: int, cold_seconds: float, warm_seconds: float
) -> None:
    trained = (Step(step=n, at=1.0, loss=1.2345, grad_norm=0.5, tokens=4096, seconds=1.0) for n in range(1, 2001))
    events = (Queued(), Starting(), Plan(total_steps=2000), *trained, Finished(at=2.0))
    text, yaml = "".join(f"{event.model_dump_json()}\n" for event in events), dump_config(config("a"))
    for number in range(count):
        folder = JobFolder(store.locations.runs / f"2026-11-20_2243_run-{number}_aaaa")
        folder.path.mkdir()
        folder.events.write_text(text)
        folder.run_yaml.write_text(yaml)
    seconds = []
    for _ in range(12):
        began = time.process_time()  # what else runs on the machine is not measured
        runs = store.list()
        seconds.append(time.process_time() - began)
        assert [(run.state, run.last_step) for run in runs] == [("finished", 2000)] * count
    print(f"{count} runs of 2,000 steps: {seconds[0]:.2f} s cold, {1000 * min(seconds):.0f} ms warm")
    assert seconds[0] < cold_seconds
    assert min(seconds) < warm_seconds


def test_what_an_interrupted_making_or_deletion_left_is_swept_and_what_is_being_made_is_not(store: RunStore) -> None:
    (store.locations.runs / ".trash-x" / "deep").mkdir(parents=True)
    made, left, held = (store.locations.runs / f".new-{name}" for name in ("made", "left", "held"))
    for path in (made, left, held):
        path.mkdir(parents=True)
        (path / "supervisor.lock").touch()
    for path in (left, held):
        os.utime(path, (0, 0))
    lock = FileLock(held / "supervisor.lock")
    lock.acquire()
    assert store.adopt() == []
    lock.release()
    assert sorted(store.locations.runs.iterdir()) == [held, made]
