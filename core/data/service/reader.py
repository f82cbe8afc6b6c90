"""The reader as the studio asks it: a quick first look, and a whole check in slices with progress."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from core.contract.config import DataChoice
from core.contract.data import DataReport, Example
from core.contract.errors import DataError
from core.contract.methods import Method
from core.data.files.admission import admitted, named
from core.data.files.example_file import examples_in
from core.data.files.keep import KeptFile, damaged, promised_sha256
from core.data.read.demands import report_for
from core.machine.children.pipe import Child, Limits, stopped
from core.machine.locations import ASSETS, Locations
from core.machine.textfile import ACCEPTED, one_line

SLICE_SECONDS = 0.04
"""Whoever asks of another file while one is checked waits for a slice or two."""
LOOK_SECONDS = 0.4
READER = Limits(seconds=5, start_seconds=60, memory_bytes=500 << 20, walled=True)
"""``seconds`` for a slice, which is 0.04 s of work and the rest of a row."""
Progress = Callable[[int, int, int], None]
"""(done, in all, rows so far): bytes of a file that is read, else rows; 0 in all where that is unknown."""
Cancelled = Callable[[], bool]


def no_progress(_done: int, _total: int, _rows: int) -> None:
    """Ignores progress."""


def never() -> bool:
    """Never cancels."""
    return False


NO_DATA = frozenset({
    "data.missing", "data.empty", "data.format", "data.unreadable", "data.parquet", "data.json", "data.json_shape",
    "data.encoding", "data.time", "data.changed",
})  # fmt: skip
"""Codes of files whose content is no data."""


class ReadFile(NamedTuple):
    """The report of a file, and where its Examples are: all of them, those too that the report leaves out."""

    report: DataReport
    examples: str

    @property
    def name(self) -> str:
        """The file's name."""
        return Path(self.report.path).name

    def under(self, method: Method | None) -> "ReadFile":
        """The file for a method (None: the one that suits its rows). Raises DataError as ``report_for`` does."""
        return self._replace(report=report_for(self.report, method))

    def rows(self) -> Iterator[Example]:
        """The rows that the report does not leave out."""
        return examples_in(Path(self.examples), self.report.left_out)


class Reader:
    """Files as reports and Examples. Thread-safe; every method may raise DataError.

    Where a path may come from a browser (``guarded``), a path outside of our own folders is refused with the same
    message whether nothing is there, it may not be read, or it is no data.
    """

    def __init__(self, child: Child, locations: Locations, guarded: bool = False, promised: bool = True) -> None:
        """``promised``: a kept copy must have the hash of its folder."""
        self.slice_seconds, self.look_seconds = SLICE_SECONDS, LOOK_SECONDS
        self._child = child
        self._home, self._cache, self._data = locations.home, locations.cache / "data", locations.data
        self._guarded, self._promised = guarded, promised
        self._at_work: set[tuple[Path, str]] = set()
        """Files whose check goes on, and their choices."""
        self._ours = [folder.resolve() for folder in (locations.data, locations.uploads, ASSETS)]

    def columns(self, path: Path) -> tuple[str, ...]:
        """The columns of a file."""
        return tuple(self.ask({"do": "columns"}, path))

    def know(self, kept: KeptFile) -> None:
        """Tells the child the content hash of a file that was just kept."""
        self.ask({"do": "know", "sha256": kept.sha256}, kept.path)

    def look(self, path: Path, choice: DataChoice, seconds: float = 0.0) -> ReadFile:
        """Report and Examples of the first rows, or of all where these are read within ``seconds`` (0: a default)."""
        return self._read(self.ask(self._request("look", choice, seconds or self.look_seconds), path))

    def known(self, path: Path, choice: DataChoice) -> ReadFile | None:
        """What ``check`` returns where the file was checked before, and None, without any work, where it was not."""
        if _key(path, choice) in self._at_work:
            return None  # without waiting for a slice
        answer = self.ask(self._request("known", choice), path)
        return self._read(answer) if answer else None

    def check(
        self, path: Path, choice: DataChoice, on_progress: Progress = no_progress, cancelled: Cancelled = never
    ) -> ReadFile:
        """Report and Examples of the whole file; at once where it was checked before.

        Raises:
            DataError: as reading does; a damaged kept copy; ``data.stopped`` where ``cancelled()`` is true.
        """
        request = self._request("check", choice, self.slice_seconds)
        try:
            while True:
                if cancelled():
                    self.ask(self._request("drop", choice), path)
                    raise stopped(path.name)
                so_far = self.ask(request, path)
                request["begun"] = True
                on_progress(so_far["bytes"], so_far["size"], so_far["rows"])
                if so_far["done"]:
                    return self._read(so_far)
                self._at_work.add(_key(path, choice))
        finally:
            self._at_work.discard(_key(path, choice))

    def _read(self, answer: dict[str, Any]) -> ReadFile:
        """The child's answer. Raises DataError where a kept copy does not have the hash of its folder."""
        report = DataReport.model_validate(answer["report"])
        place = Path(report.path)
        promised = promised_sha256(place, self._data) if self._promised else ""
        if promised and report.complete and report.sha256 != promised:
            raise damaged(place, promised, report.sha256)
        return ReadFile(report, answer["examples"])

    def _request(self, do: str, choice: DataChoice, seconds: float = 0.0) -> dict[str, Any]:
        asked = {"layout": choice.layout, "columns": choice.columns}
        return {"do": do, "cache": str(self._cache), "choice": asked, "seconds": seconds}

    def place(self, path: Path) -> Path:
        """Where a path leads, if that may be read as data."""
        try:
            return admitted(path, self._home)
        except DataError as error:
            raise _refused(path) if self._guarded else error from error

    def ask(self, request: dict[str, Any], path: Path) -> Any:
        """The child's answer to a request about a file, which may be read."""
        place = self.place(path)
        try:
            asked = {**request, "path": str(place), "named": str(named(path, place))}
            return self._child.ask(asked, path.name)
        except DataError as error:
            begun = request.get("begun")  # its progress was shown already
            if error.code not in NO_DATA or begun or not self._guarded or any(map(place.is_relative_to, self._ours)):
                raise
            raise _refused(path) from error


def _key(path: Path, choice: DataChoice) -> tuple[Path, str]:
    return path, choice.model_dump_json(include={"layout", "columns"})


def _refused(path: Path) -> DataError:
    return DataError("data.missing/refused", accepted=ACCEPTED, path=one_line(str(path), 300))
