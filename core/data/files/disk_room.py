"""How much of the disk reading may take. A Parquet file of a kilobyte may hold gigabytes, since a value that repeats is
kept once: what is written counts, and a disk is never filled to the brim (runs save their work there).
"""

import errno
import math
import re
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from core.contract.errors import DataError

LEAST_BYTES, TIMES = 1 << 30, 20
SPARE_BYTES = 512 << 20
CACHE_BYTES = 16 << 30
IN_USE_SECONDS = 3600.0
_STEP = 16 << 20


class Room:
    """Counts what is written into a folder; of what a file of ``read_bytes`` holds so much may come and no more."""

    def __init__(self, folder: Path, read_bytes: int | None = None) -> None:
        self._folder = folder
        self._most = math.inf if read_bytes is None else LEAST_BYTES + TIMES * read_bytes
        self._taken = self._looked = 0

    def take(self, count: int) -> None:
        """Says that so many bytes are about to be written.

        Raises:
            DataError: more than the file may swell to (``data.swells``).
            OSError: ENOSPC, since the disk is nearly full.
        """
        self._taken += count
        if self._taken > self._most:
            raise DataError("data.swells", most=self._most / 2**30)
        if self._taken >= self._looked + _STEP:
            self._looked = self._taken
            if shutil.disk_usage(self._folder).free < SPARE_BYTES:
                raise OSError(errno.ENOSPC, "No space left but what runs need", str(self._folder))


def forget_oldest(kept: Iterable[tuple[Path, Path]]) -> None:
    """Removes what was used longest ago until the rest is little enough: pairs of a small file, whose time says when
    it was used, and a large one. What was used within the hour stays."""
    found = []
    for said, large in kept:
        with suppress(OSError):
            found.append((said.stat().st_mtime, large.stat().st_size, said, large))
    room, idle = CACHE_BYTES, time.time() - IN_USE_SECONDS
    for used, size, said, large in sorted(found, reverse=True):
        room -= size
        if room < 0 and used < idle:
            said.unlink(missing_ok=True)
            large.unlink(missing_ok=True)


def sweep(left: Iterable[Path]) -> None:
    """Removes what processes that were ended left half written: files whose name holds the number of such a process
    between dots or dashes."""
    for path in left:
        pids = re.findall(r"[.-](\d+)(?=[.-])", path.name)
        if not (pids and psutil.pid_exists(int(pids[-1]))):
            path.unlink(missing_ok=True)
