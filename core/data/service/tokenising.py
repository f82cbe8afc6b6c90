"""Rows as tokens for the studio: made by the renderer part by part, kept in the token cache, measured from there.

Between two parts the renderer is free for a preview. Lengths of a large file are of a sample, until it is tokenised
whole by the studio in the background, or by the first run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from core.contract.errors import DataError
from core.data.tokens.cache import Entry, Source, entry_of
from core.data.tokens.facts import Measures
from core.machine.children.pipe import Child
from core.machine.locations import Locations

ALL_ROWS = 20_000
"""Of more rows a sample of SAMPLE_ROWS is measured."""
SAMPLE_ROWS = 2_000


@dataclass(frozen=True)
class Work:
    """What is tokenised: its source, the file of its Examples, and how many they are."""

    source: Source
    examples: str
    usable: int

    def request(self, do: str) -> dict[str, Any]:
        """The beginning of a request to the renderer."""
        return {
            "do": do,
            "examples": self.examples,
            "tokenizer": str(self.source.tokenizer_folder),
            "choice": self.source.choice.model_dump(mode="json"),
            "reads": self.source.reads,
            "left_out": self.source.left_out,
        }


class Tokenising:
    """Thread-safe; every method may raise DataError."""

    def __init__(self, renderer: Child, locations: Locations) -> None:
        self._renderer = renderer
        self._locations = locations

    def whole(self, work: Work, on_progress: Callable[[int, int], None], cancelled: Callable[[], bool]) -> bool:
        """Tokenises every row that is not kept yet; False when cancelled. ``on_progress`` gets (rows done, in all)."""
        entry = entry_of(self._locations, work.source)
        return entry.manifest() is not None or self._make(work, entry, 1, on_progress, cancelled)

    def measures(self, work: Work) -> Measures:
        """Lengths of all rows, or of a sample where the file is large and not tokenised whole."""
        entry, stride = self._entry(work)
        if not entry.manifest():
            self._make(work, entry, stride)
        try:
            return _measures(entry, work.source.pairs)
        except DataError:  # its parts were damaged or removed
            self._make(work, entry, stride)
            return _measures(entry, work.source.pairs)

    def kept(self, work: Work) -> Entry:
        """The entry that ``measures`` reads, made where it is missing."""
        self.measures(work)
        return self._entry(work)[0]

    def _entry(self, work: Work) -> tuple[Entry, int]:
        """The entry of the rows to measure, and its stride: every so-many-th row is in it."""
        stride = 1 if work.usable <= ALL_ROWS else work.usable // SAMPLE_ROWS
        whole = entry_of(self._locations, work.source)
        if stride == 1 or whole.manifest() is not None:
            return whole, 1
        return entry_of(self._locations, work.source, sample=stride), stride

    def _make(
        self,
        work: Work,
        entry: Entry,
        stride: int,
        on_progress: Callable[[int, int], None] = lambda _done, _total: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> bool:
        starts: list[int] = []
        counts = {"rows": 0, "tokens": 0, "refused": 0}
        start = 0
        while start < work.usable:
            if cancelled():
                return False
            on_progress(start, work.usable)
            request = work.request("tokenise")
            part = self._renderer.ask({**request, "entry": str(entry.folder), "start": start, "stride": stride})
            starts.append(start)
            for name in counts:
                counts[name] += part[name]
            start = part["next"]
        try:
            entry.finish(starts, {**work.source.about(), **counts})
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise DataError("data.cache/cleared") from error
            raise DataError("data.cache/disk", reason=error) from error
        on_progress(work.usable, work.usable)
        return True


@lru_cache(maxsize=4)
def _measures(entry: Entry, pairs: bool) -> Measures:
    """The measures of a complete entry. Raises DataError where it is not complete."""
    tables = entry.tables()
    if tables is None:
        raise DataError("data.cache/cleared")
    return Measures.of(tables, pairs)
