"""Run folders with a past, under a root of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from made_runs import BEGAN, write_run

from core.contract.events import Event, Stage
from core.machine.locations import Locations
from core.machine.locks import FileLock
from core.runs.folder.job_folder import JobFolder


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    return Locations(tmp_path / "home").make()


@pytest.fixture
def make_run(locations: Locations) -> Callable[..., JobFolder]:
    """Writes a run's folder: ``make_run(events, run_id=..., name=..., checkpoints=...)``."""

    def make(events: list[Event], run_id: str = "2026-11-20_2243_test_k3f9", **more: Any) -> JobFolder:
        return write_run(locations, events, run_id, **more)

    return make


@pytest.fixture
def stage_of() -> Callable[..., Stage]:
    """A stage event at a time after everything in ``past``."""

    def make(name: str, **more: object) -> Stage:
        return Stage.model_validate({"kind": "stage", "at": BEGAN + 10**6, "attempt": 1, "stage": name, **more})

    return make


@pytest.fixture
def alive() -> Iterator[Callable[[JobFolder], None]]:
    """Makes a run look alive: somebody holds its supervisor's lock."""
    held: list[FileLock] = []

    def hold(folder: JobFolder) -> None:
        lock = FileLock(folder.supervisor_lock)
        assert lock.acquire()
        held.append(lock)

    yield hold
    for lock in held:
        lock.release()
