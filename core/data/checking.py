"""A file on its way through the reader, a slice at a time, into a plain list of our own words.

What was read is written once as JSON lines of Examples under a name made of the file's content and the choice, so that
preview, search, facts and training never read the person's file again. A slice is a fraction of a second: between two
of them the reader is free for somebody else. What a large file shows first is the *head*, the first rows so far.
"""

from __future__ import annotations

import hashlib
import json
import math
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
from core.disk import name_of, write_whole

__all__ = ["Check", "changed", "sweep"]

_VERSION = 3
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
        self.waited_for = -math.inf
        """When somebody last asked for the whole of it, on the monotonic clock."""
        self._tally: Tally | None = None
        self._stream: BinaryIO | None = None
        self._report: DataReport | None = None
        self._head = cache / f"head-{name_of([_VERSION, *self.identity, *_chosen(choice)])}.json"
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

    def is_current(self) -> bool:
        """Whether the file is still the one whose reading was begun."""
        try:
            return _identity(self.path) == self.identity
        except DataError:
            return False

    def answer(self) -> dict[str, Any]:
        """``{report, examples}`` of a file that was read whole."""
        assert self._report
        report = self._report.model_copy(update={"path": str(self.path)})
        return {"report": report.model_dump(mode="json"), "examples": str(self._target("examples", "jsonl"))}

    def is_looked_at(self) -> bool:
        """Whether there is a head, and nothing better as far as is known without reading the file."""
        known = self.identity in _hashes
        return (known or self.size > _SOON) and self._looked_at() is not None and not (known and self._kept())

    def head(self) -> dict[str, Any]:
        """``{report, examples}`` of the first rows; made once, so that what was shown stays."""
        examples = self._head.with_suffix(".jsonl")
        report = self._looked_at()
        if report is None:
            assert self._tally
            assert self._stream
            self._stream.flush()
            with Path(self._stream.name).open("rb") as written:
                write_whole(examples, b"".join(islice(written, HEAD_ROWS)))
            report = self._tally.report(_hashes.get(self.identity, ""), complete=False)
            _save(self._head, report, examples)
        return {"report": report.model_dump(mode="json"), "examples": str(examples)}

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
                raise changed(self.path)
            assert self._tally
            self._report = self._tally.report(_hashes[self.identity])
            part.replace(self._target("examples", "jsonl"))
            _save(self._target("report", "json"), self._report, self._target("examples", "jsonl"))
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
        self._report = _saved(self._target("report", "json"), self._target("examples", "jsonl"))
        return self._report is not None

    def _looked_at(self) -> DataReport | None:
        return _saved(self._head, self._head.with_suffix(".jsonl"))

    def _target(self, what: str, suffix: str) -> Path:
        parts = [_VERSION, _hashes[self.identity], self.path.suffix.lower(), *_chosen(self.choice)]
        return self.cache / f"{what}-{name_of(parts)}.{suffix}"


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
        raise changed(path) from error
    return (str(path), status.st_size, status.st_mtime_ns)


def changed(path: Path) -> DataError:
    """What is said of a file that did not stay as it was."""
    return DataError(
        "data.changed",
        f"Expected {path.name} to stay as it is while it is read, found that it changed.",
        "Choose it again.",
    )


def _chosen(choice: DataChoice) -> list[Any]:
    """What of a choice decides how rows are read."""
    return [choice.layout, sorted(choice.columns.items())]


def _save(target: Path, report: DataReport, examples: Path) -> None:
    """Keeps a report together with the size of its Examples, by which torn ones are known."""
    said = {"examples_bytes": examples.stat().st_size, "report": report.model_dump(mode="json")}
    write_whole(target, json.dumps(said).encode())


def _saved(target: Path, examples: Path) -> DataReport | None:
    """The report that was kept; None where there is none, or one of the two files is torn."""
    try:
        said = json.loads(target.read_bytes())
        report = DataReport.model_validate(said["report"])
        return report if examples.stat().st_size == said["examples_bytes"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
