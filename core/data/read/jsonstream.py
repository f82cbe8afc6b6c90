"""The rows of ``[row, ...]`` or ``{"data": [row, ...], ...}``, one after another: a large file is never held whole.

A fault of the file is an error that names row and line; a fault of one row (a key twice) leaves the others usable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from core.contract.errors import DataError
from core.machine.textfile import Place

ROW_LIMIT = 4 << 20
"""Characters of one row (about a million tokens)."""
DEPTH_LIMIT = 100
_DIGITS = 4000
"""Longer numbers stay text: Python refuses them, since conversion takes quadratic time."""
_BLOCK = 1 << 20
_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class LongNumber:
    """An integer of thousands of digits, which is a fault only in a row that uses it."""

    digits: str


class RowDecoder:
    """Python's JSON decoder, which also reports rows that are too long, too deep, or have a key twice."""

    def __init__(self) -> None:
        self._twice = ""
        self._decoder = json.JSONDecoder(object_pairs_hook=self._object, parse_int=_whole)

    def at(self, text: str, place: int) -> tuple[Any, int, str]:
        """The value at ``place``, where it ends, and its fault (empty: none). Raises what the decoder raises."""
        self._twice = ""
        value, end = self._decoder.raw_decode(text, place)
        return value, end, self._fault(value, text, place, end)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            # One of the two values would be lost.
            keys = [key for key, _ in pairs]
            self._twice = next(repr(key)[:60] for key in keys if keys.count(key) > 1)
        return made

    def _fault(self, value: Any, text: str, place: int, end: int) -> str:
        if end - place > ROW_LIMIT:
            return f"the row is longer than {ROW_LIMIT:,} characters"
        opened = text.count("[", place, end) + text.count("{", place, end)
        if opened > DEPTH_LIMIT and _is_deep(value):
            return f"nested more than {DEPTH_LIMIT} deep"
        return f"the key {self._twice} stands twice in one object" if self._twice else ""


def _whole(digits: str) -> int | LongNumber:
    return int(digits) if len(digits) <= _DIGITS else LongNumber(digits)


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_LIMIT + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        level = [one for one in inner if isinstance(one, (dict, list))]
        if not level:
            return False
    return True


def starts_like_lines(head: str) -> bool:
    """Whether a text is JSON lines: its first line is a complete value, but no array of objects, nor a
    ``{"data": [...]}`` that is the whole text."""
    line, _, rest = head.strip().partition("\n")
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        second = rest.lstrip().partition("\n")[0]
        return not line.startswith("[") and re.match(r"\s*\{.*\}\s*$", second) is not None
    if isinstance(first, list):
        return not any(isinstance(one, dict) for one in first)
    return isinstance(first, dict) and (bool(rest.strip()) or not isinstance(first.get("data"), list))


def array_rows(stream: TextIO, name: str, place: Place | None = None) -> Iterator[tuple[Any, str, int]]:
    """Value, fault (empty: none) and characters of each element; ``place`` is updated, and where it starts at a row the
    rows from there on. Raises DataError where the text is no such JSON."""
    buffer = _Buffer(stream, name, place or Place())
    if place and place.start:
        while buffer.peek() != "]":
            buffer.take(",")
            yield buffer.value()
        return
    wrapped = buffer.peek() == "{"
    if wrapped:
        buffer.take("{")
        if not buffer.find_data(first=True):
            raise DataError("data.json_shape", name=name)
    if buffer.peek() != "[":
        raise buffer.fault('an array of rows or {"data": [...]}')
    buffer.take("[")
    if buffer.peek() != "]":
        yield buffer.value()
        while buffer.peek() != "]":
            buffer.take(",")
            yield buffer.value()
    buffer.row = 0
    buffer.take("]")
    if wrapped and buffer.find_data(first=False):
        raise buffer.fault("one list under data")
    if buffer.peek():
        raise buffer.fault("nothing behind the rows")


class _Buffer:
    """The part of the text that is being read; it grows until a value ends in it."""

    def __init__(self, stream: TextIO, name: str, file: Place) -> None:
        self.name = name
        self.row = file.rows
        """The row read last; 0 outside of the rows."""
        self._decoder = RowDecoder()
        self._stream = stream
        self._text = ""
        self._place = 0
        self._file, self._counted = file, 0
        self._lines = 1
        self._ended = False

    def peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._place)
            self._place = space.end() if space else self._place
            if self._place < len(self._text) or not self._grow():
                return self._text[self._place : self._place + 1]

    def take(self, character: str) -> None:
        """Skips one expected character."""
        if self.peek() != character:
            raise self.fault(repr(character))
        self._place += 1

    def value(self) -> tuple[Any, str, int]:
        """The next JSON value, its fault, and its characters."""
        self.peek()
        self.row += 1
        while True:
            try:
                value, end, fault = self._decoder.at(self._text, self._place)
                # A number at the end of the buffer may be incomplete.
                if end < len(self._text) or not self._grow():
                    size, self._place = end - self._place, end
                    self._count()
                    return value, fault, size
            except json.JSONDecodeError as error:
                if len(self._text) - self._place > ROW_LIMIT:
                    raise self.fault(f"rows of at most {ROW_LIMIT:,} characters", seen="a longer one") from error
                if not self._grow():
                    raise self.fault("JSON", at=error.pos, seen=error.msg) from error
            except RecursionError as error:
                raise self.fault("JSON", seen="nesting without end") from error

    def find_data(self, first: bool) -> bool:
        """Skips members of the outer object up to a list under ``data``; False where there is none. ``first``: no
        member was read yet."""
        while self.peek() != "}":
            if not first:
                self.take(",")
            first = False
            key, _, _ = self.value()
            self.take(":")
            if key == "data" and self.peek() == "[":
                self.row = 0
                return True
            self.value()
            self.row = 0
        self.take("}")
        return False

    def fault(self, expected: str, at: int | None = None, seen: str = "") -> DataError:
        """An error that names row and line."""
        place = self._place if at is None else at
        line = self._lines + self._text.count("\n", 0, place)
        seen = seen or repr(self._text[place : place + 20] or "the end of the file")
        where = f"line {line:,}" + (f" (row {self.row:,})" if self.row else "")
        return DataError("data.json", expected=expected, name=self.name, where=where, seen=seen)

    def _count(self) -> None:
        self._file.passed(self._text[self._counted : self._place])
        self._counted = self._place

    def _grow(self) -> bool:
        if self._ended:
            return False
        self._count()
        more = self._stream.read(max(_BLOCK, len(self._text) - self._place))
        if not more:
            self._ended = True
            return False
        self._lines += self._text.count("\n", 0, self._place)
        self._text = self._text[self._place :] + more
        self._place = self._counted = 0
        return True
