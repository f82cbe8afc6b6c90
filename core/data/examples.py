"""A data file as Examples: what is usable, and what is not and why. pyarrow may be loaded here; torch never."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from core.contract.config import DataChoice
from core.contract.data import DataReport, Example, RowProblem
from core.contract.errors import DataError
from core.data.formats import KNOWN_COLUMNS, ROLES, Found, recognise_layout
from core.data.keep import file_sha256
from core.data.sources import Record, Source, open_source
from core.data.turns import RowError, to_example

__all__ = ["Reading", "Tally", "open_reading", "read_columns", "read_examples", "read_report"]

PROBLEMS_SHOWN = 200
_SAMPLE = 200


@dataclass(frozen=True)
class Reading:
    """A file with its layout decided; ``rows()`` reads it from the start."""

    source: Source
    found: Found
    columns: tuple[str, ...]

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

    def report(self) -> DataReport:
        """The report. Raises DataError where no row can be trained on."""
        path, found = self.reading.source.path, self.reading.found
        if not self.usable:
            raise _nothing(self, path)
        return DataReport(
            path=str(path),
            sha256=file_sha256(path),
            bytes=path.stat().st_size,
            rows=self.rows,
            usable=self.usable,
            layout=found.layout,
            reason=f"{found.reason} ({self.reading.source.how}).",
            columns=self.reading.columns,
            mapping=found.mapping,
            roles=ROLES[found.layout],
            method="dpo" if found.layout == "preference" else "sft",
            problems=tuple(self.problems),
        )


def open_reading(path: Path, choice: DataChoice) -> Reading:
    """Opens a file and decides its layout from the first rows.

    Raises:
        DataError: no file that can be read, or no layout that fits its columns.
    """
    source, columns, sample = _look(path)
    found = recognise_layout(columns, [record.values for record in sample], choice, source.header)
    return Reading(source, found, columns)


def read_columns(path: Path) -> tuple[str, ...]:
    """The columns of a file, for mapping by hand where its layout is not recognised."""
    return _look(path)[1]


def read_report(path: Path, choice: DataChoice) -> DataReport:
    """Reads the whole file once and says what is in it.

    Raises:
        DataError: no file that can be read, no layout that fits, or no row that can be trained on.
    """
    tally = Tally(open_reading(path, choice))
    for row in tally.reading.rows():
        tally.add(row)
    return tally.report()


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
    first = list(islice(_decoded(source), _SAMPLE))
    sample = [record for record in first if not record.fault]
    if not first:
        raise DataError("data.empty", f"Expected rows, found none in {path.name}.", "Choose another file.")
    if not sample:
        raise DataError(
            "data.unreadable",
            f"Expected {source.how} in {path.name}, found at row {first[0].row:,}: {_short(first[0].fault)}.",
            "Save the file again as JSONL, JSON or CSV.",
        )
    named = dict.fromkeys(str(column) for record in sample for column in record.values)
    return source, source.columns or tuple(named), sample


def _decoded(source: Source) -> Iterator[Record]:
    try:
        yield from source.records()
    except UnicodeDecodeError as error:
        raise _no_text(source.path) from error


def _no_text(path: Path) -> DataError:
    return DataError(
        "data.encoding", f"Expected text in UTF-8 or UTF-16, found other bytes in {path.name}.", "Save it as UTF-8."
    )


def _short(text: str) -> str:
    """What a row says may be as long as the row; a problem is a line."""
    return text if len(text) <= 300 else f"{text[:297]}..."


def _nothing(tally: Tally, path: Path) -> DataError:
    first = tally.problems[0]
    columns = ", ".join(tally.reading.columns[:20])
    return DataError(
        "data.nothing",
        f"Expected rows to train on, found none among the {tally.rows:,} of {path.name}: "
        f"row {first.row:,}: {first.text}. Its columns: {columns}.",
        "Choose another layout or other columns.",
    )
