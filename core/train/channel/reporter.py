"""What a worker says while it works: events through one writer, progress at a pace that a reader can follow.

Light: imported before anything heavy, so that the first word and every acknowledgement come at once.
"""

import contextlib
import io
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol

from core.contract.events import Event, Note, Stage, StageName

TRAINING_SECONDS = 60.0


class Writer(Protocol):
    """``core.runs.log.events_log.EventWriter``, or a list in a test."""

    def write(self, event: Event) -> Event:
        """Appends one event."""


class EventReporter:
    """Writes events with the present step filled in; safe between threads.

    A stage's progress is written when its stage or text changes, when it is done, and else twice a second at most; less
    often the longer it takes (a hundredth of its time, at most 5 s), and for training, whose steps say the same, once a
    minute. So a night's log is made of steps.
    """

    def __init__(self, writer: Writer) -> None:
        self.step = 0
        self._writer = writer
        self._guard = threading.Lock()
        self._stage = ("", "")
        self._begun_at = self._staged_at = 0.0
        self.at = Stage()
        """What is going on, whether it was written or is too soon to be."""

    def say(self, event: Event) -> None:
        """Writes ``event``; a step of 0 becomes the present step."""
        self._writer.write(event if event.step else event.model_copy(update={"step": self.step}))

    def note(self, code: str, text: str, hint: str = "") -> None:
        """Something worth saying that changes nothing."""
        self.say(Note(code=code, text=text, hint=hint))

    def stage(self, stage: StageName, text: str = "", done: float = 0, total: float = 0, unit: str = "") -> None:
        """What is going on, and how far it is (``total`` 0: unknown)."""
        with self._guard:
            self.at = Stage(stage=stage, text=text, done=done, total=total, unit=unit)
            now = time.monotonic()
            if (stage, text) != self._stage:
                self._begun_at = now
            else:
                pace = TRAINING_SECONDS if stage == "training" else min(max(0.5, (now - self._begun_at) / 100), 5.0)
                if not (total and done >= total) and now - self._staged_at < pace:
                    return
            self._stage, self._staged_at = (stage, text), now
        self.say(Stage(stage=stage, text=text, done=done, total=total, unit=unit))

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """What went on before is said again after the block, unless the block said nothing else. (A stall is judged by
        the stage that was said last: after a wait there would be none for ever.)"""
        before = self.at
        yield
        if (before.stage, before.text) != self._stage:
            self.stage(before.stage, before.text, before.done, before.total, before.unit)


class _Dropping(io.FileIO):
    """Says that all was written, whatever became of it."""

    def write(self, data: Any) -> int:
        with contextlib.suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def print_or_drop() -> None:
    """From here on ``print`` and its like drop what their file does not take: progress bars, warnings and tracebacks
    are worth less than the run. For a process of its own."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        raw = _Dropping(descriptor, "w", closefd=False)
        setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True))
