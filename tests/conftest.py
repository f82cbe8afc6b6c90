"""What all tests share: a root folder of their own, and no word to the network."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest
from waiting import until

from core.machine.locations import REPOSITORY, Locations
from studio.server.importing import without_stubs

SHARED_DATA = REPOSITORY.parent / "shared" / "data"
STANDING_BACK = 3
"""Niceness of those that share the other tests: the one that drives a browser has a core when it wants it."""
LONGEST_FIRST = ("chaos", "train", "kernels", "models", "worker", "runs", "data", "model", "bench", "export")


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
    if "PYTEST_XDIST_WORKER" in os.environ and hasattr(os, "nice"):
        os.nice(STANDING_BACK)
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
    """Files are handed out in this order: the rooms whose files take longest, so that none is last. What measures time
    comes after all others."""
    order = {folder: place for place, folder in enumerate(LONGEST_FIRST)}

    def place(item: pytest.Item) -> tuple[bool, int]:
        return "alone" in item.keywords, min(order.get(word, len(order)) for word in item.nodeid.split("/")[:3])

    items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What measures time waits until nobody else computes (tests/suite.py)."""
    if "alone" in item.keywords and (others := os.environ.get("OTHER_TESTS")):
        until(lambda: not psutil.pid_exists(int(others)), 3_600)


def pytest_collection_finish() -> None:
    """What was imported stays; to look through it at each garbage collection took a fourth of a test's time."""
    gc.freeze()
    gc.enable()


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
