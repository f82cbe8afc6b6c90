"""Files of ours on a disk: a small one is whole or not there, also for who reads meanwhile; how much a folder takes.

.tmp-NAME-THREAD.PROCESS.part ─► written (and made durable) ─► renamed to NAME
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeGuard

__all__ = ["drafted", "file_sha256", "folder_bytes", "is_full", "make_durable", "name_of", "write_whole"]


@contextmanager
def drafted(target: Path) -> Iterator[Path]:
    """A place beside ``target`` to write it; it takes the name when the block ends well, and goes when it does not."""
    draft = target.with_name(f".tmp-{target.name}-{threading.get_native_id()}.{os.getpid()}.part")
    try:
        yield draft
        draft.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def write_whole(target: Path, content: bytes | str, *, mode: int = 0o666, durable: bool = False) -> None:
    """Writes a small file, whole or not at all; text as UTF-8.

    Args:
        mode: who may read it, less what the process takes from everybody (umask).
        durable: it still stands after the power went.

    Raises:
        OSError: the disk is full, or nothing may be written there; what stood there stands.
    """
    with drafted(target) as draft:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())


def make_durable(path: Path) -> None:
    """Has a file, or a folder's list of names, on the disk itself: it still stands after the power went."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_full(error: BaseException) -> TypeGuard[OSError]:
    """Whether the disk, or this user's share of it, had no room."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def file_sha256(path: Path) -> str:
    """The content hash of a file, hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def name_of(parts: Sequence[object]) -> str:
    """A name for what follows from these values (of JSON's kinds) alone and is kept under it: 32 hexadecimal digits."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def folder_bytes(folder: Path, besides: str = "") -> int:
    """What all files under a folder take, but those of this name; what vanishes meanwhile takes nothing."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            if name != besides:
                with contextlib.suppress(OSError):
                    total += os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118 - of thousands of files
    return total
