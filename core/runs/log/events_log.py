"""The events log: one writer, any number of readers.

One event is one line in one ``write``, with a number and a checksum (``core.runs.log.lines``). The writer holds the
flock on ``events.jsonl``: the worker inherits it from the supervisor, and its process tree keeps it to the end. Whoever
takes the log over cuts it back to its last newline first.

On a full disk a worker's writer keeps events in order and writes them later. A small file of reserved room is deleted
then, so that events about the full disk still fit.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import stat
import threading
import time
from collections import deque
from pathlib import Path
from typing import BinaryIO, TypeVar

from core.contract.errors import MachineError, RunError
from core.contract.events import Event, Stage, parse_event
from core.machine.disk import not_written, open_plain
from core.machine.locks import FileLock
from core.runs.folder.job_folder import JobFolder
from core.runs.log.handover import signal_ready
from core.runs.log.lines import MOST_LINE_BYTES, LineCheck, number_of, sealed

ATTEMPT_VARIABLE = "LUTHIER_ATTEMPT"
LAST_KINDS = frozenset({"finished", "stopped", "failed", "paused"})
"""Kinds of a worker's last event."""
_DURABLE_KINDS = LAST_KINDS | {"checkpoint", "correction", "exported"}
_TAIL_BYTES = 1 << 16
_BLOCK_BYTES = 8 << 20
RESERVED_BYTES = 256 << 10
_PLENTY_BYTES = 64 << 20
"""Room is reserved for the log when so much is free."""
PATIENCE_SECONDS = 10.0
"""How long a leaving worker tries to write its kept events."""

E = TypeVar("E", bound=Event)


class EventWriter:
    """Appends events for one attempt. Thread-safe."""

    def __init__(self, path: Path, attempt: int) -> None:
        self.path, self.attempt = path, attempt
        self._guard = threading.Lock()
        self._whole: int | None = None  # where the whole lines end, while a partial one follows
        self._synced = True
        self._descriptor = open_plain(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._number = 0  # of the last line
        self._end = -1  # where that line ends; another process may have written since

    def write(self, event: E) -> E:
        """Appends one event and returns it as written, with time and attempt filled in.

        Important events are made durable, with all before them; where that fails, at the next event.

        Raises:
            MachineError: the disk is full or gone; the log is left whole, without the event.
        """
        said = self._stamped(event)
        # The steps before a checkpoint must be durable before it is saved.
        durable = said.kind in _DURABLE_KINDS or (isinstance(said, Stage) and said.stage == "saving")
        with self._guard:
            self._append(said.model_dump_json().encode())
            if durable or not self._synced:
                self._synced = False
                with contextlib.suppress(OSError):
                    os.fsync(self._descriptor)
                    self._synced = True
        return said

    def close(self) -> None:
        """Closes the file; a second time does nothing."""
        with self._guard:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _stamped(self, event: E) -> E:
        return event.model_copy(update={"at": event.at or time.time(), "attempt": self.attempt})

    def _append(self, line: bytes) -> None:
        try:
            self._take_back()
            self._whole = os.fstat(self._descriptor).st_size
            if self._whole != self._end:
                lines = _last_lines(self._descriptor)
                lines = lines if lines[0] else lines[1:]
                sound = (number + back for back, line in enumerate(lines) if (number := number_of(line)))
                self._number = next(sound, 0)
            whole = sealed(line, self._number + 1) + b"\n"
            if os.write(self._descriptor, whole) < len(whole):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._number, self._end, self._whole = self._number + 1, self._whole + len(whole), None
        except OSError as error:
            with contextlib.suppress(OSError):
                self._take_back()
            raise not_written(self.path.name, error, "then resume") from error

    def _take_back(self) -> None:
        """Cuts off a partial line, which would swallow the next event. Raises OSError."""
        if self._whole is not None:
            os.ftruncate(self._descriptor, self._whole)
            self._whole = None


class PatientWriter(EventWriter):
    """For a worker: ``write`` keeps what the disk does not take, and does not raise."""

    def __init__(self, path: Path, attempt: int) -> None:
        super().__init__(path, attempt)
        self._kept: deque[Event] = deque()
        self._in_order = threading.Lock()
        self._reserved = path.with_name(".room")
        self._reserve_room()

    @property
    def behind(self) -> bool:
        """Whether events are not written yet."""
        return bool(self._kept)

    def write(self, event: E) -> E:
        """Appends the event after the kept ones, or keeps it; returns it with time and attempt filled in."""
        said = self._stamped(event)
        with self._in_order, contextlib.suppress(MachineError):
            if self._kept and isinstance(said, Stage) and isinstance(self._kept[-1], Stage):
                self._kept.pop()  # the newest progress is enough
            self._kept.append(said)
            self._write_kept()
        return said

    def catch_up(self) -> None:
        """Writes the kept events.

        Raises:
            MachineError: the disk does not take them yet; they stay kept.
        """
        with self._in_order:
            self._write_kept()

    def close(self) -> None:
        """Tries for a while to write the kept events, then closes the log."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self._descriptor >= 0 and self.behind and time.monotonic() < until:
            with contextlib.suppress(MachineError):
                self.catch_up()
                break
            time.sleep(0.2)
        self._free_room()
        super().close()

    def _write_kept(self) -> None:
        late = len(self._kept) > 1
        while self._kept:
            try:
                super().write(self._kept[0])
            except MachineError:
                if not self._free_room():
                    raise
                continue
            self._kept.popleft()
        if late:
            self._reserve_room()

    def _reserve_room(self) -> None:
        """Writes random bytes: neither a hole nor compressible, so that they take real blocks."""
        with contextlib.suppress(OSError):
            if shutil.disk_usage(self.path.parent).free >= _PLENTY_BYTES:
                with os.fdopen(open_plain(self._reserved, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                    file.write(os.urandom(RESERVED_BYTES))

    def _free_room(self) -> bool:
        with contextlib.suppress(OSError):
            self._reserved.unlink()
            return True
        return False


class EventTail:
    """Reads a log as it grows: each ``read()`` returns the new whole lines."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self._check = LineCheck(whole=offset == 0)
        self.torn = False
        """Whether the log ended in a partial line when it was last read."""
        self._in_long_line = False

    @property
    def damaged(self) -> int:
        """How many of the lines so far are missing or damaged; these are left out."""
        return self._check.damaged

    def read(self) -> list[Event]:
        """The new events, in order; unknown kinds are skipped, a missing file has none.

        Raises:
            OSError: it is no regular file, or may not be read.
        """
        return [event for line in self.read_lines() if (event := parse_event(line)) is not None]

    def read_lines(self) -> list[bytes]:
        """The new whole lines, unparsed. Raises as ``read``."""
        try:
            log = os.lstat(self.path)
            if stat.S_ISREG(log.st_mode) and log.st_size <= self.offset:
                self.torn = False
                return []  # the usual case, ten times a second: the file is not opened
            with os.fdopen(open_plain(self.path), "rb") as file:
                file.seek(self.offset)
                return self._whole_lines(file)
        except FileNotFoundError:
            return []

    def cut(self) -> bool:
        """Whether the log is shorter than what was read of it, or gone."""
        try:
            return os.lstat(self.path).st_size < self.offset
        except OSError:
            return self.offset > 0

    def _whole_lines(self, file: BinaryIO) -> list[bytes]:
        lines: list[bytes] = []
        rest = b""
        while block := file.read(_BLOCK_BYTES):
            data = rest + block
            *whole, rest = data.split(b"\n")
            self.offset += len(data) - len(rest)
            if whole and self._in_long_line:  # whole[0] is its end
                self._in_long_line = False
                del whole[0]
            lines += [line for line in whole if self._check.good(line)]
            if len(rest) > MOST_LINE_BYTES:  # damage: skipped, not held in memory
                if not self._in_long_line:
                    self._check.bad()
                self._in_long_line = True
                self.offset += len(rest)
                rest = b""
        self.torn = bool(rest) or self._in_long_line
        return lines


class LogHold:
    """The right to write a job's log: an flock on the log itself."""

    def __init__(self, folder: JobFolder) -> None:
        self._lock = FileLock(folder.events)

    def take(self, seconds: float = 0.0) -> bool:
        """Waits so long for the last writer's end, then cuts the log back to its last newline; False where it lives."""
        if not self._lock.acquire(seconds):
            return False
        log = self._lock.fileno()
        if size := os.fstat(log).st_size:
            with mmap.mmap(log, 0, access=mmap.ACCESS_READ) as content:
                keep = content.rfind(b"\n") + 1
            if keep < size:
                os.ftruncate(log, keep)
        return True

    def fileno(self) -> int:
        """The descriptor that a worker inherits with the lock."""
        return self._lock.fileno()

    def give(self) -> None:
        """Closes our descriptor; a worker that inherited it keeps the lock."""
        self._lock.release()


def open_writer(folder: JobFolder) -> PatientWriter:
    """The worker's writer: for the attempt and with the lock that its supervisor passed on; started by hand, with its
    own lock for the next attempt.

    Raises:
        RunError: started by hand while another worker writes this log.
    """
    if attempt := os.environ.get(ATTEMPT_VARIABLE):
        signal_ready()
        return PatientWriter(folder.events, int(attempt))
    if not LogHold(folder).take():  # held until this process ends
        raise RunError("run.busy/writer", name=folder.name)
    last = last_event(folder.events)
    return PatientWriter(folder.events, last.attempt + 1 if last else 1)


def last_event(path: Path) -> Event | None:
    """The last event of a log that can be read, searched from the end; None where there is none."""
    try:
        descriptor = open_plain(path)
    except FileNotFoundError:
        return None
    try:
        lines = _last_lines(descriptor)
    finally:
        os.close(descriptor)
    known = (parse_event(line) for line in lines[1:] if number_of(line) is not None)  # lines[0] is torn
    return next((event for event in known if event), None)


def _last_lines(descriptor: int) -> list[bytes]:
    """The end of a log, last line first: the part behind the last newline, empty in a whole log."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES)).split(b"\n")[::-1]
