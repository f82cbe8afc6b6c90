"""What all tests share: a root folder of their own, and no word to the network."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from core.machine.locations import REPOSITORY, Locations
from studio.server.importing import without_stubs

SHARED_DATA = REPOSITORY.parent / "shared" / "data"
LONGEST_FIRST = ("e2e", "chaos", "train", "kernels", "models", "worker", "runs", "data", "model", "bench", "export")


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is imported by a test: children inherit these.

    The default run draws the same examples every time: what is red can be repeated. The slow one draws new ones.
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("no_proxy", "127.0.0.1,localhost")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # workers' threads would spin for each other
    os.environ.setdefault("LUTHIER_REPORTS", "off")  # a run of a test makes one where it is asked to
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # looking for them is a tenth of a short process's time
    os.fsync = made_durable  # of some ten thousand files, 2 ms each; no test's machine loses its power
    gc.disable()  # until all is imported
    if "not gpu" in str(config.getoption("markexpr")):  # as of a run without a card: else bitsandbytes loads a compiler
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    if "not slow" not in str(config.getoption("markexpr")):
        return  # tests for a card come here, too, where there may be no hypothesis
    from hypothesis import settings

    settings.register_profile("repeatable", derandomize=True)
    settings.load_profile("repeatable")


def made_durable(descriptor: int) -> None:
    """In place of ``os.fsync``: what is no open file is refused as there."""
    os.fstat(descriptor)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where no card is asked for, the tests for one are not even imported."""
    return True if collection_path.name == "gpu" and "not gpu" in str(config.getoption("markexpr")) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """What imports Gradio does it as the studio does."""
    with without_stubs():
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files are handed out in this order: browsers, then the rooms whose files take longest, so that none is last.

    Of the browsers' files those come first that share a studio: what is left when all else has been done may be dealt
    to several workers.
    """
    order = {folder: place for place, folder in enumerate(LONGEST_FIRST)}
    sharing = {
        item.path for item in items if {"bare_studio", "furnished_studio"} & set(getattr(item, "fixturenames", ()))
    }

    def place(item: pytest.Item) -> tuple[int, bool]:
        room = min(order.get(word, len(order)) for word in item.nodeid.split("/")[:3])
        return room, item.path not in sharing

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What was imported stays; to look through it at each garbage collection took a fourth of a test's time."""
    gc.freeze()
    gc.enable()


STANDING_BACK = 3
"""Niceness of what is no browser test, beside one."""


def pytest_runtest_logstart(nodeid: str) -> None:
    """The browsers' lane is the longest way through the run: the other workers let it have the cores when it wants."""
    if "PYTEST_XDIST_WORKER" in os.environ and hasattr(os, "nice") and not drives(nodeid):
        os.nice(max(0, STANDING_BACK - os.nice(0)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files go to whoever is free; those that drive a browser follow one another, one lane for four cores.

    A browser, its studio and a run are several processes: two lanes beside other tests on two cores wait for each other
    until somebody's patience ends. A lane waits more than it computes, so it has a worker beside those of the cores
    (tests/suite.py). Once nothing else is left there is a lane a core.
    """
    from xdist.scheduler import LoadFileScheduling

    cores = os.cpu_count() or 2

    class BrowsersInLanes(LoadFileScheduling):
        def _assign_work_unit(self, node: Any) -> None:
            other = next((scope for scope in self.workqueue if not drives(scope)), None)
            browser = next(filter(drives, self.workqueue), None)
            lanes = sum(self._is_lane(one) for one in self.nodes if one is not node)
            chosen = browser if browser and lanes < (max(1, cores // 4) if other else cores) else other
            if chosen is None:
                node.shutdown()  # it would wait with its last test for one more
                return
            self.workqueue.move_to_end(chosen, last=False)
            super()._assign_work_unit(node)

        def _is_lane(self, node: Any) -> bool:
            return any(drives(scope) and not all(unit.values()) for scope, unit in self.assigned_work[node].items())

    return BrowsersInLanes(config, log)


def drives(scope: str) -> bool:
    """Whether a test, or a file of them, drives a browser."""
    return scope.startswith("tests/e2e/")


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Places for roots, by number; ``mktemp`` would look through all that are there before each."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def own_home(homes: Iterator[Path]) -> Iterator[Path]:
    """Nobody's real runs are ever touched by a test, and no variable that a program sets outlives one: a worker's on a
    CPU turn torch's compiler off."""
    home = next(homes)
    home.mkdir()
    with patch.dict(os.environ, {"LUTHIER_HOME": str(home)}):
        yield home


@pytest.fixture
def locations(own_home: Path) -> Locations:
    """The folders of a fresh root."""
    return Locations.find(own_home).make()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real files beside the project; a user's clone has none, and the tests that want them skip there."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real data files are not beside this clone")
    return SHARED_DATA
