"""A data file as Examples: what is usable, and what is not and why. pyarrow may be loaded here; torch never."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from core.contract.config import DataChoice
from core.contract.data import DataReport, Example, RowProblem, SkippedRows
from core.contract.errors import DataError
from core.contract.methods import method_for
from core.data.read.cells import Record, RowError
from core.data.read.dialogue import TURN_KEYS
from core.data.read.layouts import KNOWN_COLUMNS, ROLES, Found, listed, recognise_layout
from core.data.read.sources import Source, open_source
from core.data.read.turns import to_example
from core.machine.textfile import one_line

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
    unread: tuple[str, ...] = ()
    """Columns that play no role."""
    unread_keys: tuple[str, ...] = ()
    """Keys of turns that nothing reads: not dropped without a word."""

    def rows(self) -> Iterator[Example | RowProblem]:
        """Every row in order: an Example, or why it cannot be used.

        Raises:
            DataError: the file itself breaks off (a JSON array with a fault, a torn Parquet file).
        """
        shown = 0
        for record in _decoded(self.source):
            problem = ("row.unreadable", record.fault)
            try:
                if not record.fault:
                    yield to_example(self.found.layout, self.found.mapping, record.row, record.values)
                    continue
            except RowError as fault:
                problem = (fault.code, fault.text)
            raw = ""
            if shown < PROBLEMS_SHOWN and not record.fault:
                # As it stands in its file; each cell is cut first, since one may be a book.
                cells = (f"{name}: {one_line(str(value)[:400], 200)}" for name, value in record.values.items())
                raw = one_line("; ".join(islice(cells, 20)), 400)
            shown += 1
            yield RowProblem(row=record.row, code=problem[0], text=_short(problem[1]), raw=raw)


@dataclass
class Tally:
    """Counts rows as they pass and keeps the first problems; ``report()`` closes the count."""

    reading: Reading
    rows: int = 0
    usable: int = 0

    def __post_init__(self) -> None:
        self.problems: list[RowProblem] = []
        self._skipped: dict[str, tuple[RowProblem, int]] = {}

    def add(self, row: Example | RowProblem) -> None:
        """Counts one row."""
        self.rows += 1
        if isinstance(row, Example):
            self.usable += 1
            return
        first, count = self._skipped.get(row.code, (row, 0))
        self._skipped[row.code] = first, count + 1
        if len(self.problems) < PROBLEMS_SHOWN:
            self.problems.append(row)

    @property
    def skipped(self) -> tuple[SkippedRows, ...]:
        """What was left out, by reason, the most frequent first."""
        counted = sorted(self._skipped.values(), key=lambda found: -found[1])
        return tuple(
            SkippedRows(code=first.code, rows=count, first_row=first.row, text=first.text) for first, count in counted
        )

    def report(self, sha256: str, complete: bool = True) -> DataReport:
        """The report, ``complete`` where the whole file was counted.

        Raises:
            DataError: no row of the whole file can be trained on.
        """
        source, found = self.reading.source, self.reading.found
        told = [f"columns {listed(self.reading.unread)}"] if self.reading.unread else []
        told += [f"keys of turns {listed(self.reading.unread_keys)}"] if self.reading.unread_keys else []
        not_read = f" Not read: {'; '.join(told)}." if told else ""
        named = source.named or source.path
        if complete and not self.usable:
            raise _nothing(self, named)
        return DataReport(
            path=str(named),
            sha256=sha256,
            bytes=source.path.stat().st_size,
            rows=self.rows,
            usable=self.usable,
            layout=found.layout,
            reason=f"{found.reason} ({source.how}).{not_read}",
            columns=self.reading.columns,
            mapping=found.mapping,
            roles=ROLES[found.layout],
            method=method_for(found.layout),
            problems=tuple(self.problems),
            skipped=self.skipped,
            unread=self.reading.unread,
            complete=complete,
        )


def open_reading(path: Path, choice: DataChoice, named: Path | None = None) -> Reading:
    """Opens a file and decides its layout from the first rows. ``named``: the path whose name and suffix it goes by.

    Raises:
        DataError: no file that can be read, or no layout that fits its columns.
    """
    named = named or path
    source, columns, sample = _look(path, named)
    try:
        found = recognise_layout(columns, [record.values for record in sample], choice, source.header)
    except DataError as error:
        raise DataError.told_by(error.told(), message=f"{named.name}: {error.message}") from error
    unread = tuple(column for column in columns if column not in found.mapping.values())
    cells = (record.values.get(column) for record in sample for column in found.mapping.values())
    turns = [turn for cell in cells if isinstance(cell, list) for turn in cell if isinstance(turn, dict)]
    keys = {str(key) for turn in turns if not {"role", "from"}.isdisjoint(turn) for key in turn}
    return Reading(source, found, columns, unread, tuple(sorted(keys - TURN_KEYS)))


def read_columns(path: Path, named: Path | None = None) -> tuple[str, ...]:
    """The columns of a file, for mapping by hand where its layout is not recognised."""
    return _look(path, named or path)[1]


def read_examples(path: Path, choice: DataChoice) -> Iterator[Example]:
    """The usable rows in order, one pass over the file."""
    for row in open_reading(path, choice).rows():
        if isinstance(row, Example):
            yield row


def _look(path: Path, named: Path) -> tuple[Source, tuple[str, ...], list[Record]]:
    """The opened file, its columns and the first rows that can be read."""
    try:
        source = open_source(path, KNOWN_COLUMNS, named)
    except UnicodeDecodeError as error:
        raise _no_text(named) from error
    _check_columns(named, source.columns)
    first = list(_first(source))
    sample = [record for record in first if not record.fault]
    if not first:
        raise DataError("data.empty/no_rows", name=named.name)
    if not sample:
        raise DataError(
            "data.unreadable/rows", how=source.how, name=named.name, row=first[0].row, fault=_short(first[0].fault)
        )
    keys = dict.fromkeys(column for record in sample for column in record.values)
    # A key that is no text could not be written into a report.
    columns = source.columns or tuple(column.encode("utf-8", "backslashreplace").decode() for column in keys)
    _check_columns(named, columns)
    return source, columns, sample


def _check_columns(path: Path, columns: tuple[str, ...]) -> None:
    if len(columns) > COLUMNS_LIMIT:
        raise DataError("data.columns/too_many", most=COLUMNS_LIMIT, name=path.name, count=len(columns))


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
        raise _no_text(source.named or source.path, row) from error


def _no_text(path: Path, row: int = 0) -> DataError:
    where = f" behind row {row:,}" if row else ""
    return DataError("data.encoding", name=path.name, where=where)


def _short(text: str) -> str:
    """What a row says may be as long as the row, and break lines; a problem is a line."""
    return one_line(text, 300)


def _nothing(tally: Tally, path: Path) -> DataError:
    first = tally.problems[0]
    columns = listed(tally.reading.columns)
    return DataError(
        "data.nothing/rows", rows=tally.rows, name=path.name, row=first.row, text=first.text, columns=columns
    )
