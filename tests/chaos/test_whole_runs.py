"""Whole runs of the built-in model: ten kills by default, a hundred with ``-m slow``; real checkpoints harmed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from core.contract.config import RunConfig
from core.runs.folder.job_folder import JobFolder

from .harm import HARMS, harmed
from .whole import kill_whole, starter_config, uninterrupted


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, JobFolder]:
    """The uninterrupted run. One thread in every process: the same sums, and two lives fit on two cores."""
    home = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("LUTHIER_HOME", str(home))
        config = starter_config(home)
        return config, uninterrupted(home, config)


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_every_harm_to_every_file_of_a_real_checkpoint_is_noticed(
    whole: tuple[RunConfig, JobFolder], tmp_path: Path
) -> None:
    root = shutil.copytree(whole[1].checkpoints, tmp_path / "checkpoints")
    told = list(harmed(root))
    assert {harm for _, harm in told} == set(HARMS)
    assert len(told) >= 6 * len({name for name, _ in told})


@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("one_thread")
def test_kills_change_nothing(whole: tuple[RunConfig, JobFolder], tmp_path: Path, kills: int) -> None:
    seed = random.SystemRandom().randint(1, 2**31)
    figures = kill_whole(tmp_path, whole, kills, seed)
    print(figures.line("whole", seed, 0))
    assert figures.kills.total() == kills
    assert set(figures.kills) == {"worker", "supervisor", "studio"}
