"""The asking end of a pipe: a warm child process that answers requests.

Requests are served in the order in which they came, each within limits of time and memory. Where one is exceeded the
child is killed, and the next request starts a fresh one.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from core.contract.errors import DataError
from core.machine.children.line_child import EndedError, LineChild

_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Limits:
    """``memory_bytes`` is counted above the child's idle size; ``start_seconds`` is for its imports.

    ``walled``: Linux enforces the memory limit too (RLIMIT_DATA), also between two measurements. Not for children with
    many threads, each of which counts with its whole stack.
    """

    seconds: float
    start_seconds: float
    memory_bytes: int
    walled: bool = False


class _InOrder:
    """A lock that threads get in the order in which they asked; a plain one may be taken by the same thread again."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asking: deque[object] = deque()

    def __enter__(self) -> None:
        mine = object()
        with self._changed:
            self._asking.append(mine)
            try:
                self._changed.wait_for(lambda: self._asking[0] is mine)
            except BaseException:
                self._asking.remove(mine)
                self._changed.notify_all()
                raise

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._asking.popleft()
            self._changed.notify_all()


class Child:
    """One warm process of ``python -m MODULE`` that answers JSON lines. Safe to ask from several threads."""

    def __init__(self, module: str, name: str, limits: Limits) -> None:
        self._module, self._name, self._limits = module, name, limits
        self._lock = _InOrder()
        self._child: LineChild | None = None
        self._idle_bytes = 0
        self._ready = self._closed = False

    @property
    def pid(self) -> int | None:
        """The living process, if any."""
        return self._child.pid if self._child and self._child.alive() else None

    def warm(self) -> None:
        """Starts the process without waiting for it."""
        with self._lock:
            if not self._closed:
                self._start()

    def close(self) -> None:
        """Ends the process for good: the present request is stopped, and later ones fail."""
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
        """One request, one answer. ``about``: the file's name, for messages.

        ``told`` is called with what the child tells before its answer; the time limit begins again with each of these.

        Raises:
            DataError: the answer is an error, the child took too long or too much memory, or it ended; or
                ``cancelled()`` is true, which ends the child (code ``data.stopped``).
        """
        with self._lock:
            try:
                answer = self._answered(request, about, cancelled, told)
            except EndedError as end:
                self._kill()
                raise DataError("data.ended", name=self._name, about=about, reason=end.reason) from end
            except BaseException:
                self._kill()  # the next request must not get the answer to this one
                raise
            if answer.get("error", {}).get("code") == "data.memory":
                self._kill()
        if "error" in answer:
            raise DataError.told_by(answer["error"])
        return answer["ok"]

    def _answered(
        self,
        request: dict[str, Any],
        about: str,
        cancelled: Callable[[], bool] | None,
        told: Callable[[Any], None] | None,
    ) -> dict[str, Any]:
        if self._closed:
            raise stopped(about)
        child = self._start()
        if not self._ready:
            self._wait(child, self._limits.start_seconds, "its libraries", cancelled)
            self._idle_bytes, self._ready = _size(child), True
            if self._limits.walled and hasattr(psutil, "RLIMIT_DATA"):
                with contextlib.suppress(psutil.Error, OSError, ValueError):
                    running = psutil.Process(child.pid)
                    wall = int(running.memory_info().data) + self._limits.memory_bytes
                    running.rlimit(psutil.RLIMIT_DATA, (wall, wall))
        child.send(request)
        while "told" in (answer := self._wait(child, self._limits.seconds, about, cancelled)):
            if told:
                told(answer["told"])
        return answer

    def _start(self) -> LineChild:
        if not (self._child and self._child.alive()):
            self._kill()
            self._child = LineChild(self._module, {"TOKENIZERS_PARALLELISM": "true"})
        return self._child

    def _wait(
        self, child: LineChild, seconds: float, about: str, cancelled: Callable[[], bool] | None
    ) -> dict[str, Any]:
        """The child's next line. Raises DataError where it must be killed, which ``ask`` does."""
        deadline = time.monotonic() + seconds
        while True:
            answer = child.hear(_LOOK_SECONDS)
            if answer is not None and "told" not in answer:
                return answer
            if self._closed or (cancelled and cancelled()):
                raise stopped(about)
            if self._ready and _size(child) - self._idle_bytes > self._limits.memory_bytes:
                megabytes = self._limits.memory_bytes >> 20
                raise DataError("data.memory/child", name=self._name, megabytes=megabytes, about=about)
            if answer is not None:
                return answer
            if time.monotonic() > deadline:
                raise DataError("data.time/child", name=self._name, about=about, seconds=seconds)

    def _kill(self) -> None:
        if self._child:
            self._child.kill()
            self._child.close()
        self._child, self._ready = None, False


def _size(child: LineChild) -> int:
    """Bytes of its resident memory; 0 where it is gone."""
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(child.pid).memory_info().rss)
    return 0


def stopped(about: str) -> DataError:
    """The error of a request that was cancelled."""
    return DataError("data.stopped", about=about)
