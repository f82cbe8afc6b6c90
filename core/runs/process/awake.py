"""Keeps the machine, and on WSL Linux itself, awake while a run lives.

Each is held by a small process that ends with us, however we die:

    session   wsl.exe … tail --pid=PID              Windows ends a distribution with its last Windows-side session
    Linux     systemd-inhibit … tail --pid=PID      tail ends with the supervisor, and the lock with it
    macOS     caffeinate -is -w PID                 waits for the supervisor itself
    WSL       powershell.exe …                      SetThreadExecutionState holds Windows as long as that thread lives,
                                                    which waits for the same tail in here

A closed lid or "sleep" still works on Windows and macOS; a systemd lock asks first.
"""

import base64
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from core.contract.events import Note
from core.runs.process.desktop import POWERSHELL

_WSL = "/mnt/c/Windows/System32/wsl.exe"
_SYSTEM_REQUIRED = 0x80000001
"""ES_CONTINUOUS | ES_SYSTEM_REQUIRED: the machine stays on, its screen may go dark."""
_HOLD = (
    "$power = Add-Type -PassThru -Name Power -Namespace Luthier -MemberDefinition "
    "'[DllImport(\"kernel32.dll\")] public static extern uint SetThreadExecutionState(uint flags);'; "
    f"$null = $power::SetThreadExecutionState([uint32]{_SYSTEM_REQUIRED}); & "
)
_PLAIN = re.compile(r"[\w./=-]+", re.ASCII)
_SETTLE_SECONDS = 0.5
_LEAVE_SECONDS = 2.0
_NO_SESSION = Note(
    code="wsl.session",
    text="Windows may end this run when the last Linux window is closed: no Windows session could be held open.",
    hint="Keep this terminal open while the run lives.",
)


def session_command(environment: Mapping[str, str], program: str | None, pid: int) -> list[str] | None:
    """The command that holds a session for as long as process ``pid`` lives; None where interop is missing."""
    distribution = environment.get("WSL_DISTRO_NAME")
    if not distribution or not program:
        return None
    return [program, "-d", distribution, "--exec", "tail", f"--pid={pid}", "-f", "/dev/null"]


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
        booted: exists where systemd runs (sd_booted(3)); its lock is used nowhere else.
    """
    if wsl:
        program, session = find("powershell.exe") or find(POWERSHELL), session_command(os.environ, "wsl.exe", pid)
        if not program or not session:
            return None
        # Base64: quotes would have to survive two command lines with different rules.
        words = " ".join(word if _PLAIN.fullmatch(word) else "'" + word.replace("'", "''") + "'" for word in session)
        script = base64.b64encode((_HOLD + words).encode("utf-16-le")).decode("ascii")
        return [program, "-NoProfile", "-NonInteractive", "-EncodedCommand", script]
    if platform == "darwin":
        return [program, "-is", "-w", str(pid)] if (program := find("caffeinate")) else None
    program = find("systemd-inhibit")
    if not program or not booted.exists():
        return None
    lock = ("--what=idle:sleep", "--who=Luthier", "--why=A training run is at work", "--mode=block")
    return [program, *lock, "tail", f"--pid={pid}", "-f", "/dev/null"]


@contextmanager
def hold_session(wsl: bool) -> Iterator[Note | None]:
    """Holds a Windows session during the block, on WSL; yields a note where it cannot be held."""
    program = wsl and (shutil.which("wsl.exe") or shutil.which(_WSL))
    with _held(session_command(os.environ, program or None, os.getpid())) as holder:
        if holder:
            time.sleep(_SETTLE_SECONDS)  # interop that is switched off exits at once
        yield _NO_SESSION if wsl and (holder is None or holder.poll() is not None) else None


@contextmanager
def keep_awake(wsl: bool) -> Iterator[None]:
    """Keeps the machine awake during the block, where it can."""
    with _held(awake_command(wsl, os.getpid())):
        yield


@contextmanager
def _held(command: list[str] | None) -> Iterator[subprocess.Popen[bytes] | None]:
    """Runs a command during the block, then ends its process group. Yields None where it cannot be started."""
    quiet, holder = subprocess.DEVNULL, None
    with suppress(OSError):
        if command:
            holder = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        yield holder
    finally:
        if holder and holder.returncode is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(OSError):
                    os.killpg(holder.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    holder.wait(_LEAVE_SECONDS)
                    break
