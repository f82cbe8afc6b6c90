"""``worker.log``: what supervisor and worker print, capped.

Both append through their own descriptors (O_APPEND), which would follow a rename. So head and tail are copied, and the
file is truncated in place::

    worker.log ── more than 10 MB ──► worker.log.1 (first 256 KB … last 4 MB), worker.log empty

What is printed between the copy's last read and the cut is lost.
"""

import os
import time
from pathlib import Path

from core.machine.disk import open_plain

CAP_BYTES = 10_000_000
HEAD_BYTES = 256_000
TAIL_BYTES = 4_000_000
REST_SECONDS = 0.002
"""How long the rest of a line is waited for."""


def older_log(log: Path) -> Path:
    """Where the log's earlier part lies."""
    return log.with_name(f"{log.name}.1")


def cap_log(log: Path, cap_bytes: int = CAP_BYTES) -> bool:
    """Cuts a log that is longer than the cap, and returns whether it was; on a full disk no copy is kept."""
    try:
        if log.lstat().st_size <= cap_bytes:
            return False
        with os.fdopen(open_plain(log, os.O_RDWR), "r+b") as file:
            _keep(log, file.fileno())  # cuts it, too
    except OSError:
        return False
    return True


def log_tail(log: Path, most_bytes: int = 64_000) -> bytes:
    """The last so many bytes that were printed, those before a cut included."""
    end = _end_of(log, most_bytes)
    return _end_of(older_log(log), most_bytes - len(end)) + end if len(end) < most_bytes else end


def _keep(log: Path, descriptor: int) -> None:
    fresh = log.with_name(f".{log.name}.{os.getpid()}")
    try:
        with os.fdopen(open_plain(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as copy:
            size = os.fstat(descriptor).st_size
            at = max(0, size - TAIL_BYTES)
            if head := os.pread(descriptor, min(HEAD_BYTES, at), 0):
                copy.write(head + f"\n… {at - len(head):,} bytes left out …\n".encode())
            # Copies what is printed meanwhile too, up to a bound. Half of a write that crosses a page can be seen.
            whole = True
            while at - size <= TAIL_BYTES:
                if block := os.pread(descriptor, 1 << 20, at):
                    copy.write(block)
                    copy.flush()
                    at, whole = at + len(block), block.endswith(b"\n")
                elif whole:
                    break
                else:
                    time.sleep(REST_SECONDS)
                    whole = True
            os.ftruncate(descriptor, 0)
        fresh.replace(older_log(log))
    except OSError:
        fresh.unlink(missing_ok=True)
        os.ftruncate(descriptor, 0)


def _end_of(path: Path, most_bytes: int) -> bytes:
    try:
        with os.fdopen(open_plain(path), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            return file.read(most_bytes)
    except OSError:
        return b""
