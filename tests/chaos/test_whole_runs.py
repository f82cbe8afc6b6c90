"""Whole runs of the built-in model: a kill of each kind by default, a hundred with ``-m slow``; checkpoints harmed."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.contract.config import RunConfig
from core.runs.folder.job_folder import JobFolder
from core.train.keep import checkpoint

from .judge import must
from .kills import Figures
from .whole import kill_whole, kill_whole_runs, starter_config, uninterrupted

SHORT = 14
"""Steps of a run that three kills cut off."""
Harm = Callable[[Path, Path], None]
"""Harms a file; the second path is the same file of another step's checkpoint."""


def _cut(part: float) -> Harm:
    def cut(path: Path, _other: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[: min(int(len(data) * part), len(data) - 1)])

    return cut


def _flip(path: Path, _other: Path) -> None:
    data = bytearray(path.read_bytes())
    draw = random.Random(path.name)
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


HARMS: dict[str, Harm] = {
    "missing": lambda path, _other: path.unlink(),
    "cut to nothing": _cut(0.0),
    "cut in half": _cut(0.5),
    "cut by its end": _cut(1.0),
    "one bit flipped": _flip,
    "zeroed": lambda path, _other: path.write_bytes(bytes(path.stat().st_size)),
    "swapped with another step's": lambda path, other: shutil.copyfile(other, path) and None,
}


def harmed(root: Path) -> Iterator[tuple[str, str]]:
    """Harms every file of the newest checkpoint under ``root`` in every way, one at a time; each was noticed when it is
    told (file, harm), and is whole again afterwards.

    Raises:
        AssertionError: a harm went unnoticed, or another checkpoint than the one before was used.
    """
    before, newest = sorted(root.glob("step-*"))[-2:]
    must(checkpoint.latest_good(root) == newest, "the newest is not good to begin with")
    for path in sorted(path for path in newest.rglob("*") if path.is_file()):
        name, data = path.relative_to(newest).as_posix(), path.read_bytes()
        for harm, harms in HARMS.items():
            harms(path, before / name)
            if path.exists() and path.read_bytes() == data:
                continue  # the same file in both steps: nothing was swapped
            bad: list[str] = []
            used = checkpoint.latest_good(root, lambda found, _why: bad.append(found.name))  # noqa: B023
            must((used, bad) == (before, [newest.name]), name, harm, "used:", used, "named:", bad)
            path.write_bytes(data)
            yield name, harm
    must(checkpoint.latest_good(root) == newest, "was not put back")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, JobFolder]:
    """The uninterrupted run. One thread in every process: the same sums, and two lives fit on two cores."""
    home = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("LUTHIER_HOME", str(home))
        config = starter_config(home, SHORT)
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
    files = {name for name, _ in told}
    assert {"MANIFEST.json", "position.json", "adapter/adapter_model.safetensors", "optimizer.json"} <= files
    assert len(told) >= 6 * len(files)
    before, newest = sorted(root.glob("step-*"))[-2:]
    shutil.rmtree(newest)
    before.rename(newest)  # a whole one under another step's name
    assert checkpoint.latest_good(root) != newest


@pytest.mark.usefixtures("one_thread")
def test_kills_change_nothing(whole: tuple[RunConfig, JobFolder], tmp_path: Path) -> None:
    judge_kills(3, lambda seed: kill_whole(tmp_path, whole, 3, seed))


@pytest.mark.slow
def test_a_hundred_kills_change_nothing(tmp_path: Path) -> None:
    judge_kills(100, lambda seed: kill_whole_runs(tmp_path, 100, seed))


def judge_kills(kills: int, killing: Callable[[int], Figures]) -> None:
    seed = random.SystemRandom().randint(1, 2**31)
    figures = killing(seed)
    print(figures.line("whole", seed, 0))
    assert figures.kills.total() == kills
    assert set(figures.kills) == {"worker", "supervisor", "studio"}
