"""The reader as the window asks it: a first look that is there at once, and a whole check in slices with progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import DataReport
from core.contract.errors import DataError
from core.data.files.admission import admitted, named
from core.data.files.keep import KeptFile, damaged, promised_sha256
from core.data.files.mix import parts_of, to_json
from core.machine.children.pipe import Child, Limits, stopped
from core.machine.locations import ASSETS, Locations
from core.machine.textfile import ACCEPTED, one_line

__all__ = ["MAKER", "NO_DATA", "READER", "Cancelled", "Maker", "Progress", "Reader", "never", "no_progress"]

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

    Which files these may be ``admission`` says. Where a path may come from a browser (``guarded``), a refusal says
    nothing about what lies there: a path outside of our own folders gets the same words whether nothing is there,
    nothing may be read, or something that is no data. On the command line a person hears what is wrong.
    """

    def __init__(self, child: Child, locations: Locations, guarded: bool = False, promised: bool = True) -> None:
        """``promised``: a kept copy must be what it was kept for."""
        self.slice_seconds, self.look_seconds = SLICE_SECONDS, LOOK_SECONDS
        self._child = child
        self._home, self._cache, self._data = locations.home, locations.cache / "data", locations.data
        self._guarded, self._promised = guarded, promised
        self._ours = [folder.resolve() for folder in (locations.data, locations.uploads, ASSETS)]

    def columns(self, path: Path) -> tuple[str, ...]:
        """The columns of a file."""
        return tuple(self._ask({"do": "columns"}, path))

    def know(self, kept: KeptFile) -> None:
        """Tells the child the content hash of a file that was just kept."""
        self._ask({"do": "know", "sha256": kept.sha256}, kept.path)

    def look(self, path: Path, choice: DataChoice, seconds: float = 0.0) -> tuple[DataReport, str]:
        """Report and Examples of the first rows, or of all where these are read within ``seconds``
        (``report.complete``); 0: as long as a person looks without noticing."""
        return self._found(self._ask(self._request("look", choice, seconds or self.look_seconds), path))

    def check(
        self, path: Path, choice: DataChoice, on_progress: Progress = no_progress, cancelled: Cancelled = never
    ) -> tuple[DataReport, str]:
        """Report and Examples of the whole file; at once where it was checked before.

        Raises:
            DataError: as reading does; a kept copy that is damaged; ``data.stopped`` where ``cancelled()`` said yes.
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
                return self._found(found)

    def _found(self, answer: dict[str, Any]) -> tuple[DataReport, str]:
        """What was read; a kept copy is held to the content hash that its folder is named by."""
        report = DataReport.model_validate(answer["report"])
        place = Path(report.path)
        promised = promised_sha256(place, self._data) if self._promised else ""
        if promised and report.complete and report.sha256 != promised:
            raise damaged(place, promised, report.sha256)
        return report, answer["examples"]

    def _request(self, do: str, choice: DataChoice, seconds: float = 0.0) -> dict[str, Any]:
        asked = {"layout": choice.layout, "columns": choice.columns}
        return {"do": do, "cache": str(self._cache), "choice": asked, "seconds": seconds}

    def _ask(self, request: dict[str, Any], path: Path) -> Any:
        try:
            place = admitted(path, self._home)
        except DataError as error:
            raise _refused(path) if self._guarded else error from error
        try:
            asked = {**request, "path": str(place), "named": str(named(path, place))}
            return self._child.ask(asked, path.name)
        except DataError as error:
            begun = request.get("begun")  # rows of it were shown already
            if error.code not in NO_DATA or begun or not self._guarded or any(map(place.is_relative_to, self._ours)):
                raise
            raise _refused(path) from error


def _refused(path: Path) -> DataError:
    return DataError(
        "data.missing",
        f"Expected a data file that can be read ({ACCEPTED}; text as UTF-8) at {one_line(str(path), 300)}, found none.",
        "Check the path. Dropped here instead, a file is told what is wrong with it.",
    )


class Maker:
    """Data sets that are made here: a child for each, which ends with it."""

    def __init__(self, locations: Locations, limits: Limits = MAKER) -> None:
        self._home = locations.home
        self._limits = limits
        self._lock = threading.Lock()
        self._at_work: set[Child] | None = set()

    def close(self) -> None:
        """Ends what is being made; nothing begins after that."""
        with self._lock:
            at_work, self._at_work = self._at_work or set(), None
        for child in at_work:
            child.close()

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
        child = Child("core.data.service.maker_child", "maker", self._limits)
        with self._lock:
            if self._at_work is None:
                raise stopped(about)
            self._at_work.add(child)
        try:
            asked = {**request, "home": str(self._home)}
            return KeptFile.from_json(child.ask(asked, about, cancelled, lambda told: on_progress(*told)))
        finally:
            child.close()
            with self._lock:
                (self._at_work or set()).discard(child)
