"""The events log: one writer, any number of readers.

One event is one line, and one line is one ``write``. The writer is whoever holds the flock on ``events.jsonl``: the
worker inherits it from the supervisor and keeps it until its whole process tree is gone, so that taking the lock *is*
waiting for that death. Whoever takes the log over cuts it back to its last newline before the first write. Lines are
numbered and carry a checksum (``core.runs.log.lines``), so that a reader knows what was changed or is missing.

A full disk does not stop a worker's writer: what cannot be written is kept, in order, and written later. A little room
is set aside while there is some, and given up when the log is refused, so that the words about the full disk, and what
is asked meanwhile, still find a place.
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
from core.machine.disk import cure, open_plain
from core.machine.locks import FileLock
from core.runs.folder.job_folder import JobFolder
from core.runs.log.handover import signal_ready
from core.runs.log.lines import MOST_LINE_BYTES, LineCheck, number_of, sealed

ATTEMPT_VARIABLE = "LUTHIER_ATTEMPT"
LAST_KINDS = frozenset({"finished", "stopped", "failed", "paused"})
"""After these a worker has nothing more to say."""
_DURABLE_KINDS = LAST_KINDS | {"checkpoint", "correction", "exported"}
_TAIL_BYTES = 1 << 16
_BLOCK_BYTES = 8 << 20
ASIDE_BYTES = 256 << 10
PLENTY_BYTES = 64 << 20
"""Room is set aside for the log when so much is free."""
PATIENCE_SECONDS = 10.0
"""How long a worker that leaves tries to write what it has said."""

E = TypeVar("E", bound=Event)


class EventWriter:
    """Appends events for one attempt. Safe to share between threads of the one process that may write."""

    def __init__(self, path: Path, attempt: int) -> None:
        self.path, self.attempt = path, attempt
        self._guard = threading.Lock()
        self._whole: int | None = None  # where the log ends for readers, while half a line stands behind that
        self._synced = True
        self._descriptor = open_plain(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._number = 0  # of the last line
        self._end = -1  # where it ends; somebody else may have written since

    def write(self, event: E) -> E:
        """Appends one event and returns it as written, with time and attempt filled in.

        What is to survive a power cut is made durable, with all that stands before it; a disk that cannot do that now
        is asked again at the next event.

        Raises:
            MachineError: the disk is full or gone; the log is left whole, without the event.
        """
        said = self._stamped(event)
        # A checkpoint must not outlive the steps before it, so these are made durable before it is saved.
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
                self._number = _last_number(self._descriptor)
            whole = sealed(line, self._number + 1) + b"\n"
            if os.write(self._descriptor, whole) < len(whole):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._number, self._end, self._whole = self._number + 1, self._whole + len(whole), None
        except OSError as error:
            with contextlib.suppress(OSError):
                self._take_back()
            raise MachineError(
                "disk.write/file", name=self.path.name, reason=error.strerror, cure=cure(error, "then resume")
            ) from error

    def _take_back(self) -> None:
        """Half a line would swallow the next event. Raises OSError where it cannot be taken back."""
        if self._whole is not None:
            os.ftruncate(self._descriptor, self._whole)
            self._whole = None


class PatientWriter(EventWriter):
    """The same for a worker: ``write`` keeps what the disk does not take, and never raises for it."""

    def __init__(self, path: Path, attempt: int) -> None:
        super().__init__(path, attempt)
        self._kept: deque[Event] = deque()
        self._in_order = threading.Lock()
        self._aside = path.with_name(".room")
        self._set_aside()

    @property
    def behind(self) -> bool:
        """Whether something is not written yet."""
        return bool(self._kept)

    def write(self, event: E) -> E:
        """Appends the event after what is kept, or keeps it; returns it with time and attempt filled in."""
        said = self._stamped(event)
        with self._in_order, contextlib.suppress(MachineError):
            if self._kept and isinstance(said, Stage) and isinstance(self._kept[-1], Stage):
                self._kept.pop()  # of progress that nobody could see, the last word is enough
            self._kept.append(said)
            self._write_kept()
        return said

    def catch_up(self) -> None:
        """Writes what is kept.

        Raises:
            MachineError: the disk does not take it yet; nothing is lost.
        """
        with self._in_order:
            self._write_kept()

    def close(self) -> None:
        """Closes the log; for a while what is kept is tried before."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self._descriptor >= 0 and self.behind and time.monotonic() < until:
            with contextlib.suppress(MachineError):
                self.catch_up()
                break
            time.sleep(0.2)
        self._give_aside()
        super().close()

    def _write_kept(self) -> None:
        late = len(self._kept) > 1
        while self._kept:
            try:
                super().write(self._kept[0])
            except MachineError:
                if not self._give_aside():
                    raise
                continue
            self._kept.popleft()
        if late:
            self._set_aside()

    def _set_aside(self) -> None:
        """Real blocks, no hole and nothing that a file system could make smaller."""
        with contextlib.suppress(OSError):
            if shutil.disk_usage(self.path.parent).free >= PLENTY_BYTES:
                with os.fdopen(open_plain(self._aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                    file.write(os.urandom(ASIDE_BYTES))

    def _give_aside(self) -> bool:
        with contextlib.suppress(OSError):
            self._aside.unlink()
            return True
        return False


class EventTail:
    """Reads a log as it grows: each ``read()`` returns what was added since. A torn last line waits for its end."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self._check = LineCheck(whole=offset == 0)
        self.torn = False
        """Whether half a line stood at the end when it was last read: somebody is writing it, or died in that."""
        self._in_long_line = False

    @property
    def damaged(self) -> int:
        """How many of the lines so far are missing, or are not as they were written: these are left out."""
        return self._check.damaged

    def read(self) -> list[Event]:
        """The new events, in order; unknown kinds are skipped, a missing file has none.

        Raises:
            OSError: it is no regular file, or may not be read.
        """
        return [event for line in self.read_lines() if (event := parse_event(line)) is not None]

    def read_lines(self) -> list[bytes]:
        """The new whole lines as bytes, for readers that need only some of them parsed. Raises as ``read``."""
        try:
            log = os.lstat(self.path)
            if stat.S_ISREG(log.st_mode) and log.st_size <= self.offset:
                self.torn = False
                return []  # most looks find nothing, and some look ten times a second
            with os.fdopen(open_plain(self.path), "rb") as file:
                file.seek(self.offset)
                return self._whole_lines(file)
        except FileNotFoundError:
            return []

    def cut(self) -> bool:
        """Whether the log became shorter than what was read of it, or is gone."""
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
            if whole and self._in_long_line:  # its end
                self._in_long_line = False
                del whole[0]
            lines += [line for line in whole if self._check.good(line)]
            if len(rest) > MOST_LINE_BYTES:  # nobody can have said that: it is read over, and not held
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
        """Waits so long for the last writer's death; then cuts the log back to its last newline."""
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
        """The descriptor that a worker inherits together with the right to write."""
        return self._lock.fileno()

    def give(self) -> None:
        """Closes our descriptor: the right ends here, or lives on in the worker that inherited it."""
        self._lock.release()


def open_writer(folder: JobFolder) -> PatientWriter:
    """The worker's writer. A supervisor has handed over the log and named the attempt; started by hand, the worker
    takes the log itself and counts the attempt up.

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
    """The last whole line of a log as an event, read from the end; None where there is none that we know."""
    try:
        descriptor = open_plain(path)
    except FileNotFoundError:
        return None
    try:
        lines = _last_lines(descriptor)
    finally:
        os.close(descriptor)
    known = (parse_event(line) for line in lines[1:] if number_of(line) is not None)  # behind the last newline: torn
    return next((event for event in known if event), None)


def _last_lines(descriptor: int) -> list[bytes]:
    """The end of a log, the last line first; that is empty where the log ends with a newline."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES)).split(b"\n")[::-1]


def _last_number(descriptor: int) -> int:
    """The number of a log's last line, counted on from the last one that is whole; 0 where none is near its end."""
    lines = _last_lines(descriptor)
    lines = lines if lines[0] else lines[1:]
    return next((number + back for back, line in enumerate(lines) if (number := number_of(line))), 0)
