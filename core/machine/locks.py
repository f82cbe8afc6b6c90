"""File locks: one run a card, one supervisor a job, one writer a log.

A lock is an flock on an open file. It belongs to the *open file*, not to a process: a child that inherits the
descriptor holds it too, it ends with the last holder however that dies, and no pid that is used again can fool it.
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
"""A probe (``is_held``) takes a lock for microseconds; a try without waiting looks again for so long."""


class FileLock:
    """An exclusive flock on a file, created when missing. Not inherited unless its descriptor is passed on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def acquire(self, seconds: float = 0.0) -> bool:
        """Takes the lock, waiting at most so long; True when it is ours (a second time too)."""
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
        """Goes on with a descriptor that our parent passed to us; False where it is not one of this file."""
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
        """Closes our descriptor; the lock lives on in whoever inherited it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_held(path: Path) -> bool:
    """Whether anyone holds the lock on this file. Leaves no trace; a missing file is held by nobody."""
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
    """Holds the lock on a file for the length of a block: for changes that take milliseconds."""
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
