"""Keeps the machine awake while a run lives, where the system allows it; where it does not, nothing is said.

Each way is a small process that holds the wish and ends with us, however we die:

    Linux     systemd-inhibit … tail --pid=PID      tail ends with the supervisor, and the lock with it
    macOS     caffeinate -is -w PID                 waits for the supervisor itself
    WSL       powershell.exe …                      Windows sleeps by its own rules: SetThreadExecutionState holds it as
                                                    long as that thread lives, which waits for the same tail in here

A person who closes the lid or says "sleep" is not overruled on Windows and macOS; a systemd lock asks first.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from core.runs.process.wsl import end_holder, session_command

__all__ = ["awake_command", "keep_awake"]

_POWERSHELL = "/mnt/c/Windows/System32/WindowsPowerShell/v1.0/powershell.exe"
_SYSTEM_REQUIRED = 0x80000001
"""ES_CONTINUOUS | ES_SYSTEM_REQUIRED: the machine stays on, its screen may go dark."""
_HOLD = (
    "$power = Add-Type -PassThru -Name Power -Namespace Luthier -MemberDefinition "
    "'[DllImport(\"kernel32.dll\")] public static extern uint SetThreadExecutionState(uint flags);'; "
    f"$null = $power::SetThreadExecutionState([uint32]{_SYSTEM_REQUIRED}); & "
)
_PLAIN = re.compile(r"[\w./=-]+", re.ASCII)


def awake_command(
    wsl: bool,
    pid: int,
    find: Callable[[str], str | None] = shutil.which,
    platform: str = sys.platform,
    booted: Path = Path("/run/systemd/system"),
) -> list[str] | None:
    """The command that keeps this machine awake while process ``pid`` lives; None where there is no way.

    Args:
        find: where a program lies, as ``shutil.which``.
        booted: stands where systemd runs (sd_booted(3)); its lock is asked for nowhere else.
    """
    if wsl:
        return _windows(find("powershell.exe") or find(_POWERSHELL), pid)
    if platform == "darwin":
        return [program, "-is", "-w", str(pid)] if (program := find("caffeinate")) else None
    program = find("systemd-inhibit")
    if not program or not booted.exists():
        return None
    lock = ("--what=idle:sleep", "--who=Luthier", "--why=A training run is at work", "--mode=block")
    return [program, *lock, "tail", f"--pid={pid}", "-f", "/dev/null"]


def _windows(program: str | None, pid: int) -> list[str] | None:
    session = session_command(os.environ, "wsl.exe", pid)
    if not program or not session:
        return None
    # As base64, since quotes would pass two command lines, each with rules of its own.
    words = " ".join(word if _PLAIN.fullmatch(word) else "'" + word.replace("'", "''") + "'" for word in session)
    script = base64.b64encode((_HOLD + words).encode("utf-16-le")).decode("ascii")
    return [program, "-NoProfile", "-NonInteractive", "-EncodedCommand", script]


@contextmanager
def keep_awake(wsl: bool) -> Iterator[None]:
    """Keeps the machine awake for the length of the block, where it can; a block is never kept waiting by it."""
    command = awake_command(wsl, os.getpid())
    holder = _open(command) if command else None
    try:
        yield
    finally:
        if holder:
            end_holder(holder)


def _open(command: list[str]) -> subprocess.Popen[bytes] | None:
    quiet = subprocess.DEVNULL
    try:
        return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    except OSError:
        return None
