"""File locks: one run a card, one supervisor a job, one writer a log.

An flock belongs to the open file, not to a process: a child that inherits the descriptor holds it too, and it ends with
the last holder, however that dies.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.machine.disk import open_plain

_RETRY_SECONDS = 0.02
_PROBE_SECONDS = 0.1
"""``is_held`` takes a lock for microseconds: a try without waiting is repeated for so long."""


class FileLock:
    """An exclusive flock on a file, created when missing; inherited only where its descriptor is passed on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def acquire(self, seconds: float = 0.0) -> bool:
        """Takes the lock, waiting at most so long; True when it is ours, also if it was before."""
        if self._descriptor >= 0:
            return True
        descriptor = open_plain(self.path, os.O_RDWR | os.O_CREAT)
        deadline = time.monotonic() + max(seconds, _PROBE_SECONDS)
        while not _try(descriptor, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return False
            time.sleep(_RETRY_SECONDS)
        self._descriptor = descriptor
        return True

    def inherit(self, descriptor: int) -> bool:
        """Uses a descriptor that our parent passed to us; False where it is not of this file."""
        try:
            mine, its = self.path.stat(), os.fstat(descriptor)
        except OSError:
            return False
        if (mine.st_dev, mine.st_ino) != (its.st_dev, its.st_ino) or not _try(descriptor, fcntl.LOCK_EX):
            return False
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        return True

    def fileno(self) -> int:
        """The open descriptor (-1 while not held), for ``pass_fds``."""
        return self._descriptor

    def release(self) -> None:
        """Closes our descriptor; whoever inherited it keeps the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_held(path: Path) -> bool:
    """Whether anyone holds the lock on this file; a missing file is not created."""
    try:
        descriptor = open_plain(path)
    except OSError:
        return False
    try:
        return not _try(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock on a file during the block, for changes that take milliseconds."""
    lock = FileLock(path)
    lock.acquire(float("inf"))
    try:
        yield
    finally:
        lock.release()


def _try(descriptor: int, mode: int) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
