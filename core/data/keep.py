"""A chosen file is copied once into ``data/HASH/NAME``, so that a run never depends on what the person does with
theirs.

The copy is streamed through SHA-256 into a temporary file beside its place and renamed when whole: an interrupted copy
leaves nothing that looks like a kept file, and the same content is kept once however often it is chosen. What is made
here (a mixture, a fetched data set) is kept by the same function: ``keep_blocks``.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from core.contract.errors import DataError
from core.locations import Locations

__all__ = ["KeptFile", "blocks_of", "keep_blocks", "keep_file"]

_BLOCK = 1 << 20


@dataclass(frozen=True)
class KeptFile:
    """Where the copy lies, its content hash (hex), its name and its size."""

    path: Path
    sha256: str
    name: str
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """As it crosses a pipe."""
        return {**self.__dict__, "path": str(self.path)}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> KeptFile:
        """As it came over a pipe."""
        return cls(**{**raw, "path": Path(raw["path"])})


def keep_file(source: Path, locations: Locations, name: str = "") -> KeptFile:
    """Copies ``source`` into the data folder, once per content, under its own name or another ``name``.

    Raises:
        DataError: the file is missing, empty, no file, unreadable, or the disk is full.
    """
    size = _check(source)
    name = name or source.name
    return keep_blocks(blocks_of(source), name, locations, f"a copy of {name} ({size:,} bytes)")


def keep_blocks(blocks: Iterable[bytes], name: str, locations: Locations, what: str) -> KeptFile:
    """Keeps what ``blocks`` yield under its content hash; ``what`` it is, for the line about a full disk.

    Raises:
        DataError: the disk is full, or nothing may be written there; and whatever ``blocks`` raise.
    """
    name = _safe_name(name)
    incoming: Path | None = None
    try:
        locations.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(locations.data)
        handle, raw = tempfile.mkstemp(prefix=f".incoming-{os.getpid()}-", dir=locations.data)
        incoming = Path(raw)
        sha256 = _copy(blocks, handle)
        target = locations.data / sha256 / name
        if not target.exists():
            target.parent.mkdir(mode=0o700, exist_ok=True)
            incoming.replace(target)
    except OSError as error:
        raise DataError(
            "data.copy",
            f"Expected room for {what}, found: {error.strerror or error}.",
            "Free some disk space, or move Luthier's folder with --home.",
        ) from error
    finally:
        if incoming:
            incoming.unlink(missing_ok=True)
    return KeptFile(target, sha256, name, target.stat().st_size)


def _check(source: Path) -> int:
    with _reading(source):
        if not source.is_file():
            raise DataError("data.missing", f"Expected a data file, found none at {source}.", "Choose the file again.")
        size = source.stat().st_size
    if size == 0:
        raise DataError("data.empty", f"Expected rows, found an empty file: {source.name}.", "Choose another file.")
    return size


def _sweep(folder: Path) -> None:
    """Removes what processes that were ended left on its way in."""
    for left in folder.glob(".incoming-*"):
        pid = left.name.split("-")[1]
        if not (pid.isdigit() and psutil.pid_exists(int(pid))):
            left.unlink(missing_ok=True)


def _copy(blocks: Iterable[bytes], handle: int) -> str:
    digest = hashlib.sha256()
    with os.fdopen(handle, "wb") as writing:
        for block in blocks:
            digest.update(block)
            writing.write(block)
        writing.flush()
        os.fsync(writing.fileno())
    return digest.hexdigest()


def blocks_of(source: Path) -> Iterator[bytes]:
    """The bytes of a file, a megabyte at a time. Raises DataError where it cannot be read."""
    with _reading(source):
        stream = source.open("rb")
    with stream:
        while True:
            with _reading(source):
                block = stream.read(_BLOCK)
            if not block:
                return
            yield block


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    """Only what reads the source stands in here: a fault of the disk that is written to is another line."""
    try:
        yield
    except OSError as error:
        message = f"Expected a file that can be read at {source}, found: {error.strerror or error}."
        raise DataError("data.unreadable", message, "Change its permissions, or choose another file.") from error


def _safe_name(name: str) -> str:
    """A file name of plain characters: it goes into paths, YAML and command lines. The suffix decides how the file is
    read, so it is cleaned apart and stays where nothing of the stem does."""
    stem = re.sub(r"[^\w.\-]+", "_", Path(name).stem, flags=re.ASCII).lstrip("._") or "data"
    suffix = re.sub(r"[^A-Za-z0-9]+", "", Path(name).suffix)
    return f"{stem[:100]}.{suffix[:20]}" if suffix else stem[:100]
