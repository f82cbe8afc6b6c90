"""A file as records: what it is, which columns it has, and its rows one after another, each with its number.

Content decides before the suffix does: Parquet is known by its first bytes, an array by its bracket, one object a line
by its brace. Rows are numbered as a person finds them: the line in JSONL and plain text, the record in CSV (below the
header), the element in an array or a Parquet file. A row that cannot be read is a record with a ``fault``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from core.contract.errors import DataError
from core.data.delimited import apart, recognise, records
from core.data.jsonstream import ROW_LIMIT, array_rows, starts_like_lines
from core.data.textfile import ACCEPTED, first_bytes, open_text

__all__ = ["Record", "Source", "open_source"]

Kind = Literal["jsonl", "json", "csv", "parquet", "text"]
_HEAD = 1 << 18
_TEXT_SUFFIXES = (".txt", ".md", ".markdown", ".text")
_TABLE_SUFFIXES = (".csv", ".tsv", ".tab", ".psv")
_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_BATCH = 512
_BLOCK_CHARACTERS = 4000


@dataclass(frozen=True)
class Record:
    """One row as found: ``values`` by column, or the ``fault`` for which it has none."""

    row: int
    values: dict[str, Any]
    fault: str = ""


@dataclass(frozen=True)
class Source:
    """A file that was opened: its kind, how it is read in words, the columns known beforehand, and its records."""

    path: Path
    kind: Kind
    how: str
    columns: tuple[str, ...]
    records: Callable[[], Iterator[Record]]
    header: bool = True
    """False where the columns have no names of their own."""


def open_source(path: Path, known: frozenset[str] = frozenset()) -> Source:
    """Finds out what a file is. ``known``: column names (lower case) by which a header line is recognised.

    Raises:
        DataError: missing, empty, or nothing that is read here.
    """
    head = first_bytes(path)
    suffix = path.suffix.lower()
    if head[:4] == b"PAR1" or suffix == ".parquet":
        return _parquet(path)
    with open_text(path) as stream:
        start = stream.read(_HEAD)
        whole = not stream.read(1)
    if not start.strip():
        raise DataError("data.empty", f"Expected rows, found only white space: {path.name}.", "Choose another file.")
    if suffix in _TEXT_SUFFIXES:
        return _plain(path)
    first = start.lstrip()[:1]
    if first == "[" and suffix not in (*_TABLE_SUFFIXES, ".jsonl", ".ndjson"):
        return Source(path, "json", "a JSON array", (), lambda: _array(path))
    if first == "{" and suffix not in _TABLE_SUFFIXES:
        if suffix not in (".jsonl", ".ndjson") and not starts_like_lines(start):
            return Source(path, "json", "a JSON array under data", (), lambda: _array(path))
        return Source(path, "jsonl", "one JSON object a line", (), lambda: _lines(path))
    if suffix in _TABLE_SUFFIXES:
        return _table(path, start, known, whole)
    if suffix in _JSON_SUFFIXES:
        if suffix == ".json":
            return Source(path, "json", "a JSON array", (), lambda: _array(path))
        return Source(path, "jsonl", "one JSON object a line", (), lambda: _lines(path))
    raise DataError(
        "data.format",
        f"Expected {ACCEPTED}, found {path.suffix or 'no suffix'} in {path.name}.",
        "Save it as one of these and choose it again.",
    )


def _array(path: Path) -> Iterator[Record]:
    with open_text(path) as stream:
        for number, value in enumerate(array_rows(stream, path.name), start=1):
            yield _object(number, value)


def _lines(path: Path) -> Iterator[Record]:
    with open_text(path) as stream:
        for number, line in enumerate(_limited_lines(stream), start=1):
            if line is None:
                yield Record(number, {}, f"the line is longer than {ROW_LIMIT:,} characters")
            elif line.strip(" \t\r\n"):
                yield _line(number, line)


def _line(number: int, line: str) -> Record:
    try:
        return _object(number, json.loads(line))
    except json.JSONDecodeError as error:
        return Record(number, {}, f"no JSON: {error.msg} at character {error.colno}")
    except RecursionError:
        return Record(number, {}, "no JSON: nested too deeply")
    except ValueError as error:
        return Record(number, {}, f"no JSON that can be read: {str(error).split(';')[0]}")


def _limited_lines(stream: TextIO) -> Iterator[str | None]:
    """Lines ended by a newline only; None for one that is too long."""
    pending = ""
    while block := stream.read(1 << 20):
        # Only \n ends a line of JSON: other line ends may stand inside its texts.
        *complete, pending = (pending + block).split("\n")
        yield from (line if len(line) <= ROW_LIMIT else None for line in complete)
        if len(pending) > ROW_LIMIT:
            yield None
            pending = ""
            while (block := stream.readline(1 << 20)) and not block.endswith("\n"):
                pass
    if pending:
        yield pending


def _object(number: int, value: Any) -> Record:
    if isinstance(value, dict):
        return Record(number, value)
    if isinstance(value, str):
        return Record(number, {"text": value})
    return Record(number, {}, f"expected an object, found {json.dumps(value)[:40]}")


def _table(path: Path, start: str, known: frozenset[str], whole: bool) -> Source:
    dialect = recognise(start, known, path.suffix.lower() in (".tsv", ".tab"), whole)
    named = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}[dialect.delimiter]
    how = f"fields parted by {named}, {'the first line names them' if dialect.header else 'no header line'}"

    def rows() -> Iterator[Record]:
        with open_text(path) as stream:
            for number, fields in enumerate(records(stream, dialect), start=1):
                if isinstance(fields, str):
                    yield Record(number, {}, f"no CSV: {fields}")
                elif len(fields) != len(dialect.columns):
                    yield Record(number, {}, f"expected {len(dialect.columns)} fields, found {len(fields)}")
                else:
                    yield Record(number, dict(zip(dialect.columns, fields, strict=True)))

    return Source(path, "csv", how, dialect.columns, rows, header=dialect.header)


def _plain(path: Path) -> Source:
    """Plain text: a row a line, or, where blank lines part paragraphs, paragraphs joined to rows of a useful length."""
    with open_text(path) as stream:
        blank = any(not line.strip() and number for number, line in enumerate(stream.read(_HEAD).split("\n")[:-1]))
    how = "paragraphs of plain text, joined to rows of about 4,000 characters" if blank else "plain text, a row a line"

    def rows() -> Iterator[Record]:
        texts = _paragraphs(path) if blank else _text_lines(path)
        for number, text in enumerate(texts, start=1):
            yield Record(number, {"text": text})

    return Source(path, "text", how, ("text",), rows)


def _text_lines(path: Path) -> Iterator[str]:
    with open_text(path) as stream:
        for line in _limited_lines(stream):
            if line is None or line.strip():
                yield "" if line is None else line.rstrip("\r")


def _paragraphs(path: Path) -> Iterator[str]:
    block: list[str] = []
    size = 0
    with open_text(path) as stream:
        for line in _limited_lines(stream):
            text = (line or "").rstrip("\r")
            if not text.strip() and size >= _BLOCK_CHARACTERS:
                yield "\n".join(block).strip("\n")
                block, size = [], 0
            elif text.strip() or block:
                block.append(text)
                size += len(text) + 1
    if any(text.strip() for text in block):
        yield "\n".join(block).strip("\n")


def _parquet(path: Path) -> Source:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            columns = apart(list(file.schema_arrow.names))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            "data.parquet", f"Expected a Parquet file, found a broken one: {path.name}.", "Save it again."
        ) from error

    def rows() -> Iterator[Record]:
        number = 0
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=_BATCH):
                    for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        number += 1
                        yield Record(number, dict(zip(columns, values, strict=True)))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(
                "data.parquet",
                f"Expected Parquet rows, found a broken file behind row {number:,}: {path.name}.",
                "Save it again.",
            ) from error

    return Source(path, "parquet", "a Parquet file", columns, rows)
