"""The reading of a file in slices into JSON lines of Examples, which preview, search, facts and training use.

They are kept under a name made of the file's content, the choice and the code that reads. A large file shows its *head*
meanwhile, the first rows.

The report names the size and SHA-256 of its lines; a file whose lines differ is read anew. Each process hashes a file
once, as long as its size and time stay.
"""

import hashlib
import math
import os
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeVar

from core.contract.config import DataChoice
from core.contract.data import DataReport, Example
from core.contract.errors import DataError
from core.data.files.code_digest import code_digest
from core.data.files.disk_room import Room, forget_oldest
from core.data.files.keep import blocks_of
from core.data.read.examples import Tally, open_reading
from core.machine.disk import name_of, read_sealed, write_sealed, write_whole

_SOON = 128 << 20
"""Up to this size a file's content is hashed before it is read: it may have been read before."""
HEAD_ROWS = 1_000
Identity = tuple[str, int, int]
"""A file's path, size and time of change."""
_hashes: dict[Identity, str] = {}
T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work in small steps, and its result."""


class Check:
    """The reading of one file under one choice: ``advance`` works on it, ``answer`` or ``head`` return the result."""

    def __init__(self, path: Path, choice: DataChoice, cache: Path, named: Path) -> None:
        """``named``: the path whose name and suffix the file goes by."""
        if not path.is_file():
            open_reading(path, choice)  # raises the DataError that says why
        self.path, self.choice, self.cache, self.named = path, choice, cache, named
        self.identity = _identity(path)
        self.size = self.identity[1]
        """Bytes of the whole file."""
        self.bytes = 0
        self.done = False
        self.waited_for = -math.inf
        """When a whole check was last asked for, on the monotonic clock."""
        self.tally: Tally | None = None
        """Of the rows so far; None while the file is hashed."""
        self._chosen = [code_digest("read"), choice.layout, sorted(choice.columns.items())]
        self._written = hashlib.sha256()
        self._stream: BinaryIO | None = None
        self._report: DataReport | None = None
        self._head = cache / f"head-{name_of([*self.identity, str(self.named), *self._chosen])}.json"
        self._work = self._steps()

    @property
    def rows(self) -> int:
        """Rows read so far."""
        return self.tally.rows if self.tally else 0

    def advance(self, seconds: float) -> bool:
        """Works for about so long; True when all is done. Raises DataError as reading does."""
        deadline = time.monotonic() + seconds
        for _ in self._work:
            if time.monotonic() > deadline:
                return False
        self.done = True
        return True

    def recall(self, safe_point: Callable[[], None]) -> bool:
        """Whether the file's content was read before, so that ``answer`` is ready. ``safe_point`` is called now and
        then, and may raise."""
        return _finished(self._recalled(), safe_point)

    def is_known(self) -> bool:
        """Whether ``answer`` is ready without hashing the file."""
        return self.identity in _hashes and self.recall(lambda: None)

    def is_current(self) -> bool:
        """Whether the file has not changed since its reading was begun."""
        try:
            return _identity(self.path) == self.identity
        except DataError:
            return False

    def answer(self) -> tuple[DataReport, str]:
        """The report of the whole file, and where its Examples are."""
        assert self._report
        return self._report.model_copy(update={"path": str(self.named)}), str(_examples_of(self._target()))

    def is_looked_at(self) -> bool:
        """Whether a head is kept, and no report of the whole file as far as is known without hashing it."""
        known = self.identity in _hashes
        better = known and self._target().is_file()
        return (known or self.size > _SOON) and not better and _finished(_kept(self._head)) is not None

    def head(self) -> tuple[DataReport, str]:
        """The report of the first rows, and where their Examples are; made once, so that what was shown stays."""
        examples = _examples_of(self._head)
        report = _finished(_kept(self._head))
        if report is None:
            assert self.tally
            assert self._stream
            self._stream.flush()
            with Path(self._stream.name).open("rb") as written:
                rows = b"".join(islice(written, HEAD_ROWS))
            write_whole(examples, rows)
            report = self.tally.report(_hashes.get(self.identity, ""), complete=False)
            _save(self._head, report, hashlib.sha256(rows).hexdigest())
        return report, str(examples)

    def close(self) -> None:
        """Stops, and removes what was written so far."""
        self._work.close()

    def _steps(self) -> Steps[None]:
        if (self.size <= _SOON or self.identity in _hashes) and (yield from self._recalled()):
            return
        self.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._head.with_name(f"whole-{self._head.stem}.{os.getpid()}.part")
        try:
            with part.open("wb") as self._stream:
                yield from self._read(self._stream)
            sha256 = yield from _sha256(self.path, self.identity)
            if _identity(self.path) != self.identity:
                raise DataError("data.changed", name=self.named.name)
            assert self.tally
            self._report = self.tally.report(sha256)
            part.replace(_examples_of(self._target()))
            _save(self._target(), self._report, self._written.hexdigest())
            forget_oldest((one, _examples_of(one)) for one in self.cache.glob("report-*.json"))
        finally:
            part.unlink(missing_ok=True)

    def _read(self, stream: BinaryIO) -> Steps[None]:
        self.tally = tally = Tally(open_reading(self.path, self.choice, self.named))
        place, room = tally.reading.source.place, Room(self.cache, self.size)
        yield
        for row in tally.reading.rows():
            tally.add(row)
            if isinstance(row, Example):
                line = row.model_dump_json(exclude_defaults=True).encode() + b"\n"
                room.take(len(line))
                stream.write(line)
                self._written.update(line)
            self.bytes = place.bytes
            yield
        self.bytes = self.size

    def _recalled(self) -> Steps[bool]:
        yield from _sha256(self.path, self.identity)
        self._report = yield from _kept(self._target())
        if self._report:
            with suppress(OSError):  # ``forget_oldest`` goes by this time
                os.utime(self._target())
        return self._report is not None

    def _target(self) -> Path:
        """Where the report of the whole file is kept, its Examples beside it."""
        parts = [_hashes[self.identity], self.named.suffix.lower(), *self._chosen]
        return self.cache / f"report-{name_of(parts)}.json"


def remember(path: Path, sha256: str) -> None:
    """Takes the content hash of a file that was just written."""
    _hashes[_identity(path)] = sha256


def _identity(path: Path) -> Identity:
    try:
        status = path.stat()
    except OSError as error:
        raise DataError("data.changed", name=path.name) from error
    return (str(path), status.st_size, status.st_mtime_ns)


def _sha256(path: Path, identity: Identity) -> Steps[str]:
    if identity not in _hashes:
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            for block in blocks_of(stream, path):
                digest.update(block)
                yield
        _hashes[identity] = digest.hexdigest()
    return _hashes[identity]


def _examples_of(report: Path) -> Path:
    return report.with_name(report.name.replace("report-", "examples-", 1)).with_suffix(".jsonl")


def _save(target: Path, report: DataReport, sha256: str) -> None:
    """Keeps a report with the size and content hash of its Examples."""
    identity = _identity(_examples_of(target))
    said = {"examples_bytes": identity[1], "examples_sha256": sha256, "report": report.model_dump(mode="json")}
    write_sealed(target, said)
    _hashes[identity] = sha256


def _kept(target: Path) -> Steps[DataReport | None]:
    """The report that was kept; None where it or its Examples are missing or damaged."""
    try:
        said = read_sealed(target)
        report = DataReport.model_validate(said["report"])
        identity = _identity(_examples_of(target))
        if identity[1] == said["examples_bytes"]:
            sha256 = yield from _sha256(_examples_of(target), identity)
            return report if sha256 == said["examples_sha256"] else None
    except (OSError, ValueError, KeyError, TypeError, DataError):
        pass
    return None


def _finished(steps: Steps[T], safe_point: Callable[[], None] = lambda: None) -> T:
    """Does all the work at once; ``safe_point`` is called in between."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        safe_point()
