"""The window's end of a pipe: a child process that can be asked, watched and ended.

A child is started once and stays warm. Every request has a time limit, and while it is worked on the child's memory is
watched; on a breach the child is killed, the request fails with one line, and the next request finds a fresh child.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import psutil

from core.contract.errors import DataError
from core.locations import REPOSITORY

__all__ = ["Child", "Limits"]

_LOOK_SECONDS = 0.05
_LINE_LIMIT = 64 << 20


@dataclass(frozen=True)
class Limits:
    """``memory_bytes`` is counted above the child's idle size; ``start_seconds`` for its imports."""

    seconds: float
    start_seconds: float
    memory_bytes: int


class Child:
    """One warm process of ``python -m MODULE`` that answers JSON lines. Safe to ask from several threads."""

    def __init__(self, module: str, name: str, limits: Limits) -> None:
        self._module = module
        self._name = name
        self._limits = limits
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._idle_bytes = 0
        self._ready = False

    @property
    def pid(self) -> int | None:
        """The living process, if any."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def warm(self) -> None:
        """Starts the process without waiting for it."""
        with self._lock:
            self._start()

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            self._kill()

    def ask(self, request: dict[str, Any]) -> Any:
        """One request, one answer.

        Raises:
            DataError: the answer is an error, the child took too long or too much memory, or it ended.
        """
        with self._lock:
            self._start()
            if not self._ready:
                self._wait(self._limits.start_seconds, watch=False)
                self._idle_bytes, self._ready = self._size(), True
            self._send(request)
            answer = self._wait(self._limits.seconds, watch=True)
        if "error" in answer:
            raise DataError(**answer["error"])
        return answer["ok"]

    def _start(self) -> None:
        if self.pid is not None:
            return
        self._kill()
        self._answers = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=REPOSITORY,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "true"},
        )
        threading.Thread(target=_pump, args=(self._process, self._answers), daemon=True).start()

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._ended() from error

    def _wait(self, seconds: float, watch: bool) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._answers.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                self._watch(deadline, seconds, watch)
                continue
            if not line.endswith(b"\n"):
                raise self._ended()
            answer: dict[str, Any] = json.loads(line)
            return answer

    def _watch(self, deadline: float, seconds: float, watch: bool) -> None:
        if time.monotonic() > deadline:
            self._kill()
            raise DataError(
                "data.time",
                f"Expected the {self._name} to be done within {seconds:g} seconds, found it still at work: "
                "it was ended.",
                "Choose a smaller file or another template.",
            )
        if watch and self._size() - self._idle_bytes > self._limits.memory_bytes:
            self._kill()
            raise DataError(
                "data.memory",
                f"Expected the {self._name} to need less than {self._limits.memory_bytes >> 20:,} MB, "
                "found it above that: it was ended.",
                "Choose a smaller file or another template.",
            )

    def _size(self) -> int:
        with contextlib.suppress(psutil.Error):
            if self._process:
                return int(psutil.Process(self._process.pid).memory_info().rss)
        return 0

    def _ended(self) -> DataError:
        code = None
        if self._process:
            # The pipe closes a moment before the process is gone.
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=2)
        self._kill()
        return DataError(
            "data.ended",
            f"Expected an answer from the {self._name}, found that its process ended (exit code {code}).",
            "Try again; if it happens again, choose another file or template.",
        )

    def _kill(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for end in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if end:
                    end.close()
        self._process, self._ready = None, False


def _pump(process: subprocess.Popen[bytes], answers: queue.Queue[bytes]) -> None:
    """Moves lines from the pipe to the queue; a line without its end says that the pipe closed or overflowed."""
    assert process.stdout
    with contextlib.suppress(OSError, ValueError):
        while (line := process.stdout.readline(_LINE_LIMIT)).endswith(b"\n"):
            answers.put(line)
    answers.put(b"")
