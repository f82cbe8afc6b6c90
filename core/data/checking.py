"""A file on its way through the reader, a slice at a time, into a plain list of our own words.

What was read is written once as JSON lines of Examples under a name made of the file's content and the choice, so that
preview, search, facts and training never read the person's file again. A slice is a fraction of a second: between two
of them the reader is free for somebody else. What a large file shows first is the *head*, the first rows so far.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Generator, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from core.contract.config import DataChoice
from core.contract.data import DataReport, Example
from core.contract.errors import DataError
from core.data.examples import Tally, open_reading
from core.data.keep import blocks_of

__all__ = ["Check", "sweep"]

_VERSION = 2
"""Counts up when reading changes, so that what older code left is not used."""
_SOON = 128 << 20
"""Up to this size a file's content is hashed before it is read: it may have been read before."""
HEAD_ROWS = 1_000
_hashes: dict[tuple[str, int, int], str] = {}


class Check:
    """The reading of one file under one choice. ``advance`` works on it, ``answer`` or ``head`` say what was found."""

    def __init__(self, path: Path, choice: DataChoice, cache: Path) -> None:
        if not path.is_file():
            open_reading(path, choice)  # says in one line what is wrong
        self.path, self.choice, self.cache = path, choice, cache
        self.identity = _identity(path)
        self.bytes = 0
        self.done = False
        self._tally: Tally | None = None
        self._stream: BinaryIO | None = None
        self._report: DataReport | None = None
        self._head = cache / f"head-{_named([_VERSION, *self.identity, *_chosen(choice)])}.json"
        self._work = self._steps()

    @property
    def rows(self) -> int:
        """Rows read so far."""
        return self._tally.rows if self._tally else 0

    @property
    def is_begun(self) -> bool:
        """Whether rows are being read: before that a file's content is hashed."""
        return self._tally is not None

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.identity[1]

    def advance(self, seconds: float) -> bool:
        """Works for about so long; True when everything is done. Raises DataError as reading does."""
        deadline = time.monotonic() + seconds
        for _ in self._work:
            if time.monotonic() > deadline:
                return False
        self.done = True
        return True

    def answer(self) -> dict[str, Any]:
        """``{report, examples}`` of a file that was read whole."""
        assert self._report
        report = self._report.model_copy(update={"path": str(self.path)})
        return {"report": report.model_dump(mode="json"), "examples": str(self._target("examples", "jsonl"))}

    def is_looked_at(self) -> bool:
        """Whether there is a head, and nothing better as far as is known without reading the file."""
        known = self.identity in _hashes
        return self._head.is_file() and (known or self.size > _SOON) and not (known and self._kept())

    def head(self) -> dict[str, Any]:
        """``{report, examples}`` of the first rows; made once, so that what was shown stays."""
        examples = self._head.with_suffix(".jsonl")
        if not self._head.is_file():
            assert self._tally
            assert self._stream
            self._stream.flush()
            with Path(self._stream.name).open("rb") as written:
                _write(examples, b"".join(islice(written, HEAD_ROWS)))
            report = self._tally.report(_hashes.get(self.identity, ""), complete=False)
            _write(self._head, report.model_dump_json().encode())
        return {"report": json.loads(self._head.read_bytes()), "examples": str(examples)}

    def close(self) -> None:
        """Stops; what was written so far goes."""
        self._work.close()

    def _steps(self) -> Generator[None, None, None]:
        if self.size <= _SOON:
            yield from self._hash()
        if self.identity in _hashes and self._kept():
            return
        self.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._head.with_name(f"whole-{self._head.stem}.{os.getpid()}.part")
        try:
            with part.open("wb") as self._stream:
                yield from self._read()
            yield from self._hash()
            if _identity(self.path) != self.identity:
                raise _changed(self.path)
            assert self._tally
            self._report = self._tally.report(_hashes[self.identity])
            part.replace(self._target("examples", "jsonl"))
            _write(self._target("report", "json"), self._report.model_dump_json().encode())
        finally:
            part.unlink(missing_ok=True)

    def _hash(self) -> Iterator[None]:
        if self.identity in _hashes:
            return
        digest = hashlib.sha256()
        for block in blocks_of(self.path):
            digest.update(block)
            yield
        _hashes[self.identity] = digest.hexdigest()

    def _read(self) -> Iterator[None]:
        assert self._stream
        self._tally = tally = Tally(open_reading(self.path, self.choice))
        place = tally.reading.source.place
        yield
        for row in tally.reading.rows():
            tally.add(row)
            if isinstance(row, Example):
                self._stream.write(row.model_dump_json(exclude_defaults=True).encode() + b"\n")
            self.bytes = place.bytes
            yield
        self.bytes = self.size

    def _kept(self) -> bool:
        """Whether it was read before, then with its report."""
        kept = self._target("report", "json")
        if not (kept.is_file() and self._target("examples", "jsonl").is_file()):
            return False
        self._report = DataReport.model_validate_json(kept.read_bytes())
        return True

    def _target(self, what: str, suffix: str) -> Path:
        parts = [_VERSION, _hashes[self.identity], self.path.suffix.lower(), *_chosen(self.choice)]
        return self.cache / f"{what}-{_named(parts)}.{suffix}"


def sweep(cache: Path) -> None:
    """Removes what readers that were ended left half written."""
    for part in cache.glob("*.part"):
        pid = part.name.split(".")[-2]
        if not (pid.isdigit() and psutil.pid_exists(int(pid))):
            part.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[str, int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise _changed(path) from error
    return (str(path), status.st_size, status.st_mtime_ns)


def _changed(path: Path) -> DataError:
    return DataError(
        "data.changed",
        f"Expected {path.name} to stay as it is while it is read, found that it changed.",
        "Choose it again.",
    )


def _chosen(choice: DataChoice) -> list[Any]:
    """What of a choice decides how rows are read."""
    return [choice.layout, sorted(choice.columns.items())]


def _named(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _write(target: Path, content: bytes) -> None:
    part = target.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(target)
