"""A root folder of its own and a store whose supervisors start the fake worker; what a test leaves behind is ended."""

import os
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import psutil
import pytest
from living_runs import SUPERVISOR, Config, RunsHere, Until, chosen

from core.contract.config import DataChoice, RunConfig
from core.machine.locations import REPOSITORY, Locations
from core.runs.control.store import RunStore
from core.runs.record.job_record import RunRecord


@pytest.fixture
def store(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunStore]:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))  # the fakes are scripts, which see their own folder only
    yield RunStore(locations, SUPERVISOR)
    home = str(locations.home)
    for process in chosen(lambda one: one.pid != os.getpid() and any(home in word for word in one.cmdline())):
        with suppress(psutil.Error):
            process.kill()


@pytest.fixture
def here(store: RunStore) -> Iterator[RunsHere]:
    with closing(RunsHere(store.locations)) as runs:
        yield runs


@pytest.fixture
def config() -> Config:
    return lambda name: RunConfig(name=name, data=DataChoice(path="/data/rows.jsonl"))


@pytest.fixture
def until(store: RunStore) -> Until:
    """Waits until a run is in one of these states."""

    def wait(run_id: str, *states: str, seconds: float = 60.0) -> RunRecord:
        deadline = time.monotonic() + seconds
        while (record := store.record(run_id)).state not in states:
            log = store.open(run_id).log
            printed = log.read_text() if log.exists() else ""
            assert time.monotonic() < deadline, f"{run_id} is {record.state}, not {states}: {record} {printed}"
            time.sleep(0.05)
        return record

    return wait
