"""Whether a job's folder still exists: not deleted, moved or replaced.

Whoever deletes a living run's folder by hand leaves processes that nobody sees. So the supervisor looks itself, and so
does the worker, whose supervisor may be dead.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.runs.folder.job_folder import JobFolder

LOOK_SECONDS = 1.0


class Standing:
    """The folder and its log, by device and inode as first seen."""

    def __init__(self, folder: JobFolder) -> None:
        self._places = (folder.path, folder.events)
        self._seen: dict[Path, tuple[int, int]] = {}
        self.gone()

    def gone(self) -> bool:
        """Whether one of both is missing or replaced. Costs two lstat calls."""
        for place in self._places:
            try:
                entry = os.lstat(place)
            except FileNotFoundError:
                if place in self._seen:
                    return True
                continue
            except OSError:
                continue  # not known now
            now = (entry.st_dev, entry.st_ino)
            if self._seen.setdefault(place, now) != now:
                return True
        return False

    def check(self) -> None:
        """Raises OSError where it is gone."""
        if self.gone():
            raise OSError(f"{self._places[0]} was deleted or moved while it was being worked on")


@contextmanager
def ending_with_the_folder(folder: JobFolder) -> Iterator[None]:
    """During the block, this process ends at once when its folder is gone."""
    standing, over = Standing(folder), threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            if standing.gone():
                os._exit(os.EX_NOINPUT)

    threading.Thread(target=look, name="standing", daemon=True).start()
    try:
        yield
    finally:
        over.set()
