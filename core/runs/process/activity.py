"""What a worker's processes do, as the system counts it, for ``core.runs.record.stall``; and whether the kernel killed
any for lack of memory.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil

from core.runs.process.processes import Identity
from core.runs.process.worker_log import log_tail
from core.runs.record.stall import Work

_LAST_WORDS_BYTES = 500


def work_of(worker: Identity) -> Work:
    """CPU time and bytes moved by the worker and its descendants so far, and whether one of its threads waits for a
    disk. What cannot be read counts as nothing."""
    process = worker.process()
    if process is None:
        return Work()
    below: list[psutil.Process] = []
    with suppress(psutil.Error):
        below = process.children(recursive=True)
    cpu, moved = 0.0, 0.0
    for one in (process, *below):
        with suppress(psutil.Error, AttributeError):  # some systems count no bytes
            cpu += sum(one.cpu_times()[:4])  # its own and those of its children that have ended
            counted = one.io_counters()
            moved += counted.read_chars + counted.write_chars + counted.read_bytes
    on_disk = False  # in the state that Linux calls D
    for stat in Path(f"/proc/{worker.pid}/task").glob("*/stat"):
        with suppress(OSError):
            on_disk |= stat.read_bytes().rpartition(b")")[2].split()[:1] == [b"D"]
    return Work(cpu, moved, on_disk)


def halted(worker: Identity) -> bool:
    """Whether the process is stopped (SIGSTOP, a debugger)."""
    process = worker.process()
    try:
        return process is not None and process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


class MemoryKills:
    """Whether the kernel killed a process for lack of memory since this was made.

    Linux counts such kills for the whole machine, containers included (``oom_kill`` in /proc/vmstat). A process that is
    refused memory may also abort itself, with std::bad_alloc in its ``log``.
    """

    def __init__(self, log: Path | None = None) -> None:
        self._before, self._log = _memory_kills(), log

    @property
    def refused(self) -> bool:
        """Whether the log ends with a failed allocation."""
        return self._log is not None and b"std::bad_alloc" in log_tail(self._log, _LAST_WORDS_BYTES)

    @property
    def more(self) -> bool | None:
        """Whether the count has grown; None where nothing is counted."""
        now = _memory_kills()
        return None if now is None or self._before is None else now > self._before

    @property
    def words(self) -> str:
        """Why, to follow "was killed (signal 9)"."""
        if self.more is None:
            return "by somebody, or because memory ran out"
        other = "by somebody or another program; the kernel counted no lack of memory"
        return "because memory ran out" if self.more else other


def wake(who: Identity | None) -> None:
    """Continues a process that may have been halted (SIGCONT)."""
    if who and who.alive():
        with suppress(OSError):
            os.kill(who.pid, signal.SIGCONT)


def _memory_kills() -> int | None:
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None
