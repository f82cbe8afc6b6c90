"""The reader as the window asks it: a first look that is there at once, and a whole check in slices with progress."""

from __future__ import annotations

import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import DataReport
from core.contract.errors import DataError
from core.data.keep import KeptFile
from core.data.mix import parts_of, to_json
from core.data.pipe import Child, Limits, stopped
from core.data.textfile import ACCEPTED, one_line
from core.locations import ASSETS, Locations

__all__ = ["MAKER", "READER", "Cancelled", "Maker", "Progress", "Reader", "never", "no_progress"]

SLICE_SECONDS = 0.2
LOOK_SECONDS = 0.4
READER = Limits(seconds=5, start_seconds=60, memory_bytes=500 << 20, walled=True)
"""A slice is a fifth of a second of work; what takes five seconds is no row."""
MAKER = Limits(seconds=120, start_seconds=60, memory_bytes=2 << 30)
"""``seconds`` of silence: every row that comes is told."""
Progress = Callable[[int, int, int], None]
"""(done, in all, rows so far): bytes for a file, rows for what is made; 0 in all where nobody knows."""
Cancelled = Callable[[], bool]


def no_progress(_done: int, _total: int, _rows: int) -> None:
    """For whoever does not want to know."""


def never() -> bool:
    """For whoever waits to the end."""
    return False


NO_DATA = frozenset({
    "data.missing", "data.empty", "data.format", "data.unreadable", "data.parquet", "data.json", "data.json_shape",
    "data.encoding", "data.time", "data.changed",
})  # fmt: skip
"""What is wrong with a file that is none by its content."""


class Reader:
    """Files as reports and lists of Examples. Thread-safe; every method may raise DataError.

    A path is resolved, links too, and must lead to a plain file. Where it may come from a browser (``ours`` is given),
    a refusal says nothing about what lies there: a path outside of our own folders gets the same words whether nothing
    is there, nothing may be read, or something that is no data. On the command line a person hears what is wrong.
    """

    def __init__(self, child: Child, cache: Path, ours: Sequence[Path] | None = None) -> None:
        self.slice_seconds, self.look_seconds = SLICE_SECONDS, LOOK_SECONDS
        self._child = child
        self._cache = cache
        self._ours = None if ours is None else [folder.resolve() for folder in (*ours, ASSETS)]

    def columns(self, path: Path) -> tuple[str, ...]:
        """The columns of a file."""
        return tuple(self._ask({"do": "columns"}, path))

    def look(self, path: Path, choice: DataChoice) -> tuple[DataReport, str]:
        """Report and Examples of the first rows, or of all where these are quickly read (``report.complete``)."""
        return _found(self._ask(self._request("look", choice, self.look_seconds), path))

    def check(
        self, path: Path, choice: DataChoice, on_progress: Progress = no_progress, cancelled: Cancelled = never
    ) -> tuple[DataReport, str]:
        """Report and Examples of the whole file; at once where it was checked before.

        Raises:
            DataError: as reading does; ``data.stopped`` where ``cancelled()`` said yes.
        """
        request = self._request("check", choice, self.slice_seconds)
        while True:
            if cancelled():
                self._ask(self._request("drop", choice), path)
                raise stopped(path.name)
            found = self._ask(request, path)
            request["begun"] = True
            on_progress(found["bytes"], found["size"], found["rows"])
            if found["done"]:
                return _found(found)

    def _request(self, do: str, choice: DataChoice, seconds: float = 0.0) -> dict[str, Any]:
        asked = {"layout": choice.layout, "columns": choice.columns}
        return {"do": do, "cache": str(self._cache), "choice": asked, "seconds": seconds}

    def _ask(self, request: dict[str, Any], path: Path) -> Any:
        place = _plain_file(path, empty=self._ours is None)
        if place is None:
            raise _refused(path, self._ours is None)
        try:
            return self._child.ask({**request, "path": str(place)}, path.name)
        except DataError as error:
            begun = request.get("begun")  # rows of it were shown already
            if error.code not in NO_DATA or begun or self._ours is None or any(map(place.is_relative_to, self._ours)):
                raise
            raise _refused(path) from error


def _plain_file(path: Path, empty: bool = False) -> Path | None:
    """Where a path leads, links followed; None where no plain file (with something in it) can be seen there.

    A pipe would hold its reader, and so would some of the system's own files, all of which say that they are empty.
    """
    try:
        place = path.resolve()
        found = place.stat()
        return place if stat.S_ISREG(found.st_mode) and (found.st_size or empty) else None
    except (OSError, RuntimeError, ValueError):  # not there, not ours to see, a link to itself, a \0 in the name
        return None


def _refused(path: Path, openly: bool = False) -> DataError:
    return DataError(
        "data.missing",
        f"Expected a data file that can be read ({ACCEPTED}; text as UTF-8) at {one_line(str(path), 300)}, found none.",
        "Check the path." if openly else "Check the path. Dropped here instead, a file is told what is wrong with it.",
    )


class Maker:
    """Data sets that are made here: a child for each, which ends with it."""

    def __init__(self, locations: Locations, limits: Limits = MAKER) -> None:
        self._home = locations.home
        self._limits = limits

    def mix(
        self,
        found: Sequence[tuple[DataReport, str, float]],
        name: str,
        seed: int,
        on_progress: Progress = no_progress,
        cancelled: Cancelled = never,
    ) -> KeptFile:
        """A mixture of files that were checked, each with its weight.

        Raises:
            DataError: parts that cannot be mixed, a full disk; ``data.stopped``.
        """
        parts = parts_of(found)
        request = {"do": "mix", "parts": to_json(parts), "name": name, "seed": seed}
        return self._made(request, name, on_progress, cancelled)

    def from_hub(
        self, asked: dict[str, Any], on_progress: Progress = no_progress, cancelled: Cancelled = never
    ) -> KeptFile:
        """A data set of the hub: ``{name, subset, split, rows_at_most}``.

        Raises:
            DataError: missing, gated, offline, no such subset or split, a full disk; ``data.stopped``.
        """
        return self._made({"do": "hub", **asked}, asked["name"], on_progress, cancelled)

    def _made(self, request: dict[str, Any], about: str, on_progress: Progress, cancelled: Cancelled) -> KeptFile:
        child = Child("core.data.maker_child", "maker", self._limits)
        try:
            asked = {**request, "home": str(self._home)}
            return KeptFile.from_json(child.ask(asked, about, cancelled, lambda told: on_progress(*told)))
        finally:
            child.close()


def _found(answer: dict[str, Any]) -> tuple[DataReport, str]:
    return DataReport.model_validate(answer["report"]), answer["examples"]
