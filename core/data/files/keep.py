"""A chosen file is copied once into ``data/HASH/NAME``, so that a run never depends on what the person does with
theirs.

The copy is streamed through SHA-256 into a temporary file beside its place and renamed when whole: an interrupted copy
leaves nothing that looks like a kept file, and the same content is kept once however often it is chosen. What is made
here (a mixture, a fetched data set) is kept by the same function: ``keep_blocks``.

Disks err and people edit: a copy is believed only where its content has the hash that its folder is named by. A damaged
one is replaced by what was just read, and one that is itself the source is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from core.contract.errors import DataError
from core.data.files.admission import named, opened
from core.data.files.disk_room import Room, sweep
from core.machine.disk import open_plain
from core.machine.locations import Locations

_BLOCK = 1 << 20
_HASH = re.compile(r"[0-9a-f]{64}")
_SHORT = 12
_SPARE_BYTES = 200 << 20


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
        DataError: the file is none that may be read as data (``admission``), a kept copy that is damaged, or the disk
            is full.
    """
    descriptor, place = opened(source, locations.home)
    with os.fdopen(descriptor, "rb") as stream:
        size = os.fstat(descriptor).st_size
        name = name or named(source, place).name
        what = f"a copy of {name} ({size:,} bytes)"
        with contextlib.suppress(OSError):  # nothing was ever kept: the folder is made a moment later
            free = shutil.disk_usage(locations.home).free
            if free < size + _SPARE_BYTES:  # a disk that is filled to the brim stops runs
                raise _no_room(what, f"{free:,} bytes free")
        promised = promised_sha256(place, locations.data)
        return keep_blocks(_blocks(stream, place, size), name, locations, what, promised)


def promised_sha256(path: Path, data: Path) -> str:
    """The content hash that a path says by its place, ``data/HASH/NAME``; empty anywhere else."""
    folder = path.resolve().parent
    return folder.name if folder.parent == data.resolve() and _HASH.fullmatch(folder.name) else ""


def damaged(path: Path, expected: str, found: str) -> DataError:
    """What is said of a kept copy whose content is not what it was kept for."""
    return DataError(
        "data.damaged/kept_copy", name=path.name, expected=expected[:_SHORT], found=found[:_SHORT], path=path
    )


def keep_blocks(blocks: Iterable[bytes], name: str, locations: Locations, what: str, promised: str = "") -> KeptFile:
    """Keeps what ``blocks`` yield under its content hash; ``what`` it is, for the line about a full disk.

    ``promised``: the hash that it must have, where that is known.

    Raises:
        DataError: the content is not what was promised, the disk is full, or nothing may be written there; and
            whatever ``blocks`` raise.
    """
    name = _safe_name(name)
    incoming: Path | None = None
    try:
        locations.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(locations.data.glob(".incoming-*"))
        handle, raw = tempfile.mkstemp(prefix=f".incoming-{os.getpid()}-", dir=locations.data)
        incoming = Path(raw)
        sha256 = _copy(blocks, handle, Room(locations.data))
        target = locations.data / sha256 / name
        if promised not in ("", sha256):
            raise damaged(locations.data / promised / name, promised, sha256)
        if _sha256_of(target) != sha256:
            target.parent.mkdir(mode=0o700, exist_ok=True)
            incoming.replace(target)
    except OSError as error:
        raise _no_room(what, error.strerror or str(error)) from error
    finally:
        if incoming:
            incoming.unlink(missing_ok=True)
    return KeptFile(target, sha256, name, target.stat().st_size)


def _no_room(what: str, found: str) -> DataError:
    return DataError("data.copy", what=what, found=found)


def _copy(blocks: Iterable[bytes], handle: int, room: Room) -> str:
    digest = hashlib.sha256()
    with os.fdopen(handle, "wb") as writing:
        for block in blocks:
            room.take(len(block))
            digest.update(block)
            writing.write(block)
        writing.flush()
        os.fsync(writing.fileno())
    return digest.hexdigest()


def _sha256_of(kept: Path) -> str:
    """The content hash of a kept copy; empty where there is none, or something that is no plain file."""
    try:
        with os.fdopen(open_plain(kept), "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


def blocks_of(source: Path) -> Iterator[bytes]:
    """The bytes of a file, a megabyte at a time. Raises DataError where it cannot be read."""
    with _reading(source):
        stream = source.open("rb")
    with stream:
        yield from _blocks(stream, source, stream.seek(0, os.SEEK_END))


def _blocks(stream: BinaryIO, source: Path, size: int) -> Iterator[bytes]:
    """No more than ``size`` bytes: what is written to a file meanwhile belongs to another reading."""
    stream.seek(0)
    while size > 0:
        with _reading(source):
            block = stream.read(min(_BLOCK, size))
        if not block:
            return
        size -= len(block)
        yield block


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    """Only what reads the source stands in here: a fault of the disk that is written to is another line."""
    try:
        yield
    except OSError as error:
        raise DataError("data.unreadable/permission", path=source, reason=error.strerror or error) from error


def _safe_name(name: str) -> str:
    """A file name of plain characters: it goes into paths, YAML and command lines. The suffix decides how the file is
    read, so it is cleaned apart and stays where nothing of the stem does."""
    stem = re.sub(r"[^\w.\-]+", "_", Path(name).stem, flags=re.ASCII).lstrip("._") or "data"
    suffix = re.sub(r"[^A-Za-z0-9]+", "", Path(name).suffix)
    return f"{stem[:100]}.{suffix[:20]}" if suffix else stem[:100]
