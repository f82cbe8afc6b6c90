"""Whether the folder that a process works for still stands: not deleted, not moved, not another one under its name.

Whoever deletes the folder of a living run by hand leaves its processes behind, which nobody sees any more: they write
into files without a name, and what looks for the run finds nothing. So its supervisor looks itself, and so does the
worker, whose supervisor may be dead.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.runs.folder.job_folder import JobFolder

LOOK_SECONDS = 1.0


class Standing:
    """The folder and its log as they were when they were first seen."""

    def __init__(self, folder: JobFolder) -> None:
        self._places = (folder.path, folder.events)
        self._seen: dict[Path, tuple[int, int]] = {}
        self.gone()

    def gone(self) -> bool:
        """Whether one of both is not there any more, or is another one. Costs two looks."""
        for place in self._places:
            try:
                entry = os.lstat(place)
            except FileNotFoundError:
                if place in self._seen:
                    return True
                continue
            except OSError:
                continue  # it cannot be seen now: no reason to end anything
            now = (entry.st_dev, entry.st_ino)
            if self._seen.setdefault(place, now) != now:
                return True
        return False

    def check(self) -> None:
        """Raises OSError where it is gone: there is nobody to tell, and nothing to keep."""
        if self.gone():
            raise OSError(f"{self._places[0]} was deleted or moved while it was being worked on")


@contextmanager
def ending_with_the_folder(folder: JobFolder) -> Iterator[None]:
    """While the block lasts, this process ends at once when the folder that it works for is gone."""
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
