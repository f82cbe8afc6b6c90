"""Run folders with a past, under a root of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_runs import BEGAN, append

from core.contract.config import DataChoice, RunConfig
from core.contract.events import Event, Stage
from core.locations import Locations
from core.runs.folder import JobFolder
from core.runs.run_yaml import dump_config


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    return Locations(tmp_path / "home").make()


@pytest.fixture
def make_run(locations: Locations) -> Callable[..., JobFolder]:
    """Writes a run's folder: ``make_run(events, run_id=..., name=...)``."""

    def make(events: list[Event], run_id: str = "2026-11-20_2243_test_k3f9", name: str = "") -> JobFolder:
        folder = JobFolder(locations.runs / run_id)
        folder.path.mkdir(parents=True)
        config = RunConfig(name=name, preset="try-it", data=DataChoice(path=str(locations.data / "rows.jsonl")))
        folder.run_yaml.write_text(dump_config(config), encoding="utf-8")
        append(folder, events)
        return folder

    return make


@pytest.fixture
def stage_of() -> Callable[..., Stage]:
    """A stage event at a time after everything in ``past``."""

    def make(name: str, **more: object) -> Stage:
        return Stage.model_validate({"kind": "stage", "at": BEGAN + 10**6, "attempt": 1, "stage": name, **more})

    return make
