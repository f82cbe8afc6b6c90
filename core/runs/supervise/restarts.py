"""When a worker that ended is followed by another, and when that is no use.

A fresh process is worth it as long as the run gets on: a newer checkpoint, or a correction (smaller passes, a halved
rate), after which the same steps are not the same work. Where two fresh ones brought nothing, the run stops.
"""

import threading
import time
from collections.abc import Callable

from core.machine.hardware import Machine, read_machine

MAX_FUTILE_RESTARTS = 2
_LOOK_SECONDS = 2.0
_ANSWER_SECONDS = 0.5
"""An answer takes milliseconds; one that takes longer is met at a later look."""


class Restarts:
    """Counts what a supervisor sees of one job, which stood there when it came."""

    def __init__(self, step: int = 0, corrections: int = 0) -> None:
        self.futile = 0
        """Ends in a row that brought nothing new, this one included."""
        self._furthest, self._corrections = step, corrections

    def worth_it(self, step: int, corrections: int) -> bool:
        """Takes an end, with the newest checkpoint's step and the corrections so far; False where it is the third in
        a row that brought nothing."""
        if corrections > self._corrections:  # the checkpoint may be an older one now: count from there
            self.futile, self._furthest = 1, step
        else:
            self.futile = 1 if step > self._furthest else self.futile + 1
            self._furthest = max(step, self._furthest)
        self._corrections = max(corrections, self._corrections)
        return self.futile <= MAX_FUTILE_RESTARTS


class CardLook:
    """Whether the card that is locked is seen by its driver. After a sleep a driver may not answer at all: it is asked
    in a thread, which may hang where its owner must not, and never in two."""

    def __init__(self, machine: Machine, read: Callable[[], Machine] = read_machine) -> None:
        self._uuid = machine.gpu.uuid if machine.gpu else ""
        self._read, self._seen = read, threading.Event()
        self._thread: threading.Thread | None = None
        self._due = 0.0

    def answers(self) -> bool:
        """What is known by now; asks again where the last answer was no. On the CPU always yes."""
        asking = self._thread is not None and self._thread.is_alive()
        if self._uuid and not self._seen.is_set() and not asking and time.monotonic() >= self._due:
            self._due = time.monotonic() + _LOOK_SECONDS
            self._thread = threading.Thread(target=self._ask, name="card", daemon=True)
            self._thread.start()
            self._thread.join(_ANSWER_SECONDS)
        return not self._uuid or self._seen.is_set()

    def _ask(self) -> None:
        if any(gpu.uuid == self._uuid for gpu in self._read().gpus):
            self._seen.set()
