"""What all tests share: a root folder of their own, and no word to the network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from core.machine.locations import REPOSITORY, Locations

SHARED_DATA = REPOSITORY.parent / "shared" / "data"


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is imported by a test: children inherit these.

    The default run draws the same examples every time: what is red can be repeated. The slow one draws new ones.
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("no_proxy", "127.0.0.1,localhost")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # two workers' threads on two cores would spin for each other
    if "not slow" not in str(config.getoption("markexpr")):
        return  # tests for a card come here, too, where there may be no hypothesis
    from hypothesis import settings

    settings.register_profile("repeatable", derandomize=True)
    settings.load_profile("repeatable")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whole runs and browsers, each of them several processes, follow one another on one worker; files fill the other.

    Two at once on two cores wait for each other until somebody's patience ends. Their share comes first: by number of
    tests, as xdist would have it, the longest would come last.
    """
    from xdist.scheduler import LoadFileScheduling

    class OneAfterTheOther(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            whole = nodeid.startswith(("tests/chaos/", "tests/e2e/"))
            return "whole runs" if whole else str(super()._split_scope(nodeid))

    return OneAfterTheOther(config, log)


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody's real runs are ever touched by a test."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("LUTHIER_HOME", str(home))
    return home


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
