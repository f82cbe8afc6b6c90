"""Every way to harm one file of a checkpoint, for the matrix files × harms."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from core.train.keep import checkpoint

from .judge import must

__all__ = ["HARMS", "harmed"]

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


HARMS: Mapping[str, Harm] = {
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
