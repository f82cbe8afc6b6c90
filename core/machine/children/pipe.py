"""The asking end of a pipe: a child process that can be asked, watched and ended.

A child is started once and stays warm. Every request has a time limit, and while it is worked on the child's memory is
watched; on a breach the child is killed, the request fails with one line, and the next request finds a fresh child.
Long work is asked for in slices, and requests are served in the order in which they came: between two slices of one
file another file's first look gets its turn.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from core.contract.errors import DataError
from core.machine.children.tied import start_tied
from core.machine.locations import REPOSITORY

_LOOK_SECONDS = 0.05
_LINE_LIMIT = 64 << 20


@dataclass(frozen=True)
class Limits:
    """``memory_bytes`` is counted above the child's idle size; ``start_seconds`` for its imports.

    ``walled``: the system itself refuses more (Linux), so that not even a burst between two looks is beyond the limit.
    Not for children with many threads, each of which counts with its whole stack.
    """

    seconds: float
    start_seconds: float
    memory_bytes: int
    walled: bool = False


@dataclass(frozen=True)
class _Watch:
    """What is looked at while an answer is waited for."""

    about: str
    cancelled: Callable[[], bool] | None = None
    told: Callable[[Any], None] | None = None
    memory: bool = True


class _InOrder:
    """A lock that is handed on in the order in which it was asked for: a plain one may be taken again and again by
    the same thread while others wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._last = self._served = 0
        self._given_up: set[int] = set()

    def __enter__(self) -> None:
        with self._changed:
            mine = self._last
            self._last += 1
            try:
                while mine != self._served:
                    self._changed.wait()
            except BaseException:
                self._given_up.add(mine)
                raise

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._served += 1
            while self._served in self._given_up:
                self._given_up.remove(self._served)
                self._served += 1
            self._changed.notify_all()


class Child:
    """One warm process of ``python -m MODULE`` that answers JSON lines. Safe to ask from several threads."""

    def __init__(self, module: str, name: str, limits: Limits) -> None:
        self._module, self._name, self._limits = module, name, limits
        self._lock = _InOrder()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._idle_bytes = 0
        self._ready = self._closed = False

    @property
    def pid(self) -> int | None:
        """The living process, if any."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def warm(self) -> None:
        """Starts the process without waiting for it."""
        with self._lock:
            if not self._closed:
                self._start()

    def close(self) -> None:
        """Ends the process for good: what is at work is stopped, and nothing that is asked later begins."""
        self._closed = True
        with self._lock:
            self._kill()

    def ask(
        self,
        request: dict[str, Any],
        about: str = "data",
        cancelled: Callable[[], bool] | None = None,
        told: Callable[[Any], None] | None = None,
    ) -> Any:
        """One request, one answer. ``about``: the file's name, for the line about a breach.

        ``told`` is called with what the child tells before its answer; its time begins again with each of these.

        Raises:
            DataError: the answer is an error, the child took too long or too much memory, or it ended; or
                ``cancelled()`` said yes, which ends the child (code ``data.stopped``).
        """
        with self._lock:
            try:
                answer = self._answered(request, _Watch(about, cancelled, told))
            except BaseException:
                self._kill()  # whoever asks next must not be given the answer to this
                raise
            if answer.get("error", {}).get("code") == "data.memory":
                self._kill()
        if "error" in answer:
            raise DataError.told_by(answer["error"])
        return answer["ok"]

    def _answered(self, request: dict[str, Any], watch: _Watch) -> dict[str, Any]:
        if self._closed:
            raise stopped(watch.about)
        process = self._start()
        if not self._ready:
            self._wait(self._limits.start_seconds, _Watch("its libraries", watch.cancelled, memory=False))
            self._idle_bytes, self._ready = self._size(), True
            if self._limits.walled and hasattr(psutil, "RLIMIT_DATA"):
                with contextlib.suppress(psutil.Error, OSError, ValueError):
                    running = psutil.Process(process.pid)
                    wall = int(running.memory_info().data) + self._limits.memory_bytes
                    running.rlimit(psutil.RLIMIT_DATA, (wall, wall))
        assert process.stdin
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise self._ended(watch.about) from error
        return self._wait(self._limits.seconds, watch)

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process and self._process.poll() is None:
            return self._process
        self._kill()
        self._answers = queue.Queue()
        self._process = start_tied(
            [sys.executable, "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=REPOSITORY,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "true"},
        )
        threading.Thread(target=_pump, args=(self._process, self._answers), daemon=True).start()
        return self._process

    def _wait(self, seconds: float, watch: _Watch) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._answers.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                self._look(deadline, seconds, watch)
                continue
            if not line.endswith(b"\n"):
                raise self._ended(watch.about)
            answer: dict[str, Any] = json.loads(line)
            if "told" not in answer:
                return answer
            deadline = time.monotonic() + seconds
            if watch.told:
                watch.told(answer["told"])
            self._look(deadline, seconds, watch)

    def _look(self, deadline: float, seconds: float, watch: _Watch) -> None:
        """Raises DataError where the child has to be ended, which ``ask`` does."""
        if self._closed or (watch.cancelled and watch.cancelled()):
            raise stopped(watch.about)
        if watch.memory and self._size() - self._idle_bytes > self._limits.memory_bytes:
            raise DataError(
                "data.memory/child", name=self._name, megabytes=self._limits.memory_bytes >> 20, about=watch.about
            )
        if time.monotonic() > deadline:
            raise DataError("data.time/child", name=self._name, about=watch.about, seconds=seconds)

    def _size(self) -> int:
        with contextlib.suppress(psutil.Error):
            if self._process:
                return int(psutil.Process(self._process.pid).memory_info().rss)
        return 0

    def _ended(self, about: str) -> DataError:
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process:  # the pipe closes a moment before the process is gone
                code = self._process.wait(timeout=2)
        return DataError("data.ended", name=self._name, about=about, code=code)

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


def stopped(about: str) -> DataError:
    """What is raised where somebody asked to stop: nothing failed."""
    return DataError("data.stopped", about=about)


def _pump(process: subprocess.Popen[bytes], answers: queue.Queue[bytes]) -> None:
    """Moves lines from the pipe to the queue; a line without its end says that the pipe closed or overflowed."""
    assert process.stdout
    with contextlib.suppress(OSError, ValueError):
        while (line := process.stdout.readline(_LINE_LIMIT)).endswith(b"\n"):
            answers.put(line)
    answers.put(b"")
