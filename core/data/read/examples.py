"""A data file as Examples, with the reasons for the rows left out. May import pyarrow, never torch."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from core.contract.config import DataChoice
from core.contract.data import PROBLEMS_SHOWN, Aside, DataFacts, DataReport, Example, Marks, RowProblem, SkippedRows
from core.contract.errors import DataError
from core.contract.methods import BAD, METHODS, Method, RowKind, method_for
from core.data.read.cells import Record, RowError, cell_at
from core.data.read.dialogue import TURN_KEYS
from core.data.read.labels import LabelCounts
from core.data.read.layouts import KNOWN_COLUMNS, LAYOUT_NAMES, ROLES, Recognised, columns_in, listed, recognise_layout
from core.data.read.roles import KNOWN_WORDS
from core.data.read.sources import Source, open_source
from core.data.read.turns import to_example
from core.machine.textfile import one_line

_PROBLEM_CHARACTERS = 300
"""A problem is one line; it may quote the row."""
_MARK_CHARACTERS, _MARK_WORDS = 20, 12
_LABELS_TOLD = 6
_SAMPLE = 200
_SAMPLE_CHARACTERS = 4 << 20
_UNNAMED = re.compile(r"column \d+")
"""A column of a table without a header, also after its rows were changed."""
_FAULTY_CHARACTERS = 64 << 20
COLUMNS_LIMIT = 1_000
"""More columns are a transposed table, or no table."""


class Look(NamedTuple):
    """A file that was opened: its columns, and those of its first rows that can be read."""

    source: Source
    named: Path
    columns: tuple[str, ...]
    sample: list[Record]

    @property
    def header(self) -> bool:
        """Whether the columns have names of their own."""
        return self.source.header and not all(map(_UNNAMED.fullmatch, self.columns))


@dataclass(frozen=True)
class Reading:
    """A file with its layout decided; ``rows()`` reads it."""

    source: Source
    named: Path
    """The path whose name and suffix the file goes by."""
    recognised: Recognised
    columns: tuple[str, ...]
    unread: tuple[str, ...]
    """Columns without a role."""
    unread_keys: tuple[str, ...]
    """Keys of turns that are not read."""

    def rows(self) -> Iterator[Example | RowProblem]:
        """Every row in order: an Example, or why it is unusable. Raises DataError where the file itself is broken."""
        shown = 0
        for record in _decoded(self.source, self.named):
            code, text, raw = "row.unreadable", record.fault, ""
            if not record.fault:
                try:
                    yield to_example(self.recognised, record)
                    continue
                except RowError as fault:
                    code, text = fault.code, fault.text
                if shown < PROBLEMS_SHOWN:
                    # Each cell is cut first, since it may be huge.
                    cells = (f"{name}: {one_line(str(value)[:400], 200)}" for name, value in record.values.items())
                    raw = one_line("; ".join(islice(cells, 20)), 400)
            shown += 1
            yield RowProblem(row=record.row, code=code, text=one_line(text, _PROBLEM_CHARACTERS), raw=raw)


class Tally:
    """Counts rows and keeps the first problems, for the report."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.rows = self.usable = 0
        self._problems: list[RowProblem] = []
        self._skipped: dict[str, tuple[RowProblem, int]] = {}
        self._aside: dict[RowKind, tuple[list[RowProblem], int]] = {}
        self._marks: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
        self._labels = LabelCounts(reading.recognised.separator)

    def add(self, row: Example | RowProblem) -> None:
        """Counts one row."""
        self.rows += 1
        if isinstance(row, Example):
            self.usable += 1
            self._labels.add(row)
            if row.mark is not None:
                self._marks[row.mark][row.label[:_MARK_CHARACTERS]] += 1
            if row.kind is not None:
                before, rows = self._aside.get(row.kind, ([], 0))
                self._aside[row.kind] = before, rows + 1
                if rows < PROBLEMS_SHOWN:
                    before.append(self._problem(row, row.kind))
            return
        first, count = self._skipped.get(row.code, (row, 0))
        self._skipped[row.code] = first, count + 1
        if len(self._problems) < PROBLEMS_SHOWN:
            self._problems.append(row)

    def _problem(self, example: Example, kind: RowKind) -> RowProblem:
        """Why some methods leave a row out."""
        text = aside_text(self.reading.recognised, example, kind)
        raw = "; ".join(f"{turn.role}: {one_line(turn.content[:400], 200)}" for turn in example.messages[-2:])
        raw = f"{raw}; chosen: {one_line(example.chosen[:400], 200)}" if example.chosen else raw
        return RowProblem(row=example.row, code=kind, text=text, raw=one_line(raw, 400))

    def report(self, sha256: str, complete: bool = True) -> DataReport:
        """The report under the method that suits the rows, ``complete`` for the whole file.

        Raises:
            DataError: none of its rows can be read as an example.
        """
        reading, source, recognised = self.reading, self.reading.source, self.reading.recognised
        told = [f"columns {listed(reading.unread)}"] if reading.unread else []
        told += [f"keys of turns {listed(reading.unread_keys)}"] if reading.unread_keys else []
        not_read = f" Not read: {'; '.join(told)}." if told else ""
        if complete and not self.usable:
            first, columns = self._problems[0], listed(reading.columns)
            raise DataError(
                "data.nothing/rows",
                rows=self.rows, name=reading.named.name, row=first.row, text=first.text, columns=columns,
            )  # fmt: skip
        marks = {mark: dict(words.most_common(_MARK_WORDS)) for mark, words in self._marks.items()}
        most_frequent = sorted(self._skipped.values(), key=lambda skipped: -skipped[1])
        return DataReport(
            path=str(reading.named),
            sha256=sha256,
            bytes=source.path.stat().st_size,
            rows=self.rows,
            usable=self.usable,
            layout=recognised.layout,
            reason=f"{recognised.reason} ({source.how}).{not_read}",
            columns=reading.columns,
            mapping=recognised.mapping,
            roles=ROLES[recognised.layout],
            method=method_for(recognised.layout),
            problems=tuple(self._problems),
            skipped=tuple(
                SkippedRows(code=first.code, rows=count, first_row=first.row, text=first.text)
                for first, count in most_frequent
            ),
            unread=reading.unread,
            complete=complete,
            asides={kind: Aside(rows=count, problems=tuple(first)) for kind, (first, count) in self._aside.items()},
            marks=Marks(good=marks[True], bad=marks[False]) if any(marks.values()) else None,
            labels=self._labels.labels() if recognised.layout == "classification" else None,
        ).under()


def aside_text(recognised: Recognised, example: Example, kind: RowKind) -> str:
    """Why some methods leave a row of this kind out."""
    if kind != BAD:
        return "chosen and rejected are the same text"
    written = "false" if example.label in ("0", "False", "false") else example.label
    column, bad = recognised.mapping["label"], "a bad answer, and bad answers are not trained on"
    return f"{column} is {one_line(written, 40)}: {bad}"


def open_reading(path: Path, choice: DataChoice, named: Path | None = None) -> Reading:
    """Opens a file and decides its layout from the first rows. ``named``: the path whose name and suffix it goes by.

    Raises:
        DataError: the file cannot be read, or no layout fits its columns.
    """
    named = named or path
    return reading_of(look_at(path, named), choice)


def reading_of(look: Look, choice: DataChoice) -> Reading:
    """The reading of a file that was looked at. Raises DataError where no layout fits its columns."""
    source, named, columns, sample = look
    try:
        recognised = recognise_layout(columns, [record.values for record in sample], choice, look.header)
    except DataError as error:
        raise DataError.told_by(error.told(), message=f"{named.name}: {error.message}") from error
    used = recognised.mapping.values()
    parts = [one for column in used for one in columns_in(column, columns)]
    roots = {column if column in columns else column.partition(".")[0] for column in parts}
    unread = tuple(column for column in columns if column not in roots)
    cells = (cell_at(record.values, column) for record in sample for column in used)
    turns = [turn for cell in cells if isinstance(cell, list) for turn in cell if isinstance(turn, dict)]
    keys = {str(key) for turn in turns if not {"role", "from"}.isdisjoint(turn) for key in turn}
    return Reading(source, named, recognised, columns, unread, tuple(sorted(keys - TURN_KEYS)))


def read_columns(path: Path, named: Path | None = None) -> tuple[str, ...]:
    """The columns of a file, for mapping by hand where its layout is not recognised."""
    return look_at(path, named or path).columns


def read_examples(path: Path, choice: DataChoice, method: Method | None = None) -> Iterator[Example]:
    """The rows in order that the method, or the one that suits the layout, learns from."""
    reading = open_reading(path, choice)
    cannot = METHODS[method or method_for(reading.recognised.layout)].leaves_out
    for row in reading.rows():
        if isinstance(row, Example) and row.kind not in cannot:
            yield row


def look_at(path: Path, named: Path) -> Look:
    """The opened file, its columns and the first rows that can be read. Raises DataError where there are none."""
    try:
        source = open_source(path, KNOWN_COLUMNS, named, KNOWN_WORDS)
    except UnicodeDecodeError as error:
        raise DataError("data.encoding", name=named.name, where="") from error
    _check_columns(named, source.columns)
    first = list(_first(source, named))
    sample = [record for record in first if not record.fault]
    if not first:
        raise DataError("data.empty/no_rows", name=named.name)
    if not sample:
        fault = one_line(first[0].fault, _PROBLEM_CHARACTERS)
        raise DataError("data.unreadable/rows", how=source.how, name=named.name, row=first[0].row, fault=fault)
    keys = dict.fromkeys(column for record in sample for column in record.values)
    # A key that is no UTF-8 could not be written into a report.
    columns = source.columns or tuple(column.encode("utf-8", "backslashreplace").decode() for column in keys)
    _check_columns(named, columns)
    return Look(source, named, columns, sample)


def _check_columns(named: Path, columns: tuple[str, ...]) -> None:
    if len(columns) > COLUMNS_LIMIT:
        raise DataError("data.columns/too_many", most=COLUMNS_LIMIT, name=named.name, count=len(columns))


def _first(source: Source, named: Path) -> Iterator[Record]:
    """The rows from which the layout is decided: 200, or fewer where they are long."""
    good = faulty = 0
    for record in islice(_decoded(source, named), _SAMPLE):
        yield record
        good += 0 if record.fault else record.size
        faulty += record.size if record.fault else 0
        if good > _SAMPLE_CHARACTERS or faulty > _FAULTY_CHARACTERS:
            return


def _decoded(source: Source, named: Path) -> Iterator[Record]:
    row = 0
    try:
        for record in source.records():
            row = record.row
            yield record
    except UnicodeDecodeError as error:
        raise DataError("data.encoding", name=named.name, where=f" behind row {row:,}" if row else "") from error


# ── reports in lines for a person ────────────────────────────────────────────────────────────────────────────────────


def account_lines(report: DataReport) -> tuple[str, ...]:
    """How a file was read, most important first."""
    seen = "rows" if report.complete else "rows looked at so far"
    return (
        f"Read as {LAYOUT_NAMES[report.layout]}: {report.reason.rstrip('.')}.",
        f"{report.usable:,} of {report.rows:,} {seen} can be trained on.",
        *map(skipped_line, report.skipped),
        *class_lines(report),
    )


def class_lines(report: DataReport) -> tuple[str, ...]:
    """How many answers are marked good and bad, or how many rows have each label."""
    lines = []
    if report.marks:
        good, bad = report.marks.rows
        lines.append(f"Marks: {good:,} good, {bad:,} bad.")
    if report.labels and report.labels.kind == "number":
        lines.append("Each label is a number.")
    elif report.labels:
        shown = ", ".join(
            f"{one_line(label, 40)} ({rows:,})" for label, rows in list(report.labels.counts.items())[:_LABELS_TOLD]
        )
        more = " …" if report.labels.distinct > _LABELS_TOLD else ""
        lines.append(f"{report.labels.distinct:,} labels: {shown}{more}.")
    return tuple(lines)


def skipped_line(skipped: SkippedRows) -> str:
    """Rows left out for one reason."""
    rows = "1 row is" if skipped.rows == 1 else f"{skipped.rows:,} rows are"
    first = f"row {skipped.first_row:,}" if skipped.rows == 1 else f"first row {skipped.first_row:,}"
    return f"{rows} left out: {skipped.text} ({first})."


def refused_lines(facts: DataFacts) -> tuple[str, ...]:
    """Rows that the model's chat template refuses."""
    if not facts.refused:
        return ()
    rows = "1 row" if facts.refused == 1 else f"{facts.refused:,} rows"
    looked = f", of the {len(facts.lengths) + facts.refused:,} looked at," if facts.sampled else ""
    return (f"The chat template refuses {rows}{looked} and they are left out: {facts.why.rstrip('.')}.",)
