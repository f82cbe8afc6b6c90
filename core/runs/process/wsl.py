"""Keeps WSL awake while a run lives.

Windows ends a WSL distribution with its last Windows-side session, however many Linux processes run in it. So the
supervisor opens one through interop: ``wsl.exe`` runs a command in this same distribution, and that command, ``tail
--pid``, ends by itself as soon as the supervisor does, however that dies.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from core.contract.events import Note

__all__ = ["end_holder", "hold_session", "session_command"]

_FALLBACK = "/mnt/c/Windows/System32/wsl.exe"
_SETTLE_SECONDS = 0.5
_LEAVE_SECONDS = 2.0


def session_command(environment: Mapping[str, str], program: str | None, pid: int) -> list[str] | None:
    """The command that holds a session for as long as process ``pid`` lives; None where interop is missing."""
    distribution = environment.get("WSL_DISTRO_NAME")
    if not distribution or not program:
        return None
    return [program, "-d", distribution, "--exec", "tail", f"--pid={pid}", "-f", "/dev/null"]


@contextmanager
def hold_session(wsl: bool) -> Iterator[Note | None]:
    """Holds the session for the length of the block, on WSL; yields a note to be said where it cannot be held."""
    if not wsl:
        yield None
        return
    command = session_command(os.environ, shutil.which("wsl.exe") or shutil.which(_FALLBACK), os.getpid())
    session = _open(command) if command else None
    try:
        yield None if session else _NOTE
    finally:
        if session:
            end_holder(session)


_NOTE = Note(
    code="wsl.session",
    text="Windows may end this run when the last Linux window is closed: no Windows session could be held open.",
    hint="Keep this terminal open while the run lives.",
)


def _open(command: list[str]) -> subprocess.Popen[bytes] | None:
    quiet = subprocess.DEVNULL
    try:
        session = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    except OSError:
        return None
    time.sleep(_SETTLE_SECONDS)  # interop that is switched off exits at once
    return session if session.poll() is None else None


def end_holder(holder: subprocess.Popen[bytes]) -> None:
    """Ends a process that holds something for us, and what it waits with; one that does not leave is let be."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(OSError):
            os.killpg(holder.pid, number)
        with suppress(subprocess.TimeoutExpired):
            holder.wait(_LEAVE_SECONDS)
            return
