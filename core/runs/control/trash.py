"""Deleted runs that can be had back for half a minute: ``runs/.deleted-MILLISECONDS-RUN``.

A run is put away and taken back by one rename within its own folder's parent, so that no disk is ever too full for it
and nothing is copied. The time is in the name: whoever looks next, this studio or one that starts later, deletes for
good what is older.
"""

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from core.contract.errors import RunError
from core.machine.disk import not_written
from core.machine.locations import Locations
from core.runs.control.create import throw_away
from core.runs.folder.job_folder import RUN_ID, JobFolder

UNDO_SECONDS = 30.0
_NAME = re.compile(rf"\.deleted-(\d{{1,15}})-({RUN_ID.pattern})", re.ASCII)


def put_away(folder: JobFolder) -> None:
    """Moves a run's folder out of the list.

    Raises:
        MachineError: the folder cannot be moved.
    """
    _move(folder.path, folder.path.with_name(f".deleted-{time.time_ns() // 1_000_000}-{folder.name}"))


def take_back(locations: Locations, run_id: str) -> JobFolder:
    """Moves a deleted run back.

    Raises:
        RunError: it is deleted for good.
        MachineError: the folder cannot be moved.
    """
    for _, path, name in sorted(_away(locations), reverse=True):
        if name == run_id:
            back = locations.runs / run_id
            with suppress(FileNotFoundError):  # emptied in this moment
                _move(path, back)
                return JobFolder(back)
    raise RunError("run.gone", run_id=run_id[:80])


def waiting(locations: Locations) -> list[tuple[Path, str, float]]:
    """The deleted runs that can still be had back, the latest first: folder, run id, seconds that are left."""
    now = time.time()
    known = sorted(_away(locations), reverse=True)
    return [(path, name, left) for at, path, name in known if 0 < (left := at + UNDO_SECONDS - now) <= UNDO_SECONDS]


def empty(locations: Locations) -> bool:
    """Deletes for good what was put away too long ago; whether something is left that will be."""
    standing = {path for path, _, _ in waiting(locations)}
    for _, path, _ in _away(locations):
        if path not in standing:
            with suppress(OSError):  # taken back or emptied by another in this moment
                throw_away(path)
    return bool(standing)


def _away(locations: Locations) -> Iterator[tuple[float, Path, str]]:
    """When each was put away, its folder, and the run's id."""
    with suppress(OSError):
        for path in list(locations.runs.iterdir()):
            if match := _NAME.fullmatch(path.name):
                yield int(match[1]) / 1000, path, match[2]


def _move(path: Path, to: Path) -> None:
    try:
        path.rename(to)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise not_written(path, error, "then try again") from error
