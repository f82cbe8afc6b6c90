"""CSV and TSV: the delimiter, the header, and the records.

Delimiter and header are decided from the first 100 records. The delimiter is the one under which most records have the
same number of fields (two or more), or that of a first line ``sep=;``, which is Excel's. The first line is a header
where it names a known column, where all its fields are made of usual words, or look like names and those below do not.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TextIO

from core.data.read.jsonstream import ROW_LIMIT
from core.machine.textfile import Place

DELIMITERS = ",;\t|"
_SAMPLE = 100
_MOST_WORDS = 3
_TOLD = re.compile(rf'"?sep=([{DELIMITERS}])"?\r?\n', re.IGNORECASE)
_NAME = re.compile(r"[^\W\d][\w .\-/():#&']{0,39}")


@dataclass(frozen=True)
class Dialect:
    """How a file separates its fields; ``columns`` are the header's names, or ``column 1`` and so on. ``told``: its
    first line is ``sep=...``, which is no record."""

    delimiter: str
    header: bool
    columns: tuple[str, ...]
    told: bool = False


def recognise(
    head: str, known: frozenset[str], tabs: bool, whole: bool, words: frozenset[str] = frozenset()
) -> Dialect:
    """The dialect of a text's beginning. ``tabs``: the file's name says TSV; ``whole``: ``head`` is the whole file;
    ``words``: of usual column names."""
    candidates = sorted(DELIMITERS, key=lambda one: one != "\t") if tabs else list(DELIMITERS)
    if told := _TOLD.match(head):
        candidates, head = [told[1]], head[told.end() :]
    samples = {one: _sample(head, one, whole) for one in candidates}

    def fitness(one: str) -> tuple[bool, float, int]:
        """Whether the first line names known columns, and the share of records with the commonest width."""
        if not (rows := samples[one]):
            return False, 0.0, 0
        names = sum(field.strip().lower() in known for field in rows[0])
        width, count = Counter(map(len, rows)).most_common(1)[0]
        return names > 1, count / len(rows) if width > 1 else 0.0, -width if width > 20 else 0

    delimiter = max(candidates, key=fitness)
    rows = samples[delimiter]
    if not rows:
        return Dialect(delimiter, False, ("column 1",), told is not None)
    header = _is_header(rows, known, words)
    width = Counter(map(len, rows)).most_common(1)[0][0]
    names = rows[0] if header else [f"column {number}" for number in range(1, width + 1)]
    return Dialect(delimiter, header, apart(names), told is not None)


def records(stream: TextIO, dialect: Dialect, place: Place) -> Iterator[list[str] | str]:
    """The fields of each record below the header, without blank lines; a text where the csv module reports an error.
    ``place`` is updated, and where it starts at a record the file's first lines are not looked for."""
    csv.field_size_limit(ROW_LIMIT)
    lines = _BoundedLines(stream, place)
    if dialect.told and not place.start:
        next(lines, None)
    reader = csv.reader(lines, delimiter=dialect.delimiter)
    skip = dialect.header and not place.start
    while True:
        lines.taken = 0
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield str(error)
            continue
        if not fields:
            continue
        if not skip:
            yield fields
        skip = False


class _BoundedLines:
    """The lines of a file for the csv module, which itself has no limit on the length of a line or record."""

    def __init__(self, stream: TextIO, place: Place) -> None:
        self._stream, self._place = stream, place
        self.taken = 0
        """Characters of the present record."""

    def __iter__(self) -> _BoundedLines:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(ROW_LIMIT)
        if not line:
            raise StopIteration
        self.taken += len(line)
        self._place.passed(line)
        if self.taken <= ROW_LIMIT and (len(line) < ROW_LIMIT or line.endswith(("\n", "\r"))):
            return line
        while line and not line.endswith(("\n", "\r")):
            line = self._stream.readline(ROW_LIMIT)
            self._place.passed(line)
        raise csv.Error(f"the record is longer than {ROW_LIMIT:,} characters")


def _sample(head: str, delimiter: str, whole: bool) -> list[list[str]]:
    csv.field_size_limit(ROW_LIMIT)
    try:
        rows = [row for row in islice(csv.reader(io.StringIO(head, newline=""), delimiter=delimiter), _SAMPLE) if row]
    except csv.Error:
        return []
    # The last record of the file's beginning may be incomplete.
    return rows if whole or len(rows) < 2 or len(rows) == _SAMPLE else rows[:-1]


def _is_header(rows: list[list[str]], known: frozenset[str], words: frozenset[str]) -> bool:
    first, below = [field.strip() for field in rows[0]], rows[1:]
    if any(field.lower() in known for field in first):
        return True
    named = all(_NAME.fullmatch(field) for field in first) and len(set(first)) == len(first)
    if not named or not below or len(first) < 2:
        return False
    seen = {field.strip() for row in below for field in row}
    if not seen & set(first) and all(len(said := _words(name)) <= _MOST_WORDS and words & {*said} for name in first):
        return True
    if any(all(_is_number(field) for field in column) for column in zip(*below, strict=False)):
        return True
    longest = max(len(field) for row in below for field in row)
    return not seen & set(first) and longest > 2 * max(map(len, first))


def _words(name: str) -> list[str]:
    return re.split(r"[ _.\-/]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def apart(names: list[str]) -> tuple[str, ...]:
    """Unique column names, none empty: a second ``text`` is ``text (2)``."""
    unique: dict[str, None] = {}
    again: Counter[str] = Counter()
    for number, raw in enumerate(names, start=1):
        # Bytes that are no UTF-8 could not be written into a report.
        plain = raw.strip().encode("utf-8", "backslashreplace").decode() or f"column {number}"
        name = plain
        while name in unique:
            again[plain] += 1
            name = f"{plain} ({again[plain] + 1})"
        unique[name] = None
    return tuple(unique)
