"""The rows of a JSON array, one after another: a large file is never held whole.

``[row, row, ...]`` and ``{"data": [row, ...], ...}`` are read alike. Python's own decoder reads each row from a buffer
that grows only as far as one row needs. A fault names its line, as an editor counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TextIO

from core.contract.errors import DataError

__all__ = ["ROW_LIMIT", "array_rows", "starts_like_lines"]

ROW_LIMIT = 32 << 20
"""Characters of one row at most: more is no example, and would fill the memory."""
_BLOCK = 1 << 20
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def starts_like_lines(head: str) -> bool:
    """Whether a text that begins with ``{`` is one object a line: its first line is whole, and not all there is."""
    line, _, rest = head.strip().partition("\n")
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return bool(rest.strip()) and re.match(r"\s*\{.*\}\s*$", rest.lstrip().partition("\n")[0]) is not None
    return isinstance(first, dict) and (bool(rest.strip()) or not isinstance(first.get("data"), list))


def array_rows(stream: TextIO, name: str) -> Iterator[Any]:
    """Each element of the array. Raises DataError naming the line where the text is no JSON, and where no rows are."""
    buffer = _Buffer(stream, name)
    if buffer.peek() == "{":
        _enter_data(buffer)
    if buffer.peek() != "[":
        raise buffer.fault('an array of rows or {"data": [...]}')
    buffer.take("[")
    if buffer.peek() == "]":
        return
    while True:
        yield buffer.value()
        if buffer.peek() == "]":
            return
        buffer.take(",")


def _enter_data(buffer: _Buffer) -> None:
    """Goes on to the list under ``data`` in an object."""
    buffer.take("{")
    while buffer.peek() != "}":
        key = buffer.value()
        buffer.take(":")
        if key == "data" and buffer.peek() == "[":
            return
        buffer.value()
        if buffer.peek() == ",":
            buffer.take(",")
    raise DataError(
        "data.json_shape",
        f'Expected an array of rows or {{"data": [...]}}, found another object in {buffer.name}.',
        "Save the rows as a JSON array, or one object a line (JSONL).",
    )


class _Buffer:
    """A sliding view on the text: at least one whole value, grown when a value does not end in it."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.name = name
        self._stream = stream
        self._text = ""
        self._place = 0
        self._lines = 1
        self._ended = False

    def peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._place)
            self._place = found.end() if found else self._place
            if self._place < len(self._text) or not self._grow():
                return self._text[self._place : self._place + 1]

    def take(self, character: str) -> None:
        """Steps over one expected character."""
        if self.peek() != character:
            raise self.fault(repr(character))
        self._place += 1

    def value(self) -> Any:
        """The next JSON value."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._place)
                # A number at the buffer's end may go on behind it.
                if end < len(self._text) or not self._grow():
                    self._place = end
                    return value
            except json.JSONDecodeError as error:
                if len(self._text) - self._place > ROW_LIMIT or not self._grow():
                    raise self.fault("JSON", at=error.pos, found=error.msg) from error
            except (ValueError, RecursionError) as error:
                found = "nesting without end" if isinstance(error, RecursionError) else str(error)
                raise self.fault("JSON", found=found) from error

    def fault(self, expected: str, at: int | None = None, found: str = "") -> DataError:
        """An error that names the line."""
        place = self._place if at is None else at
        line = self._lines + self._text.count("\n", 0, place)
        seen = found or repr(self._text[place : place + 20] or "the end of the file")
        return DataError(
            "data.json",
            f"Expected {expected} in {self.name}, found at line {line:,}: {seen}.",
            "Mend that line, or save the file again.",
        )

    def _grow(self) -> bool:
        if self._ended:
            return False
        more = self._stream.read(max(_BLOCK, len(self._text) - self._place))
        if not more:
            self._ended = True
            return False
        self._lines += self._text.count("\n", 0, self._place)
        self._text = self._text[self._place :] + more
        self._place = 0
        return True
