"""A real browser and a real studio, for the browser tests and for the script that takes the screenshots."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.machine.locations import REPOSITORY, Locations
from studio.server.living import living_studio

NAMES = (
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
    "microsoft-edge", "microsoft-edge-stable",
)  # fmt: skip
"""The first one, which is Playwright's choice too, has no window at all and costs a page a fifth less."""
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP evil.example 127.0.0.1",
)  # fmt: skip
"""The last one names another site that is here, for the tests of the door."""
WAYS = (
    "The browser tests want a Chromium. Three ways: have chromium, chrome or edge on PATH; or run "
    "'.venv/bin/playwright install chromium'; or, on Debian and Ubuntu, 'sudo apt install chromium fonts-dejavu-core'."
)


def find_browser(playwright: Any) -> str | None:
    """The browser's program: from PATH, else Playwright's own (None), else installed by apt as root.

    Raises:
        RuntimeError: none of the three ways works; the message names them.
    """
    if found := next((path for name in NAMES if (path := shutil.which(name))), None):
        return found
    own = Path(playwright.chromium.executable_path)
    if own.exists() or _installs(sys.executable, "-m", "playwright", "install", "chromium"):
        return None
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        _installs("apt-get", "update", "-q")
        for name in ("chromium-headless-shell", "chromium"):  # Ubuntu has the second alone
            _installs("apt-get", "install", "-y", "-q", name, "fonts-dejavu-core")
            if found := shutil.which(name):
                return found
    raise RuntimeError(WAYS)


def _installs(*command: str) -> bool:
    """Whether it was installed by this command."""
    try:
        return subprocess.run(command, capture_output=True, timeout=300, check=False).returncode == 0
    except (subprocess.SubprocessError, OSError):
        return False


def launch(playwright: Any) -> Any:
    """A headless browser."""
    return playwright.chromium.launch(executable_path=find_browser(playwright), args=ARGUMENTS)


@dataclass
class RunningStudio:
    """A studio process of its own; ``address`` opens it once."""

    process: subprocess.Popen[str]
    address: str
    home: Path

    @property
    def root(self) -> str:
        """Scheme, host and port."""
        return self.address.split("/enter")[0]

    def fresh_address(self) -> str:
        """Another address with a fresh token, asked for as a second start does, once the studio answers."""
        until = time.monotonic() + 90
        while time.monotonic() < until and self.process.poll() is None:
            if address := living_studio(Locations(self.home)):
                return address
            time.sleep(0.1)
        raise RuntimeError("the studio does not answer")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends the studio, and only the studio."""
        self.process.send_signal(how)
        self.process.wait(20)


@contextlib.contextmanager
def running_studio(home: Path, port: int | None = None, **environment: str) -> Iterator[RunningStudio]:
    """Starts ``python -m studio`` and waits for its address."""
    command = [sys.executable, "-m", "studio", "--no-browser", "--port", str(port or free_port())]
    process = subprocess.Popen(
        [*command, "--home", str(home)], cwd=REPOSITORY, text=True, stdout=subprocess.PIPE,
        env={**os.environ, "LUTHIER_HOME": str(home), **environment},
    )  # fmt: skip
    try:
        yield RunningStudio(process, _address(process), home)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://127\.0\.0\.1:\d+/enter\?token=[\w-]+", line):
            return found.group()
    raise RuntimeError(f"the studio ended with {process.wait()} and named no address")


def free_port() -> int:
    """A port that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
