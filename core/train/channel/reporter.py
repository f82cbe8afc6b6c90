"""A worker's events, its progress thinned out. Imports nothing heavy, so that a worker's first event comes at once."""

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

    Progress is written when its stage or text changes, when it is done, and else at intervals of a hundredth of the
    stage's time, 0.5 to 5 s; for training, whose steps say the same, 60 s.
    """

    def __init__(self, writer: Writer) -> None:
        self.step = 0
        self._writer = writer
        self._guard = threading.Lock()
        self._stage = ("", "")
        self._begun_at = self._staged_at = 0.0
        self.at = Stage()
        """The present progress, written or not."""

    def say(self, event: Event) -> None:
        """Writes ``event``; a step of 0 becomes the present step."""
        self._writer.write(event if event.step else event.model_copy(update={"step": self.step}))

    def note(self, code: str, text: str, hint: str = "") -> None:
        """Writes a ``Note``."""
        self.say(Note(code=code, text=text, hint=hint))

    def stage(self, stage: StageName, text: str = "", done: float = 0, total: float = 0, unit: str = "") -> None:
        """Writes progress where that is due (``total`` 0: unknown)."""
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
        """Says the present stage again after a block that said another: the stall watch goes by the stage said last."""
        before = self.at
        yield
        if (before.stage, before.text) != self._stage:
            self.stage(before.stage, before.text, before.done, before.total, before.unit)


class _Dropping(io.FileIO):
    """Reports every write as done, even where it failed."""

    def write(self, data: Any) -> int:
        with contextlib.suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def print_or_drop() -> None:
    """Makes stdout and stderr drop what a full disk refuses, instead of raising; for the whole process."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        raw = _Dropping(descriptor, "w", closefd=False)
        setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True))
