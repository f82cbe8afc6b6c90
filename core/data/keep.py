"""A chosen file is copied once into ``data/HASH/NAME``, so that a run never depends on what the person does with
theirs.

The copy is streamed through SHA-256 into a temporary file beside its place and renamed when whole: an interrupted copy
leaves nothing that looks like a kept file, and the same content is kept once however often it is chosen.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from core.contract.errors import DataError
from core.locations import Locations

__all__ = ["KeptFile", "file_sha256", "keep_file"]

_BLOCK = 1 << 20


@dataclass(frozen=True)
class KeptFile:
    """Where the copy lies, its content hash (hex), its name and its size."""

    path: Path
    sha256: str
    name: str
    bytes: int


def keep_file(source: Path, locations: Locations) -> KeptFile:
    """Copies ``source`` into the data folder, once per content.

    Raises:
        DataError: the file is missing, empty, no file, unreadable, or the disk is full.
    """
    size = _check(source)
    locations.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = _safe_name(source.name)
    handle, raw = tempfile.mkstemp(prefix=".incoming-", dir=locations.data)
    incoming = Path(raw)
    try:
        sha256 = _copy(source, handle)
        target = locations.data / sha256 / name
        if not target.exists():
            target.parent.mkdir(mode=0o700, exist_ok=True)
            incoming.replace(target)
    except OSError as error:
        raise DataError(
            "data.copy",
            f"Expected room for a copy of {source.name} ({size:,} bytes), found: {error.strerror or error}.",
            "Free some disk space, or move Luthier's folder with --home.",
        ) from error
    finally:
        incoming.unlink(missing_ok=True)
    return KeptFile(target, sha256, name, target.stat().st_size)


def file_sha256(path: Path) -> str:
    """The content hash of a file, hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check(source: Path) -> int:
    if not source.is_file():
        raise DataError("data.missing", f"Expected a data file, found none at {source}.", "Choose the file again.")
    size = source.stat().st_size
    if size == 0:
        raise DataError("data.empty", f"Expected rows, found an empty file: {source.name}.", "Choose another file.")
    return size


def _copy(source: Path, handle: int) -> str:
    digest = hashlib.sha256()
    with source.open("rb") as reading, os.fdopen(handle, "wb") as writing:
        while block := reading.read(_BLOCK):
            digest.update(block)
            writing.write(block)
        writing.flush()
        os.fsync(writing.fileno())
    return digest.hexdigest()


def _safe_name(name: str) -> str:
    """A file name of plain characters, its suffix kept: the name goes into paths, YAML and command lines."""
    cleaned = re.sub(r"[^\w.\-]+", "_", name, flags=re.ASCII).strip("._") or "data"
    return cleaned[-120:]
