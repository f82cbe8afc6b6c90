"""The kept copy of a chosen file, ``data/HASH/NAME``, so that a run does not depend on the person's file.

The copy is hashed while it is written to a temporary file, then renamed. A copy whose content does not match its
folder's hash is replaced when the file is kept again, and is no source itself.
"""

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import TypeAdapter

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
    """Where the copy lies, its content hash (hex) and its name."""

    path: Path
    sha256: str
    name: str


KEPT_FILE = TypeAdapter(KeptFile)
"""For JSON between processes."""


def keep_file(source: Path, locations: Locations, name: str = "") -> KeptFile:
    """Copies ``source`` into the data folder, once per content, under its own name or another ``name``.

    Raises:
        DataError: the file may not be read as data (``admission``) or is a damaged kept copy, or the disk is full.
    """
    descriptor, place = opened(source, locations.home)
    with os.fdopen(descriptor, "rb") as stream:
        size = os.fstat(descriptor).st_size
        if promised := promised_sha256(place, locations.data):
            actual = hashlib.file_digest(stream, "sha256").hexdigest()
            if actual != promised:
                raise damaged(place, promised, actual)
            return KeptFile(place, promised, place.name)
        name = name or named(source, place).name
        what = f"a copy of {name} ({size:,} bytes)"
        with contextlib.suppress(OSError):  # the root folder does not exist yet
            free = shutil.disk_usage(locations.home).free
            if free < size + _SPARE_BYTES:
                raise DataError("data.copy", what=what, found=f"{free:,} bytes free")
        return keep_blocks(blocks_of(stream, place), name, locations, what)


def promised_sha256(path: Path, data: Path) -> str:
    """The content hash in a path ``data/HASH/NAME``; empty for other paths."""
    folder = path.resolve().parent
    return folder.name if folder.parent == data.resolve() and _HASH.fullmatch(folder.name) else ""


def damaged(path: Path, expected: str, actual: str) -> DataError:
    """The error for a kept copy whose content does not have the hash of its folder."""
    return DataError(
        "data.damaged/kept_copy", name=path.name, expected=expected[:_SHORT], found=actual[:_SHORT], path=path
    )


def keep_blocks(blocks: Iterable[bytes], name: str, locations: Locations, what: str) -> KeptFile:
    """Keeps what ``blocks`` yield under its content hash; ``what`` names it in the message about a full disk.

    Raises:
        DataError: nothing can be written there; and whatever ``blocks`` raise.
    """
    # Plain characters, for paths, YAML and command lines; its suffix, which decides how the file is read, stays.
    stem = re.sub(r"[^\w.\-]+", "_", Path(name).stem, flags=re.ASCII).lstrip("._") or "data"
    suffix = re.sub(r"[^A-Za-z0-9]+", "", Path(name).suffix)
    name = f"{stem[:100]}.{suffix[:20]}" if suffix else stem[:100]
    digest, room = hashlib.sha256(), Room(locations.data)
    incoming: Path | None = None
    try:
        locations.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(locations.data.glob(".incoming-*"))
        handle, raw = tempfile.mkstemp(prefix=f".incoming-{os.getpid()}-", dir=locations.data)
        incoming = Path(raw)
        with os.fdopen(handle, "wb") as writing:
            for block in blocks:
                room.take(len(block))
                digest.update(block)
                writing.write(block)
            writing.flush()
            os.fsync(handle)
        sha256 = digest.hexdigest()
        target = locations.data / sha256 / name
        if _sha256_of(target) != sha256:
            target.parent.mkdir(mode=0o700, exist_ok=True)
            incoming.replace(target)
    except OSError as error:
        raise DataError("data.copy", what=what, found=error.strerror or str(error)) from error
    finally:
        if incoming:
            incoming.unlink(missing_ok=True)
    return KeptFile(target, sha256, name)


def _sha256_of(kept: Path) -> str:
    """The content hash of a kept copy; empty where there is no plain file."""
    try:
        with os.fdopen(open_plain(kept), "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


def blocks_of(stream: BinaryIO, source: Path) -> Iterator[bytes]:
    """The bytes that a file has now, in blocks of a megabyte; what is appended meanwhile is not read. Raises
    DataError."""
    try:
        size = os.fstat(stream.fileno()).st_size
        while size > 0 and (block := stream.read(min(_BLOCK, size))):
            size -= len(block)
            yield block
    except OSError as error:
        raise DataError("data.unreadable/permission", path=source, reason=error.strerror or error) from error
