"""A child process that reads and writes JSON lines; threads read its output, so that waiting can be given up."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from core.machine.children.tied import start_tied
from core.machine.locations import REPOSITORY
from core.machine.textfile import one_line

ENDING_SECONDS = 5.0
_LINE_LIMIT = 64 << 20
"""Bytes of an answer; a child that writes a longer line counts as ended."""
_PRINTED_LIMIT = 1 << 16


class EndedError(Exception):
    """The child ended: why, and the last line that it printed on stderr."""

    def __init__(self, reason: str, last: str) -> None:
        super().__init__(f"{reason}: {last}")
        self.reason, self.last = reason, last


class LineChild:
    """``python -m MODULE`` with its pipes, tied to this process."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        """``environment`` is added to this process's own."""
        self._process = start_tied(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=REPOSITORY,
            env={**os.environ, **environment},
        )
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        self.pid, self._stdin = self._process.pid, self._process.stdin
        self._stdout, self._stderr = self._process.stdout, self._process.stderr
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._printed: deque[bytes] = deque(maxlen=20)
        self._threads = [threading.Thread(target=read, daemon=True) for read in (self._read_lines, self._read_printed)]
        for thread in self._threads:
            thread.start()

    def alive(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    def send(self, line: dict[str, Any]) -> None:
        """Sends one line. Raises EndedError."""
        try:
            self._stdin.write(json.dumps(line).encode() + b"\n")
            self._stdin.flush()
        except (OSError, ValueError) as error:
            raise self._ended() from error

    def hear(self, seconds: float) -> dict[str, Any] | None:
        """Its next line; None where there is none within ``seconds``. Raises EndedError."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            return None
        if not line:
            self._lines.put(line)  # for the next call
            raise self._ended()
        heard: dict[str, Any] = json.loads(line)
        return heard

    def kill(self) -> None:
        """Kills it at once."""
        self._process.kill()

    def close(self) -> None:
        """Ends the child by closing its stdin, or kills it after ``ENDING_SECONDS``."""
        if sys.is_finalizing():  # the reading threads stand still and hold their pipes for good
            self.kill()
            return
        with contextlib.suppress(OSError):  # it died with unread lines in the pipe
            self._stdin.close()
        self._wait()
        for thread, pipe in zip(self._threads, (self._stdout, self._stderr), strict=True):
            thread.join(timeout=1)
            if not thread.is_alive():
                pipe.close()

    def _wait(self) -> None:
        try:
            self._process.wait(timeout=ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ended(self) -> EndedError:
        self._wait()  # the pipe closes a moment before the process is gone
        self._threads[1].join(timeout=1)  # its last lines may still be on their way
        code = self._process.returncode
        reason = "killed by somebody, or because memory ran out" if code == -9 else f"exit code {code}"
        last = next((line for line in reversed(self._printed) if line.strip()), b"")
        return EndedError(reason, one_line(last.decode(errors="replace"), 200))

    def _read_lines(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the pipe was closed
            while (line := self._stdout.readline(_LINE_LIMIT)).endswith(b"\n"):
                self._lines.put(line)
        self._lines.put(b"")

    def _read_printed(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while line := self._stderr.readline(_PRINTED_LIMIT):
                self._printed.append(line)
