"""What a worker's processes do while they say nothing, as the system counts it: light beats for ``core.runs.stall``."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil

from core.runs.processes import Identity
from core.runs.stall import Work

__all__ = ["halted", "wake", "work_of"]


def work_of(worker: Identity) -> Work:
    """CPU time and bytes moved by the worker and all below it so far, and whether one of its threads waits for a disk.
    What cannot be read counts nothing."""
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
    return Work(cpu, moved, _waits_for_a_disk(worker.pid))


def halted(worker: Identity) -> bool:
    """Whether somebody stopped the process (SIGSTOP, a debugger): it does nothing until it is told to go on."""
    process = worker.process()
    try:
        return process is not None and process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def wake(who: Identity | None) -> None:
    """Lets a process go on that may have been halted; one that runs does not notice, and nobody is no fault."""
    if who and who.alive():
        with suppress(OSError):
            os.kill(who.pid, signal.SIGCONT)


def _waits_for_a_disk(pid: int) -> bool:
    """Whether a thread is in the state that Linux calls D; elsewhere no."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            if stat.read_bytes().rpartition(b")")[2].split()[:1] == [b"D"]:
                return True
    return False
