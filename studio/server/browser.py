"""Opens an address in the person's browser; inside WSL that is the browser of Windows."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence

_SECONDS = 8.0
_POWERSHELL = "/mnt/c/Windows/System32/WindowsPowerShell/v1.0/powershell.exe"


def open_address(address: str, wsl: bool) -> bool:
    """Tries the commands in turn, each bounded in time; False where none worked."""
    for command in commands(address, wsl, sys.platform, shutil.which):
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                timeout=_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return True  # the browser runs in the foreground: it is open
        except OSError:
            continue
        if done.returncode == 0:
            return True
    return False


def commands(
    address: str, wsl: bool, system: str, which: Callable[[str], str | None] = shutil.which
) -> list[Sequence[str]]:
    """The commands to try here, best first. No shell reads the address."""
    ways: list[tuple[str, Sequence[str]]]
    if wsl:
        start = f"Start-Process '{address}'"
        ways = [
            ("wslview", [address]),
            ("powershell.exe", ["-NoProfile", "-NonInteractive", "-Command", start]),
            (_POWERSHELL, ["-NoProfile", "-NonInteractive", "-Command", start]),
        ]
    elif system == "darwin":
        ways = [("open", [address])]
    else:
        ways = [("xdg-open", [address]), ("gio", ["open", address]), ("x-www-browser", [address])]
    return [[program, *arguments] for name, arguments in ways if (program := which(name))]
