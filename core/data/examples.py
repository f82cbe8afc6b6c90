"""A data file as Examples: what is usable, and what is not and why. pyarrow may be loaded here; torch never."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from core.contract.config import DataChoice
from core.contract.data import DataReport, Example, RowProblem
from core.contract.errors import DataError
from core.data.formats import KNOWN_COLUMNS, ROLES, Found, listed, recognise_layout
from core.data.record import Record
from core.data.sources import Source, open_source
from core.data.textfile import one_line
from core.data.turns import TURN_KEYS, RowError, to_example

__all__ = ["Reading", "Tally", "open_reading", "read_columns", "read_examples"]

PROBLEMS_SHOWN = 200
_SAMPLE = 200
_SAMPLE_CHARACTERS = 4 << 20
_FAULTY_CHARACTERS = 64 << 20
COLUMNS_LIMIT = 1_000
"""A table for training has a few columns; a thousand are a transposed table, or no table."""


@dataclass(frozen=True)
class Reading:
    """A file with its layout decided; ``rows()`` reads it from the start."""

    source: Source
    found: Found
    columns: tuple[str, ...]
    unread: str = ""
    """What of the file plays no role, in words."""

    def rows(self) -> Iterator[Example | RowProblem]:
        """Every row in order: an Example, or why it cannot be used.

        Raises:
            DataError: the file itself breaks off (a JSON array with a fault, a torn Parquet file).
        """
        for record in _decoded(self.source):
            yield self._row(record)

    def _row(self, record: Record) -> Example | RowProblem:
        if record.fault:
            return RowProblem(row=record.row, code="row.unreadable", text=_short(record.fault))
        try:
            return to_example(self.found.layout, self.found.mapping, record.row, record.values)
        except RowError as fault:
            return RowProblem(row=record.row, code=fault.code, text=_short(fault.text))


@dataclass
class Tally:
    """Counts rows as they pass and keeps the first problems; ``report()`` closes the count."""

    reading: Reading
    rows: int = 0
    usable: int = 0

    def __post_init__(self) -> None:
        self.problems: list[RowProblem] = []

    def add(self, row: Example | RowProblem) -> None:
        """Counts one row."""
        self.rows += 1
        if isinstance(row, Example):
            self.usable += 1
        elif len(self.problems) < PROBLEMS_SHOWN:
            self.problems.append(row)

    def report(self, sha256: str, complete: bool = True) -> DataReport:
        """The report, ``complete`` where the whole file was counted.

        Raises:
            DataError: no row of the whole file can be trained on.
        """
        path, found = self.reading.source.path, self.reading.found
        if complete and not self.usable:
            raise _nothing(self, path)
        return DataReport(
            path=str(path),
            sha256=sha256,
            bytes=path.stat().st_size,
            rows=self.rows,
            usable=self.usable,
            layout=found.layout,
            reason=f"{found.reason} ({self.reading.source.how}).{self.reading.unread}",
            columns=self.reading.columns,
            mapping=found.mapping,
            roles=ROLES[found.layout],
            method="dpo" if found.layout == "preference" else "sft",
            problems=tuple(self.problems),
            complete=complete,
        )


def open_reading(path: Path, choice: DataChoice) -> Reading:
    """Opens a file and decides its layout from the first rows.

    Raises:
        DataError: no file that can be read, or no layout that fits its columns.
    """
    source, columns, sample = _look(path)
    try:
        found = recognise_layout(columns, [record.values for record in sample], choice, source.header)
    except DataError as error:
        raise DataError(error.code, f"{path.name}: {error.message}", error.hint) from error
    return Reading(source, found, columns, _unread(columns, found, sample))


def read_columns(path: Path) -> tuple[str, ...]:
    """The columns of a file, for mapping by hand where its layout is not recognised."""
    return _look(path)[1]


def read_examples(path: Path, choice: DataChoice) -> Iterator[Example]:
    """The usable rows in order, one pass over the file."""
    for row in open_reading(path, choice).rows():
        if isinstance(row, Example):
            yield row


def _look(path: Path) -> tuple[Source, tuple[str, ...], list[Record]]:
    """The opened file, its columns and the first rows that can be read."""
    try:
        source = open_source(path, KNOWN_COLUMNS)
    except UnicodeDecodeError as error:
        raise _no_text(path) from error
    _check_columns(path, source.columns)
    first = list(_first(source))
    sample = [record for record in first if not record.fault]
    if not first:
        raise DataError("data.empty", f"Expected rows, found none in {path.name}.", "Choose another file.")
    if not sample:
        raise DataError(
            "data.unreadable",
            f"Expected {source.how} in {path.name}, found at row {first[0].row:,}: {_short(first[0].fault)}.",
            "Save the file again as JSONL, JSON or CSV.",
        )
    named = dict.fromkeys(column for record in sample for column in record.values)
    # A key that is no text could not be written into a report.
    columns = source.columns or tuple(column.encode("utf-8", "backslashreplace").decode() for column in named)
    _check_columns(path, columns)
    return source, columns, sample


def _unread(columns: tuple[str, ...], found: Found, sample: list[Record]) -> str:
    """Columns and keys of turns that no role reads: not dropped without a word."""
    left = [column for column in columns if column not in found.mapping.values()]
    turns = [record.values.get(column) for record in sample for column in found.mapping.values()]
    keys = {str(key) for value in turns if isinstance(value, list) for turn in value if _is_turn(turn) for key in turn}
    told = [f"columns {listed(tuple(left))}"] if left else []
    told += [f"keys of turns {listed(tuple(sorted(keys - TURN_KEYS)))}"] if keys - TURN_KEYS else []
    return f" Not read: {'; '.join(told)}." if told else ""


def _is_turn(value: object) -> bool:
    return isinstance(value, dict) and not {"role", "from"}.isdisjoint(value)


def _check_columns(path: Path, columns: tuple[str, ...]) -> None:
    if len(columns) > COLUMNS_LIMIT:
        raise DataError(
            "data.columns",
            f"Expected at most {COLUMNS_LIMIT:,} columns in {path.name}, found {len(columns):,}.",
            "Save it with a row an example, and the columns that are needed.",
        )


def _first(source: Source) -> Iterator[Record]:
    """The rows by which a file is known: 200, or fewer where they are long."""
    good = faulty = 0
    for record in islice(_decoded(source), _SAMPLE):
        yield record
        good += 0 if record.fault else record.size
        faulty += record.size if record.fault else 0
        if good > _SAMPLE_CHARACTERS or faulty > _FAULTY_CHARACTERS:
            return


def _decoded(source: Source) -> Iterator[Record]:
    row = 0
    try:
        for record in source.records():
            row = record.row
            yield record
    except UnicodeDecodeError as error:
        raise _no_text(source.path, row) from error


def _no_text(path: Path, row: int = 0) -> DataError:
    where = f" behind row {row:,}" if row else ""
    message = f"Expected text in UTF-8 or UTF-16, found other bytes in {path.name}{where}."
    return DataError("data.encoding", message, "Save it as UTF-8.")


def _short(text: str) -> str:
    """What a row says may be as long as the row, and break lines; a problem is a line."""
    return one_line(text, 300)


def _nothing(tally: Tally, path: Path) -> DataError:
    first = tally.problems[0]
    columns = listed(tally.reading.columns)
    return DataError(
        "data.nothing",
        f"Expected rows to train on, found none among the {tally.rows:,} of {path.name}: "
        f"row {first.row:,}: {first.text}. Its columns: {columns}.",
        "Choose another layout or other columns.",
    )
