"""Where the rows of a file stand, so that any of them is read at once. An index grows in slices of time.

Of text it knows the byte of a row every 64 rows or 64 kB, and reads from there as the report does. Memory grows by 8
bytes a row.
"""

import os
import time
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from core.contract.errors import DataError
from core.data.read.cells import Record
from core.data.read.delimited import Dialect
from core.data.read.jsonstream import ROW_LIMIT
from core.data.read.sources import Source
from core.machine.textfile import Place, open_text

BLOCK_ROWS, _BLOCK_BYTES = 64, 64 << 10
MOST_ROWS = 10_000_000
"""Rows shown of a file."""
_READ_BYTES = 4 << 20
_MOST_SIZE = (1 << 31) - 1


class Index(ABC):
    """The rows of a file by their places, from 0. ``numbers`` are their row numbers, ascending, ``sizes`` about their
    characters."""

    def __init__(self) -> None:
        self.numbers, self.sizes = array("I"), array("I")
        self.complete = False

    def __len__(self) -> int:
        return len(self.numbers)

    def advance(self, seconds: float) -> None:
        """Works for about so long. Raises DataError where the file is broken before its first row; what comes behind a
        break is not known."""
        deadline = time.monotonic() + seconds
        try:
            while not self.complete and time.monotonic() < deadline:
                self.complete = self._step() or len(self) >= MOST_ROWS
        except (DataError, UnicodeDecodeError, OSError):
            if not len(self):
                raise
            self.complete = True

    @abstractmethod
    def _step(self) -> bool:
        """Takes some more rows; True at the end."""

    @abstractmethod
    def read(self, first: int) -> Iterator[Record]:
        """The known rows from this place on."""

    @abstractmethod
    def block(self, first: int) -> tuple[str, int] | None:
        """What stands in the file from the row at this place up to that at another one, and that place; None where
        that is not known without reading it."""

    def at(self, places: Iterable[int]) -> dict[int, Record]:
        """The rows at these places, by place."""
        found: dict[int, Record] = {}
        rows: Iterator[Record] = iter(())
        begin = 0
        for wanted in sorted(set(places)):
            if not begin <= wanted < begin + BLOCK_ROWS or not begin:
                rows, begin = self.read(wanted), wanted
            for record in rows:
                begin += 1
                if begin > wanted:
                    found[wanted] = record
                    break
        return found

    def places_of(self, numbers: Iterable[int]) -> NDArray[np.int64]:
        """The places of the rows with these numbers, ascending; of unknown ones none."""
        wanted = np.unique(numbers if isinstance(numbers, np.ndarray) else np.fromiter(numbers, np.int64))
        known = np.frombuffer(self.numbers, np.uint32) if len(self) else np.zeros(0, np.uint32)
        places = np.searchsorted(known, wanted)
        inside = places < len(known)
        found: NDArray[np.int64] = places[inside][known[places[inside]] == wanted[inside]].astype(np.int64)
        return found


class TextIndex(Index):
    """Rows of a text file, read one after another: CSV, JSON arrays, paragraphs."""

    def __init__(self, source: Source, encoding: str = "utf-8") -> None:
        super().__init__()
        self._source, self._encoding = source, encoding
        self._places, self._offsets, self._before = array("I", [0]), array("Q", [0]), array("I", [0])
        """The places of some rows, where they begin in the file, and the number of the row before each."""
        self._walk = self._steps(Place())

    def read(self, first: int) -> Iterator[Record]:
        """The known rows from this place on."""
        mark = bisect_right(self._places, first) - 1
        place = self._places[mark]
        start = Place(start=self._offsets[mark], rows=self._before[mark])
        for record in self._source.reading(start):
            if place >= len(self):
                return
            if place >= first:
                yield record
            place += 1

    def block(self, first: int) -> tuple[str, int] | None:
        """The text of a few rows, and the place behind them."""
        mark = bisect_right(self._places, first)
        if mark == len(self._places):
            return None
        with self._source.path.open("rb") as file:
            file.seek(self._offsets[mark - 1])
            text = file.read(self._offsets[mark] - self._offsets[mark - 1]).decode(self._encoding, "replace")
        return text, self._places[mark]

    def _step(self) -> bool:
        return next(self._walk, True)

    def _steps(self, place: Place) -> Iterator[bool]:
        for record in self._source.reading(place):
            self.numbers.append(record.row)
            self.sizes.append(min(record.size, _MOST_SIZE))
            behind = place.next - self._offsets[-1]
            if place.next > 0 and (len(self) - self._places[-1] >= BLOCK_ROWS or behind >= _BLOCK_BYTES):
                self._mark(len(self), place.next, record.row)
                yield False

    def _mark(self, place: int, offset: int, before: int) -> None:
        self._places.append(place)
        self._offsets.append(offset)
        self._before.append(before)

    def _add_all(self, starts: NDArray[np.int64], sizes: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Takes rows that begin at these bytes."""
        places = np.arange(len(self), len(self) + len(starts))
        blocks = np.diff(starts // _BLOCK_BYTES, prepend=self._offsets[-1] // _BLOCK_BYTES)
        for mark in np.flatnonzero((places % BLOCK_ROWS == 0) | (blocks > 0)).tolist():
            self._mark(int(places[mark]), int(starts[mark]), int(numbers[mark]) - 1)
        self.numbers.frombytes(numbers.astype(np.uint32).tobytes())
        self.sizes.frombytes(np.minimum(sizes, _MOST_SIZE).astype(np.uint32).tobytes())


class LineIndex(TextIndex):
    """Rows of UTF-8 text that are a line each: only their ends are looked for."""

    def __init__(self, source: Source, start: int) -> None:
        """``start``: bytes before the first line."""
        super().__init__(source)
        self._file = source.path.open("rb")
        self._begun = self._taken = self._file.seek(start)
        self._lines = 0

    def _step(self) -> bool:
        data = self._file.read(_READ_BYTES)
        base, self._taken = self._taken, self._taken + len(data)
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + base
        if not data and self._begun < self._taken:
            ends = np.array([self._taken])
        if len(ends):
            self._take(ends, data, base)
        return not data

    def _take(self, ends: NDArray[np.int64], data: bytes, base: int) -> None:
        """Takes lines that end at these bytes."""
        starts = np.concatenate(([self._begun], ends[:-1] + 1))
        firsts = np.frombuffer(data + b"\n", np.uint8)[np.maximum(starts - base, 0)]
        plain = (firsts > ord(" ")) & (firsts < 127) & (starts >= base)
        for place in np.flatnonzero(~plain).tolist():
            plain[place] = not self._is_blank(int(starts[place]), int(ends[place]))
        numbers = np.arange(self._lines + 1, self._lines + 1 + len(ends))[plain]
        self._lines += len(ends)
        self._begun = int(ends[-1]) + 1
        self._add_all(starts[plain], (ends - starts)[plain], numbers)

    def _is_blank(self, start: int, end: int) -> bool:
        if end - start > ROW_LIMIT:
            return False
        for begin in range(start, end, _BLOCK_BYTES):
            piece = os.pread(self._file.fileno(), min(_BLOCK_BYTES, end - begin), begin)
            if piece.decode(errors="replace").strip(self._source.blank):
                return False
        return True


class RecordIndex(TextIndex):
    """Records of a CSV file in UTF-8: only their ends are looked for, as long as every quote opens, closes or doubles
    one; from the first that does not the records are read one after another."""

    def __init__(self, source: Source, dialect: Dialect, start: int) -> None:
        """``start``: bytes before the first line."""
        super().__init__(source)
        self._parts = [ord(dialect.delimiter), ord("\n"), ord('"')]
        self._file = source.path.open("rb")
        self._begun, self._rest, self._plain = self._file.seek(start), b"", True
        self._told, self._header = dialect.told, dialect.header
        """Whether a line that is no row is still to come."""

    def _step(self) -> bool:
        if not self._plain:
            return super()._step()
        more = self._file.read(_READ_BYTES)
        data = self._rest + more
        ends = self._ends(data, last=not more)
        if ends is None:
            self._plain = False
            self._walk = self._steps(Place(start=self._begun, rows=len(self)) if len(self) else Place())
            return False
        if len(ends):
            self._take(ends, np.frombuffer(data + b"\n", np.uint8))
            data = data[int(ends[-1]) + 1 :]
        self._rest = data
        return not more

    def _ends(self, data: bytes, last: bool) -> NDArray[np.int64] | None:
        """Where records end in the data, which begins with one; None where that must be read."""
        signs = np.frombuffer(data, np.uint8)
        quotes, lines = np.flatnonzero(signs == ord('"')), np.flatnonzero(signs == ord("\n"))
        opening = quotes[::2]
        ends = lines[np.searchsorted(quotes, lines) % 2 == 0]
        if last and len(data) > (ends[-1] + 1 if len(ends) else 0):
            ends = np.append(ends, len(data))
        alone = data.removesuffix(b"\r").count(b"\r") != data.count(b"\r\n")
        odd = not np.isin(signs[opening[opening > 0] - 1], self._parts).all()
        longest = max(np.diff(ends, prepend=-1).max(initial=0), len(data) - (ends[-1] + 1 if len(ends) else 0))
        return None if alone or odd or longest > ROW_LIMIT else ends

    def _take(self, ends: NDArray[np.int64], signs: NDArray[np.uint8]) -> None:
        starts = np.concatenate(([0], ends[:-1] + 1))
        sizes = ends - starts
        filled = (sizes > 1) | ((sizes == 1) & (signs[starts] != ord("\r")))
        filled[0] &= not self._told
        heads = np.flatnonzero(filled)[: self._header]
        filled[heads] = False
        self._told, self._header = False, self._header and not len(heads)
        starts, sizes = starts[filled] + self._begun, sizes[filled]
        self._begun += int(ends[-1]) + 1
        self._add_all(starts, sizes, np.arange(len(self) + 1, len(self) + 1 + len(starts)))


def text_index(source: Source) -> Index:
    """The index of a text file."""
    place = Place()
    with open_text(source.path, place) as stream:
        encoding = stream.encoding
    if source.dialect and not place.wide:
        return RecordIndex(source, source.dialect, place.next)
    return LineIndex(source, place.next) if source.lines and not place.wide else TextIndex(source, encoding)
