"""How much of the disk reading may take: a small Parquet file may hold gigabytes of repeated values, and runs need room
to save.
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
    """Limits what is written into a folder, in proportion to ``read_bytes``, the size of the file that is read."""

    def __init__(self, folder: Path, read_bytes: int | None = None) -> None:
        self._folder = folder
        self._most = math.inf if read_bytes is None else LEAST_BYTES + TIMES * read_bytes
        self._taken = self._looked = 0

    def take(self, count: int) -> None:
        """Counts bytes that are about to be written.

        Raises:
            DataError: more than the limit (``data.swells``).
            OSError: ENOSPC: the disk is nearly full.
        """
        self._taken += count
        if self._taken > self._most:
            raise DataError("data.swells", most=self._most / 2**30)
        if self._taken >= self._looked + _STEP:
            self._looked = self._taken
            if shutil.disk_usage(self._folder).free < SPARE_BYTES:
                raise OSError(errno.ENOSPC, "No space left but what runs need", str(self._folder))


def forget_oldest(kept: Iterable[tuple[Path, Path]]) -> None:
    """Removes the pairs used longest ago until the rest takes at most ``CACHE_BYTES``. A pair is a small file, whose
    time is that of the last use, and a large one. Those used within ``IN_USE_SECONDS`` stay."""
    entries = []
    for small, large in kept:
        with suppress(OSError):
            entries.append((small.stat().st_mtime, large.stat().st_size, small, large))
    room, idle = CACHE_BYTES, time.time() - IN_USE_SECONDS
    for used, size, small, large in sorted(entries, reverse=True):
        room -= size
        if room < 0 and used < idle:
            small.unlink(missing_ok=True)
            large.unlink(missing_ok=True)


def sweep(left: Iterable[Path]) -> None:
    """Removes unfinished files of processes that have ended; their names hold the process id between dots or dashes."""
    for path in left:
        pids = re.findall(r"[.-](\d+)(?=[.-])", path.name)
        if not (pids and psutil.pid_exists(int(pids[-1]))):
            path.unlink(missing_ok=True)
