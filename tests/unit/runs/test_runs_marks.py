"""What a person keeps of a run, what a listing knows of it, and runs that are deleted and had back."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from living_runs import Config, bare_run, finished

from core.contract.config import DataChoice, LoraChoice, RunConfig, TrainChoice
from core.contract.errors import MachineError, RunError
from core.contract.events import Evaluation, Finished, Queued, Starting, Step
from core.machine.locks import FileLock
from core.runs.control import trash
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import COLOURS, Marks, mark, note_asked, read_marks, read_opened
from core.runs.log.events_log import EventWriter
from core.runs.record.summary import summarise


def test_marks_are_kept_beside_the_name_a_field_at_a_time(store: RunStore, config: Config) -> None:
    folder = finished(store, config("a"))
    assert summarise(folder).marks == read_marks(folder) == Marks()
    mark(folder, {"note": "  the one to keep\n", "tags": ["good ", "Good", "", "long  rows"]})
    marks = mark(folder, {"pinned": True, "colour": 3})
    assert marks == Marks(note="the one to keep", tags=("Good", "long rows"), colour=3, pinned=True)
    assert summarise(folder).marks == read_marks(folder) == marks
    for wrong in ({"note": "x" * 4_001}, {"tags": ["x" * 33]}, {"tags": [str(n) for n in range(13)]},
                  {"colour": COLOURS + 1}, {"colour": -1}):  # fmt: skip
        with pytest.raises(RunError, match="Expected a note of at most"):
            mark(folder, wrong)
    assert read_marks(folder) == marks
    for damage in ("{", "[]", json.dumps({"note": "x" * 5_000}), json.dumps({"tags": ["y" * 40]}), "\\0" * 70_000):
        folder.marks_json.write_text(damage)
        assert read_marks(folder) == Marks()
    assert read_opened(folder) is None


def test_marks_that_are_changed_at_the_same_time_are_all_kept(store: RunStore, config: Config) -> None:
    folder = finished(store, config("a"))
    for turn in range(20):
        changes = ({"note": f"{turn}"}, {"tags": [f"{turn}"]}, {"colour": turn % 5 + 1})
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda change: mark(folder, change), changes))
        assert read_marks(folder) == Marks(note=f"{turn}", tags=(f"{turn}",), colour=turn % 5 + 1)


def test_two_changes_within_one_tick_of_a_coarse_clock_are_both_listed(store: RunStore, config: Config) -> None:
    folder = finished(store, config("a"))
    for colour in (1, 2, 3):
        mark(folder, {"colour": colour})
        os.utime(folder.marks_json, ns=(10**18, 10**18))
        assert summarise(folder).marks.colour == colour


def test_marks_that_are_a_link_make_a_run_unreadable(store: RunStore, config: Config, tmp_path: Path) -> None:
    folder = finished(store, config("a"))
    for name in ("marks.json", "opened.json"):
        (folder.path / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(RunError, match=name):
            store.open(folder.name)
        (folder.path / name).unlink()
    assert store.open(folder.name).path == folder.path


def test_a_listing_knows_what_was_chosen_and_how_the_loss_went(store: RunStore) -> None:
    ran = RunConfig(name="a", data=DataChoice(path="/data/rows.jsonl", sha256="f" * 64), lora=LoraChoice(r=32),
                    train=TrainChoice(save_steps=7), resume_from="2026-11-20_2243_other_k3f9")  # fmt: skip
    folder = bare_run(store, ran)
    assert summarise(folder).settings == {"lora.r": 32, "train.save_steps": 7}
    note_asked(folder, ran.model_copy(update={"train": TrainChoice()}))
    run = summarise(folder)
    assert (run.settings, run.data_key, run.resume_from) == ({"lora.r": 32}, "f" * 64, ran.resume_from)
    writer = EventWriter(folder.events, 1)
    for event in (Queued(), Starting(), Evaluation(loss=2.0), *(Step(step=n, loss=2 - n / 200) for n in range(1, 200))):
        writer.write(event)
    run = summarise(folder)
    assert (run.curve_of, len(run.curve), run.curve[-1][0]) == ("train", 40, 199)
    assert run.curve[0][1] > run.curve[-1][1]
    for number in (100, 199):
        writer.write(Evaluation(step=number, loss=2 - number / 200))
    writer.write(Finished())
    run = summarise(folder)
    assert (run.curve_of, run.curve) == ("held_out", ((0.0, 2.0), (100.0, 1.5), (199.0, 1.005)))
    assert summarise(folder) == run, "as it was kept"
    (folder.exports / "adapter").mkdir(parents=True)
    assert summarise(folder).exports == 1


def test_a_deleted_run_is_had_back_within_half_a_minute_and_not_after(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [finished(store, config(name)).name for name in "ab"]
    mark(store.open(names[0]), {"note": "mine"})
    for name in names:
        store.delete(name, undo=True)
    assert store.list() == []
    assert [run_id for _, run_id, _ in trash.waiting(store.locations)] == names[::-1]
    trash.take_back(store.locations, names[0])
    assert [run.run_id for run in store.list()] == names[:1]
    assert store.list()[0].marks.note == "mine"
    assert trash.empty(store.locations), "the other one's time is not over"
    later = time.time() + trash.UNDO_SECONDS + 1
    with monkeypatch.context() as clock:
        clock.setattr(trash.time, "time", lambda: later)
        assert trash.waiting(store.locations) == []
        RunStore(store.locations).adopt()  # the studio was killed meanwhile and is started again
    assert [path.name for path in store.locations.runs.iterdir()] == names[:1]
    for gone in (names[1], "../x", ""):
        with pytest.raises(RunError, match="deleted for good"):
            trash.take_back(store.locations, gone)
    store.delete(names[0], undo=True)
    with monkeypatch.context() as clock:  # a clock that was set back: nothing is kept for years
        clock.setattr(trash.time, "time", lambda: later - 86_400)
        assert not trash.empty(store.locations)
    assert list(store.locations.runs.iterdir()) == []


def test_what_cannot_be_moved_stays_and_what_lives_is_not_deleted(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.runs.control.store.LEAVING_SECONDS", 0.2)
    folder = finished(store, config("a"))
    lock = FileLock(folder.supervisor_lock)
    lock.acquire()
    with pytest.raises(RunError, match="cannot be deleted"):
        store.delete(folder.name, undo=True)
    lock.release()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(Path, "rename", refuse)
        with pytest.raises(MachineError, match="No space left"):
            store.delete(folder.name, undo=True)
    assert [run.run_id for run in store.list()] == [folder.name]
    (folder.path / "events.jsonl").unlink()
    (folder.path / "events.jsonl").symlink_to("/dev/zero")
    store.delete(folder.name, undo=True)
    trash.take_back(store.locations, folder.name)
    assert [run.state for run in store.list()] == ["unreadable"]
    assert isinstance(JobFolder(folder.path), JobFolder)
