"""The folder of a living run is taken away by hand: its processes notice, and go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from living_runs import Config, Until, chosen, gone

from core.contract.errors import RunError
from core.machine.locations import REPOSITORY
from core.machine.locks import held_by
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder


def processes_of(folder: JobFolder) -> list[psutil.Process]:
    """Supervisor and worker: each is told the folder as its last word."""
    return chosen(lambda process: process.cmdline()[-1:] == [str(folder.path)])


@pytest.mark.parametrize("way", ["deleted", "moved"])
def test_a_run_whose_folder_is_taken_away_ends(store: RunStore, config: Config, until: Until, way: str) -> None:
    folder = store.open(store.start(config("train 100000")))
    until(folder.name, "training")
    assert len(processes_of(folder)) == 2
    if way == "moved":
        folder.path.rename(folder.path.with_name("elsewhere"))
    else:
        shutil.rmtree(folder.path, ignore_errors=True)
    assert gone(lambda: processes_of(folder))
    assert not folder.path.exists()
    for ask in (store.stop, store.delete):
        with pytest.raises(RunError, match="none called"):
            ask(folder.name)
    assert held_by(store.locations, "cpu") is None


def test_what_its_worker_made_since_goes_with_it(store: RunStore, config: Config, until: Until) -> None:
    folder = store.open(store.start(config("train 100000")))
    until(folder.name, "training")
    shutil.rmtree(folder.path, ignore_errors=True)
    (folder.checkpoints / "step-000005").mkdir(parents=True, exist_ok=True)  # as a worker does that saves
    assert gone(lambda: processes_of(folder))
    assert gone(folder.path.exists)


def test_a_waiting_run_whose_folder_is_deleted_leaves_the_queue_alone(
    store: RunStore, config: Config, until: Until
) -> None:
    first = store.start(config("train 100000"))
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
