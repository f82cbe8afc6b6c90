"""The asking end of a pipe: a child process that can be asked, watched and ended.

A child is started once and stays warm. Requests are served in the order in which they came, each within a time limit
and with the child's memory watched; on a breach the child is killed, and the next request finds a fresh one.
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
    """``memory_bytes`` is counted above the child's idle size; ``start_seconds`` for its imports.

    ``walled``: the system itself refuses more (Linux), so that not even a burst between two looks is beyond the limit.
    Not for children with many threads, each of which counts with its whole stack.
    """

    seconds: float
    start_seconds: float
    memory_bytes: int
    walled: bool = False


class _InOrder:
    """A lock that is handed on in the order in which it was asked for: a plain one may be taken again and again by
    the same thread while others wait."""

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
                answer = self._answered(request, about, cancelled, told)
            except EndedError as end:
                self._kill()
                raise DataError("data.ended", name=self._name, about=about, reason=end.reason) from end
            except BaseException:
                self._kill()  # whoever asks next must not be given the answer to this
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
        """What the child says next. Raises DataError where it has to be ended, which ``ask`` does."""
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
    """Bytes of memory that it holds; 0 where it is gone."""
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(child.pid).memory_info().rss)
    return 0


def stopped(about: str) -> DataError:
    """What is raised where somebody asked to stop: nothing failed."""
    return DataError("data.stopped", about=about)
