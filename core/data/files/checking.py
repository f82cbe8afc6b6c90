"""A file on its way through the reader, a slice at a time, into a plain list of our own words.

What was read is written once as JSON lines of Examples under a name made of the file's content and the choice, so that
preview, search, facts and training never read the person's file again. A slice is a fraction of a second: between two
of them the reader is free for somebody else. What a large file shows first is the *head*, the first rows so far.

The list is believed only where its size and its SHA-256 are those that the report beside it names; each process hashes
it once, for as long as its size and time stay. One that is damaged is read anew.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from core.contract.config import DataChoice
from core.contract.data import DataReport, Example
from core.contract.errors import DataError
from core.data.files.disk_room import Room, forget_oldest, most_for
from core.data.files.keep import blocks_of
from core.data.read.examples import Tally, open_reading
from core.machine.disk import name_of, read_sealed, write_sealed, write_whole

__all__ = ["Check", "changed", "remember", "sweep"]

_VERSION = 5
"""Counts up when reading changes, so that what older code left is not used."""
_SOON = 128 << 20
"""Up to this size a file's content is hashed before it is read: it may have been read before."""
HEAD_ROWS = 1_000
Identity = tuple[str, int, int]
"""A file as far as is known without reading it: path, size, time."""
_hashes: dict[Identity, str] = {}


class Check:
    """The reading of one file under one choice. ``advance`` works on it, ``answer`` or ``head`` say what was found."""

    def __init__(self, path: Path, choice: DataChoice, cache: Path, named: Path | None = None) -> None:
        """``named``: the path whose name and suffix the file goes by, where it is read from another place."""
        if not path.is_file():
            open_reading(path, choice)  # says in one line what is wrong
        self.path, self.choice, self.cache, self.named = path, choice, cache, named or path
        self.identity = _identity(path)
        self.bytes = 0
        self.done = False
        self.waited_for = -math.inf
        """When somebody last asked for the whole of it, on the monotonic clock."""
        self._tally: Tally | None = None
        self._written = hashlib.sha256()
        self._stream: BinaryIO | None = None
        self._report: DataReport | None = None
        self._head = cache / f"head-{name_of([_VERSION, *self.identity, str(self.named), *_chosen(choice)])}.json"
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

    def recall(self, seam: Callable[[], None]) -> bool:
        """Whether the content that lies there was read before and is whole: then ``answer`` says what was found. Its
        rows are not read for that; ``seam`` is called now and then, and may raise."""
        steps = self._recalled()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value)
            seam()

    def is_current(self) -> bool:
        """Whether the file is still the one whose reading was begun."""
        try:
            return _identity(self.path) == self.identity
        except DataError:
            return False

    def answer(self) -> dict[str, Any]:
        """``{report, examples}`` of a file that was read whole."""
        assert self._report
        report = self._report.model_copy(update={"path": str(self.named)})
        return {"report": report.model_dump(mode="json"), "examples": str(self._targets()[1])}

    def is_looked_at(self) -> bool:
        """Whether there is a head, and nothing better as far as is known without reading the file."""
        known = self.identity in _hashes
        better = known and _saved(*self._targets()) is not None
        return (known or self.size > _SOON) and not better and self._looked_at() is not None

    def head(self) -> dict[str, Any]:
        """``{report, examples}`` of the first rows; made once, so that what was shown stays."""
        examples = self._head.with_suffix(".jsonl")
        report = self._looked_at()
        if report is None:
            assert self._tally
            assert self._stream
            self._stream.flush()
            with Path(self._stream.name).open("rb") as written:
                rows = b"".join(islice(written, HEAD_ROWS))
            write_whole(examples, rows)
            report = self._tally.report(_hashes.get(self.identity, ""), complete=False)
            _save(self._head, report, examples, hashlib.sha256(rows).hexdigest())
        return {"report": report.model_dump(mode="json"), "examples": str(examples)}

    def close(self) -> None:
        """Stops; what was written so far goes."""
        self._work.close()

    def _steps(self) -> Generator[None, None, None]:
        if (self.size <= _SOON or self.identity in _hashes) and (yield from self._recalled()):
            return
        self.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._head.with_name(f"whole-{self._head.stem}.{os.getpid()}.part")
        try:
            with part.open("wb") as self._stream:
                yield from self._read()
            yield from self._hash()
            if _identity(self.path) != self.identity:
                raise changed(self.named)
            assert self._tally
            self._report = self._tally.report(_hashes[self.identity])
            report, examples = self._targets()
            part.replace(examples)
            _save(report, self._report, examples, self._written.hexdigest())
            forget_oldest((one, _examples_of(one)) for one in self.cache.glob("report-*.json"))
        finally:
            part.unlink(missing_ok=True)

    def _hash(self) -> Iterator[None]:
        if self.identity not in _hashes:
            yield from _hashed(self.path, self.identity)

    def _read(self) -> Iterator[None]:
        assert self._stream
        self._tally = tally = Tally(open_reading(self.path, self.choice, self.named))
        place, room = tally.reading.source.place, Room(self.cache, most_for(self.size))
        yield
        for row in tally.reading.rows():
            tally.add(row)
            if isinstance(row, Example):
                line = row.model_dump_json(exclude_defaults=True).encode() + b"\n"
                room.take(len(line))
                self._stream.write(line)
                self._written.update(line)
            self.bytes = place.bytes
            yield
        self.bytes = self.size

    def _recalled(self) -> Generator[None, None, bool]:
        yield from self._hash()
        return (yield from self._kept())

    def _kept(self) -> Generator[None, None, bool]:
        """Whether it was read before and what was left then is whole; with its report."""
        report, examples = self._targets()
        found = _saved(report, examples)
        if found is None:
            return False
        identity = _identity(examples)
        if identity not in _hashes:
            yield from _hashed(examples, identity)
        self._report = found[0] if _hashes[identity] == found[1] else None
        with suppress(OSError):  # used just now: the last to make room for others
            os.utime(report)
        return self._report is not None

    def _looked_at(self) -> DataReport | None:
        examples = self._head.with_suffix(".jsonl")
        found = _saved(self._head, examples)
        if found is None:
            return None
        identity = _identity(examples)
        if identity not in _hashes:
            deque(_hashed(examples, identity), maxlen=0)
        return found[0] if _hashes[identity] == found[1] else None

    def _targets(self) -> tuple[Path, Path]:
        """Where the report and the Examples of the whole file are kept."""
        parts = [_VERSION, _hashes[self.identity], self.named.suffix.lower(), *_chosen(self.choice)]
        report = self.cache / f"report-{name_of(parts)}.json"
        return report, _examples_of(report)


def _examples_of(report: Path) -> Path:
    return report.with_name(report.name.replace("report-", "examples-", 1)).with_suffix(".jsonl")


def remember(path: Path, sha256: str) -> None:
    """Takes a file's content hash from who just wrote it."""
    _hashes[_identity(path)] = sha256


def sweep(cache: Path) -> None:
    """Removes what readers that were ended left half written."""
    for part in cache.glob("*.part"):
        pid = part.name.split(".")[-2]
        if not (pid.isdigit() and psutil.pid_exists(int(pid))):
            part.unlink(missing_ok=True)


def _hashed(path: Path, identity: Identity) -> Iterator[None]:
    digest = hashlib.sha256()
    for block in blocks_of(path):
        digest.update(block)
        yield
    _hashes[identity] = digest.hexdigest()


def _identity(path: Path) -> Identity:
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


def _save(target: Path, report: DataReport, examples: Path, sha256: str) -> None:
    """Keeps a report together with the size and the content hash of its Examples, by which damaged ones are known."""
    size = examples.stat().st_size
    said = {"examples_bytes": size, "examples_sha256": sha256, "report": report.model_dump(mode="json")}
    write_sealed(target, said)
    _hashes[_identity(examples)] = sha256


def _saved(target: Path, examples: Path) -> tuple[DataReport, str] | None:
    """The report that was kept, and the content hash that its Examples must have; None where there is none, or one of
    the two files is torn as far as is known without reading the Examples."""
    try:
        said = read_sealed(target)
        report = DataReport.model_validate(said["report"])
        whole = examples.stat().st_size == said["examples_bytes"]
        return (report, str(said["examples_sha256"])) if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
