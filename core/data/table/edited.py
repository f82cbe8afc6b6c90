"""A file with a person's changes as JSON lines: its raw columns stay, so that layout and mapping hold.

A row keeps its number: line and row are one, and a row that is left out, or that nobody can read, is a blank line.
Lines of JSON that nobody changed are copied as they stand.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from core.contract.errors import DataError
from core.data.read.cells import Record
from core.data.read.examples import look_at
from core.data.read.jsonstream import ROW_LIMIT
from core.data.read.sources import Source
from core.data.read.turns import is_media
from core.data.table.changes import Changes
from core.data.table.shown import whole_text
from core.machine.textfile import Place, open_text

_BLOCK = 1 << 20
_BETWEEN = b" \t\r\n,"
_MOST_BYTES = 4 * ROW_LIMIT + 1
Told = Callable[[int, int, int], None]
"""Called with bytes read, bytes in all, and rows so far."""


def edited_blocks(path: Path, named: Path, changes: Changes, told: Told) -> Iterator[bytes]:
    """The changed file, in blocks of about a megabyte. ``named``: the path whose name and suffix it goes by.

    Raises:
        DataError: the file cannot be read, or no row is left.
    """
    source, size, left = look_at(path, named).source, path.stat().st_size, 0
    pending = bytearray()
    copying = (_copied if source.lines else _elements) if _is_copied(source) else _written
    rows = copying(source, changes)
    for number, line in enumerate(rows, start=1):
        pending += line
        left += len(line) > 1
        if len(pending) >= _BLOCK:
            yield bytes(pending)
            pending.clear()
            told(min(size, source.place.bytes), size, number)
    if not left:
        raise DataError("data.nothing/made", name=named.name)
    yield bytes(pending)


def _is_copied(source: Source) -> bool:
    """Whether its rows are JSON in UTF-8, as those that are written."""
    if source.columns:
        return False
    place = Place()
    with open_text(source.path, place):
        return not place.wide


def _copied(source: Source, changes: Changes) -> Iterator[bytes]:
    place = source.place
    with open_text(source.path, place):
        start = place.next
    with source.path.open("rb") as file:
        place.bytes = file.seek(start)
        for number in count(1):
            line = file.readline(_MOST_BYTES)
            if not line:
                return
            begun, place.bytes = place.bytes, place.bytes + len(line)
            cut = len(line) == _MOST_BYTES and not line.endswith(b"\n")
            while cut and (rest := file.readline(_BLOCK)):
                place.bytes += len(rest)
                cut, line = not rest.endswith(b"\n"), b""
            if number in changes.excluded:
                line = b""
            elif number in changes.edits:
                record = next(source.reading(Place(start=begun, rows=number - 1)), None)
                line = _line(record, changes) if record and record.row == number and not record.fault else line
            yield line if line.endswith(b"\n") else line + b"\n"


def _elements(source: Source, changes: Changes) -> Iterator[bytes]:
    """The rows of an array, each as it stands between the ends of two."""
    end = 0
    with source.path.open("rb") as file:
        for record in source.records():
            begun, end = end, source.place.next
            raw = file.read(end - begun)
            if not begun or record.fault or record.row in changes.excluded or record.row in changes.edits:
                yield _line(record, changes)
            else:
                yield b" ".join(raw.lstrip(_BETWEEN).splitlines()) + b"\n"


def _written(source: Source, changes: Changes) -> Iterator[bytes]:
    line = 0
    for record in source.records():
        for _ in range(line + 1, record.row):
            yield b"\n"
        line = record.row
        yield _line(record, changes)


def _line(record: Record, changes: Changes) -> bytes:
    if record.fault or record.row in changes.excluded:
        return b"\n"
    values = changes.applied(record).values
    with suppress(UnicodeEncodeError):
        return _PLAIN.encode(values).encode() + b"\n"
    return _ESCAPED.encode(values).encode() + b"\n"


def _named(value: Any) -> dict[str, str]:
    """What JSON has no word for (bytes, dates) as an object, so that nobody takes it for a text; a picture is one."""
    kind = type(value).__name__
    return {kind if is_media(value) or not isinstance(value, bytes) else "binary": whole_text(value)}


_PLAIN = json.JSONEncoder(ensure_ascii=False, default=_named)
_ESCAPED = json.JSONEncoder(default=_named)
