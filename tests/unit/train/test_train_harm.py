"""Every harm to every file of a real checkpoint is noticed, and the one before it is used."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from core.train.keep import checkpoint

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
    assert checkpoint.latest_good(root) == newest
    for path in sorted(path for path in newest.rglob("*") if path.is_file()):
        name, data = path.relative_to(newest).as_posix(), path.read_bytes()
        for harm, harms in HARMS.items():
            harms(path, before / name)
            if path.exists() and path.read_bytes() == data:
                continue  # the same file in both steps: nothing was swapped
            bad: list[str] = []
            used = checkpoint.latest_good(root, lambda found, _why: bad.append(found.name))  # noqa: B023
            assert (used, bad) == (before, [newest.name]), (name, harm)
            path.write_bytes(data)
            yield name, harm
    assert checkpoint.latest_good(root) == newest, "was not put back"


def test_every_harm_to_every_file_of_a_real_checkpoint_is_noticed(runs: Any, tmp_path: Path) -> None:
    root = shutil.copytree(runs.undisturbed(lora__lora_dropout=0.1)[0].checkpoints, tmp_path / "checkpoints")
    told = list(harmed(root))
    assert {harm for _, harm in told} == set(HARMS)
    files = {name for name, _ in told}
    assert {"MANIFEST.json", "position.json", "adapter/adapter_model.safetensors", "optimizer.json"} <= files
    assert len(told) >= 6 * len(files)
    before, newest = sorted(root.glob("step-*"))[-2:]
    shutil.rmtree(newest)
    before.rename(newest)  # a whole one under another step's name
    assert checkpoint.latest_good(root) != newest
