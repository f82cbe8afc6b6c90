"""A file as records: its format, its columns, and its numbered rows.

Content goes before the suffix: Parquet is recognised by its first bytes, JSON by its bracket or brace. A row's number
is the line in JSONL and plain text, the record below the header in CSV, the element in an array or a Parquet file. A
row that cannot be read is a record with a ``fault``.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from core.contract.errors import DataError
from core.data.read.cells import Record
from core.data.read.columnar import open_parquet
from core.data.read.delimited import Dialect, recognise, records
from core.data.read.jsonstream import ROW_LIMIT, RowDecoder, array_rows, starts_like_lines
from core.machine.textfile import ACCEPTED, Place, first_bytes, open_text

_HEAD = 1 << 18
_TEXT_SUFFIXES = (".txt", ".md", ".markdown", ".text")
_TABLE_SUFFIXES = (".csv", ".tsv", ".tab", ".psv")
_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_BLOCK_CHARACTERS = 4000
_JSON_BLANK = " \t\r\n"
_TOO_LONG = f"the line is longer than {ROW_LIMIT:,} characters"


@dataclass(frozen=True)
class Source:
    """A file: how it is read in words, the columns known beforehand, and its records."""

    path: Path
    how: str
    columns: tuple[str, ...]
    reading: Callable[[Place], Iterator[Record]]
    header: bool = True
    """False where the columns have no names of their own."""
    lines: bool = False
    """A row is a line, unless that holds nothing but ``blank`` (None: white space)."""
    blank: str | None = None
    parquet: bool = False
    dialect: Dialect | None = None
    place: Place = field(default_factory=Place)
    """How far the records have been read, in bytes of the file."""

    def records(self) -> Iterator[Record]:
        """Every row from the start."""
        return self.reading(self.place)


def open_source(path: Path, known: frozenset[str], named: Path, words: frozenset[str] = frozenset()) -> Source:
    """Decides a file's format. ``known``: lower-case column names by which a header line is recognised; ``words``: of
    others; ``named``: the path whose name and suffix it goes by.

    Raises:
        DataError: missing, empty, or of no format that is read here.
    """
    head = first_bytes(path)
    suffix = named.suffix.lower()
    if head[:4] == b"PAR1" or suffix == ".parquet":
        columns, reading = open_parquet(path)
        return Source(path, "a Parquet file", columns, reading, parquet=True)
    with open_text(path) as stream:
        start = stream.read(_HEAD)
        whole = not stream.read(1)
    if not start.strip():
        raise DataError("data.empty/white_space", name=named.name)
    if suffix in _TEXT_SUFFIXES:
        return _plain(path, start)
    first = start.lstrip()[:1]
    lines = suffix in (".jsonl", ".ndjson") and starts_like_lines(start)
    if first == "[" and suffix not in _TABLE_SUFFIXES and not lines:
        return _array(path, "a JSON array")
    if first == "{" and suffix not in _TABLE_SUFFIXES:
        if not (suffix in (".jsonl", ".ndjson") or starts_like_lines(start)):
            return _array(path, "a JSON array under data")
        return _lines(path)
    if suffix in _TABLE_SUFFIXES:
        return _table(path, recognise(start, known, suffix in (".tsv", ".tab"), whole, words))
    if suffix in _JSON_SUFFIXES:
        return _array(path, "a JSON array") if suffix == ".json" else _lines(path)
    raise DataError("data.format/ending", accepted=ACCEPTED, suffix=named.suffix or "no suffix", name=named.name)


def _array(path: Path, how: str) -> Source:
    def rows(place: Place) -> Iterator[Record]:
        with open_text(path, place) as stream:
            rows = array_rows(stream, path.name, place)
            for number, (value, fault, size) in enumerate(rows, start=place.rows + 1):
                yield Record(number, {}, fault, size) if fault else _object(number, value, size)

    return Source(path, how, (), rows)


def _lines(path: Path) -> Source:
    def rows(place: Place) -> Iterator[Record]:
        decoder = RowDecoder()
        for number, line in _limited_lines(path, place):
            if line is None:
                yield Record(number, {}, _TOO_LONG, ROW_LIMIT)
            elif text := line.strip(_JSON_BLANK):
                yield _line(number, text, decoder)

    return Source(path, "one JSON object a line", (), rows, lines=True, blank=_JSON_BLANK)


def _line(number: int, line: str, decoder: RowDecoder) -> Record:
    size = len(line)
    try:
        value, end, fault = decoder.at(line, 0)
    except json.JSONDecodeError as error:
        return Record(number, {}, f"no JSON: {error.msg} at character {error.colno}", size)
    except RecursionError:
        return Record(number, {}, "no JSON: nested too deeply", size)
    if end < size:
        return Record(number, {}, f"no JSON: more behind the object at character {end + 1}", size)
    return Record(number, {}, fault, size) if fault else _object(number, value, size)


def _limited_lines(path: Path, place: Place) -> Iterator[tuple[int, str | None]]:
    """Each line with its number; None for one that is too long."""
    with open_text(path, place) as stream:
        stream.reconfigure(newline="\n")  # other line ends may be part of JSON strings
        for number in count(place.rows + 1):
            line = stream.readline(ROW_LIMIT + 1)
            if not line:
                return
            place.passed(line)
            whole = len(line) <= ROW_LIMIT or line.endswith("\n")
            text = line.removesuffix("\n") if whole else None
            while not whole:
                line = stream.readline(ROW_LIMIT)
                place.passed(line)
                whole = not line or line.endswith("\n")
            yield number, text


def _object(number: int, value: Any, size: int) -> Record:
    if isinstance(value, dict):
        return Record(number, value, "", size)
    if isinstance(value, str):
        return Record(number, {"text": value}, "", size)
    names = {list: "a list", bool: str(value).lower(), type(None): "null"}
    return Record(number, {}, f"expected an object, found {names.get(type(value), 'a number')}", size)


def _table(path: Path, dialect: Dialect) -> Source:
    named = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}[dialect.delimiter]
    how = f"fields parted by {named}, {'the first line names them' if dialect.header else 'no header line'}"

    def rows(place: Place) -> Iterator[Record]:
        with open_text(path, place) as stream:
            for number, fields in enumerate(records(stream, dialect, place), start=place.rows + 1):
                if isinstance(fields, str):
                    yield Record(number, {}, f"no CSV: {fields}", ROW_LIMIT)
                elif len(fields) != len(dialect.columns):
                    yield Record(number, {}, f"expected {len(dialect.columns)} fields, found {len(fields)}")
                else:
                    yield Record(number, dict(zip(dialect.columns, fields, strict=True)), "", sum(map(len, fields)))

    return Source(path, how, dialect.columns, rows, header=dialect.header, dialect=dialect)


def _plain(path: Path, start: str) -> Source:
    """Plain text: a row a line, or paragraphs joined to rows where there are blank lines."""
    blank = any(not line.strip() and number for number, line in enumerate(start.split("\n")[:-1]))
    how = "paragraphs of plain text, joined to rows of about 4,000 characters" if blank else "plain text, a row a line"

    def rows(place: Place) -> Iterator[Record]:
        lines = _limited_lines(path, place)
        if blank:
            yield from _paragraphs(lines, place)
            return
        for number, line in lines:
            if line is None:
                yield Record(number, {}, _TOO_LONG, ROW_LIMIT)
            elif line.strip():
                yield Record(number, {"text": line.rstrip("\r")}, "", len(line))

    return Source(path, how, ("text",), rows, lines=not blank)


def _paragraphs(lines: Iterator[tuple[int, str | None]], place: Place) -> Iterator[Record]:
    number = place.rows
    block: list[str] = []
    size = 0
    for _, line in lines:
        text = (line or "").rstrip("\r")
        # A row ends at a blank line once it is long enough, and before it gets too long.
        if any(block) and (line is None or size > ROW_LIMIT or (not text.strip() and size >= _BLOCK_CHARACTERS)):
            number += 1
            behind, place.next = place.next, -1 if line is None else place.next
            yield _joined(number, block)
            block, size, place.next = [], 0, behind
        if line is None:
            number += 1
            yield Record(number, {}, _TOO_LONG, ROW_LIMIT)
        elif text.strip() or block:
            block.append(text)
            size += len(text) + 1
    if any(text.strip() for text in block):
        yield _joined(number + 1, block)


def _joined(number: int, block: list[str]) -> Record:
    text = "\n".join(block).strip("\n")
    return Record(number, {"text": text}, "", len(text))
