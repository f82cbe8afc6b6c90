"""Run folders with a past, under a root of their own; who may come in; and applications that are really served."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from made_routes import Routes, made_routes
from made_runs import BEGAN, RUN, write_run

from core.contract.events import Event, Stage
from core.machine.locations import Locations
from core.machine.locks import FileLock
from core.runs.folder.job_folder import JobFolder
from studio.server.access.sessions import AccessTokens
from studio.server.app import bind


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    return Locations(tmp_path / "home").make()


@pytest.fixture
def door(locations: Locations) -> AccessTokens:
    return AccessTokens(locations.sessions)


@pytest.fixture
def routes(locations: Locations) -> Routes:
    return made_routes(locations)


@pytest.fixture
def make_run(locations: Locations) -> Callable[..., JobFolder]:
    """Writes a run's folder: ``make_run(events, run_id=..., name=..., checkpoints=...)``."""

    def make(events: list[Event], run_id: str = RUN, **more: Any) -> JobFolder:
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


@pytest.fixture
def serve() -> Iterator[Callable[..., int]]:
    """Serves what ``make(port)`` makes until the test ends: ``port = serve(make, **uvicorn's options)``."""
    with contextlib.ExitStack() as ends:

        def begin(make: Callable[[int], Any], **options: Any) -> int:
            listener = ends.enter_context(bind(0))
            port = int(listener.getsockname()[1])
            server = uvicorn.Server(uvicorn.Config(make(port), log_level="error", lifespan="off", **options))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
            thread.start()
            ends.callback(thread.join, 10)
            ends.callback(setattr, server, "should_exit", True)
            return port

        yield begin
