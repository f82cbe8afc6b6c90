"""What is known of each row only once it was read: whether it holds a word, can be used, its language, its labels.

A sieve looks at the rows in slices of time and keeps two bytes of each.
"""

import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.contract.data import Example
from core.contract.methods import RowKind
from core.data.doctor.findings.languages import language_of
from core.data.doctor.findings.text_words import said_in, words_of
from core.data.files.example_file import examples_in, kinds_in
from core.data.read.cells import Record, RowError
from core.data.read.layouts import Recognised
from core.data.read.turns import to_example
from core.data.table.changes import Changes
from core.data.table.index import Index
from core.data.table.shown import whole_text

Value = Callable[[Record], Hashable]
OfExample = Callable[[Example], Hashable]
Told = Iterator[tuple[int, Hashable]]
_MOST_VALUES = (1 << 16) - 1
_LANGUAGE_CHARACTERS = 2_000


class Sieve:
    """A value of each row of a file, as far as it was looked at."""

    def __init__(self, index: Index, value: Value, needle: str = "", told: Told | None = None) -> None:
        """``needle``: what must stand in the file for a row's value to be true; ``told``: row numbers, ascending, and
        the values of the untouched rows that are not None, where these are known already."""
        self._index, self._value, self._told = index, value, told
        self._needle = needle.casefold() if needle.replace(" ", "").isalnum() else ""
        self._known: dict[Hashable, int] = {}
        self._values = array("H")

    def __len__(self) -> int:
        return len(self._values)

    def advance(self, seconds: float, changes: Changes) -> None:
        """Works for about so long."""
        deadline = time.monotonic() + seconds
        if self._told is not None and not self._taken(self._told, deadline, changes):
            return
        edited = self._index.places_of(changes.edits).tolist()
        while len(self) < len(self._index) and time.monotonic() < deadline:
            stop = self._skipped(edited)
            for record in self._index.read(len(self)) if len(self) < stop else ():
                self._values.append(self._number(record, changes))
                if len(self) >= stop or time.monotonic() > deadline:
                    break

    def _taken(self, told: Told, deadline: float, changes: Changes) -> bool:
        """Takes the values that are known, once the index is complete; True when there are no more."""
        if not self._index.complete:
            return False
        numbers = self._index.numbers
        try:
            for row, value in told:
                while len(self) < len(numbers) and numbers[len(self)] < row:
                    self._values.append(self._number_of(None))
                if len(self) < len(numbers) and numbers[len(self)] == row:
                    self._values.append(self._number_of(value))
                if time.monotonic() > deadline:
                    return False
        except (OSError, ValueError):  # they were cleared away
            del self._values[:]
        else:
            self._values.extend([self._number_of(None)] * (len(numbers) - len(self)))
            self.again(self._index.places_of(changes.edits).tolist(), changes)
        self._told = None
        return True

    def _skipped(self, edited: list[int]) -> int:
        """Up to which place rows must be read: none where what stands in the file from here on lacks the needle."""
        found = self._index.block(len(self)) if self._needle else None
        if not found:
            return len(self._index)
        text, stop = found
        untold = "\\u" in text or bisect_left(edited, len(self)) < bisect_left(edited, stop)
        if not untold and self._needle not in text.casefold():
            self._values.extend([self._number_of(False)] * (stop - len(self)))
        return stop

    def again(self, places: Iterable[int], changes: Changes) -> None:
        """Looks at these rows once more, since they changed."""
        for place, record in self._index.at(place for place in places if place < len(self)).items():
            self._values[place] = self._number(record, changes)

    def fitting(self, fits: Callable[[Any], bool]) -> NDArray[np.bool_]:
        """Whether each row's value fits, of those looked at."""
        wanted = [number for value, number in self._known.items() if fits(value)]
        return np.isin(np.frombuffer(self._values, np.uint16) if len(self) else np.zeros(0, np.uint16), wanted)

    def _number(self, record: Record, changes: Changes) -> int:
        return self._number_of(self._value(changes.applied(record)))

    def _number_of(self, value: Hashable) -> int:
        if value not in self._known and len(self._known) == _MOST_VALUES:
            return _MOST_VALUES
        return self._known.setdefault(value, len(self._known))


def holds(needle: str) -> Value:
    """Whether any cell holds a text, in whatever case."""
    wanted = needle.casefold()
    return lambda record: any(wanted in whole_text(cell).casefold() for cell in record.values.values())


def of_example(recognised: Recognised, value: OfExample) -> Value:
    """Something of the row as it is learned; None where it cannot be."""

    def told(record: Record) -> Hashable:
        if record.fault:
            return None
        try:
            return value(to_example(recognised, record))
        except RowError:
            return None

    return told


def of_examples(examples: str, value: OfExample) -> Told | None:
    """The same of all rows of a file that was read already, where its Examples are kept."""
    if not examples:
        return None
    return ((example.row, value(example)) for example in examples_in(Path(examples)))


def kinds_of(examples: str, kinds: Sequence[RowKind]) -> Told | None:
    """Whether rows are of none of these kinds, as ``of_examples``."""
    return ((row, kind not in kinds) for row, kind in kinds_in(Path(examples))) if examples else None


def language(example: Example) -> str:
    """The language that the data doctor counts the row for."""
    text = said_in(example)[:_LANGUAGE_CHARACTERS]
    return language_of(text, words_of(text))


def labels(example: Example) -> tuple[str, ...]:
    """What a person may call the row's label, or mark."""
    return (example.label, *example.labels)
