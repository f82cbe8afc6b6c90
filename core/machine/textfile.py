"""Files as text: UTF-8 with or without BOM, and UTF-16 with BOM.

Bytes that are no UTF-8 become lone surrogates (``surrogateescape``), which ``broken`` detects in each row.
"""

from __future__ import annotations

import codecs
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.contract.errors import DataError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ACCEPTED = "JSONL, JSON, CSV or TSV, Parquet, TXT or Markdown"
_WIDE = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LONE = re.compile("[\ud800-\udfff]")
_LOOK = 1 << 16


@dataclass
class Place:
    """How far a file has been read, and where reading may begin again, in bytes."""

    bytes: int = 0
    start: int = 0
    """Where reading begins: 0, or where a row does."""
    rows: int = 0
    """The number of the row before ``start``."""
    next: int = 0
    """Behind the row that was read last, where reading may begin again; -1 where it may not."""
    wide: bool = False
    """Two bytes a letter."""

    def size(self, text: str) -> int:
        """Bytes of a text in the file."""
        if self.wide:
            return len(text.encode("utf-16-le", "surrogatepass"))
        return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))

    def passed(self, text: str) -> None:
        """Takes note that a text was read."""
        self.next += self.size(text)


class _Counted(io.FileIO):
    """A file that counts what is read of it."""

    def __init__(self, path: Path, place: Place) -> None:
        super().__init__(path)
        self._told = place

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """As FileIO's."""
        count = super().readinto(buffer)
        self._told.bytes += count or 0
        return count


def first_bytes(path: Path) -> bytes:
    """The first 64 kB of a file.

    Raises:
        DataError: it is missing, empty, or cannot be read.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(_LOOK)
    except OSError as error:
        raise DataError("data.missing/gone", path=path, reason=error.strerror) from error
    if not head:
        raise DataError("data.empty/file", name=path.name)
    return head


def open_text(path: Path, place: Place | None = None) -> io.TextIOWrapper:
    """The file as text, line ends untouched, from ``place.start``; ``place`` is updated as it is read.

    Raises:
        DataError: it is missing, empty, or in no supported encoding.
    """
    head = first_bytes(path)
    mark, encoding = next((one for one in _MARKS if head.startswith(one[0])), (b"", "utf-8"))
    place = place or Place()
    place.wide = encoding != "utf-8"
    if head.startswith(_WIDE) or (not place.wide and b"\0" in head):
        raise DataError("data.format/binary", accepted=ACCEPTED, name=path.name)
    file = _Counted(path, place)
    place.bytes = place.next = file.seek(place.start or len(mark))
    errors = "surrogatepass" if place.wide else "surrogateescape"
    return io.TextIOWrapper(io.BufferedReader(file, 1 << 18), encoding=encoding, errors=errors, newline="")


def broken(text: str) -> bool:
    """Whether a text has lone surrogates: bytes that were no UTF-8, or half of a pair."""
    return not text.isascii() and _LONE.search(text) is not None


def without_broken(text: str) -> str:
    """A text whose lone surrogates are replaced by the sign for what cannot be read."""
    return text if text.isascii() else _LONE.sub("\ufffd", text)


def one_line(text: str, limit: int) -> str:
    """A text as one printable line of at most ``limit`` characters."""
    plain = " ".join(text[: 4 * limit].split())
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in plain)
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."
