"""Bytes as text: which encoding a file has, and that it is text at all.

UTF-8 with or without BOM, and UTF-16 with BOM. Bytes that are no UTF-8 become lone surrogates (Python's
``surrogateescape``), so that one bad row is one bad row: ``broken`` finds them again, and nothing is replaced unseen.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import TextIO

from core.contract.errors import DataError

__all__ = ["ACCEPTED", "broken", "first_bytes", "open_text"]

ACCEPTED = "JSONL, JSON, CSV or TSV, Parquet, TXT or Markdown"
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_LONE = re.compile("[\ud800-\udfff]")
_LOOK = 1 << 16


def first_bytes(path: Path) -> bytes:
    """The first 64 kB of a file.

    Raises:
        DataError: it is missing, empty, or cannot be read.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(_LOOK)
    except OSError as error:
        raise DataError(
            "data.missing", f"Expected a data file at {path}, found: {error.strerror}.", "Choose the file again."
        ) from error
    if not head:
        raise DataError("data.empty", f"Expected rows, found an empty file: {path.name}.", "Choose another file.")
    return head


def open_text(path: Path) -> TextIO:
    """The file as text, line ends untouched.

    Raises:
        DataError: it is missing, empty, or no text in an encoding that is read here.
    """
    head = first_bytes(path)
    encoding = next((name for mark, name in _MARKS if head.startswith(mark)), "utf-8")
    if encoding != "utf-16" and b"\0" in head:
        raise DataError(
            "data.format",
            f"Expected {ACCEPTED}, found a binary file: {path.name}.",
            "Save it as one of these; text as UTF-8.",
        )
    errors = "surrogateescape" if encoding != "utf-16" else "surrogatepass"
    return path.open(encoding=encoding, errors=errors, newline="")


def broken(text: str) -> bool:
    """Whether a text holds what is no character: bytes that were no UTF-8, or half of a surrogate pair."""
    return _LONE.search(text) is not None
