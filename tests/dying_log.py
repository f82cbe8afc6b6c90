"""A log that dies on a wanted event, and a mailbox: a run that is interrupted or steered in the test's own process."""

from collections.abc import Callable
from typing import Any

from core.contract.commands import Command
from core.contract.events import Event
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventWriter


class Killed(BaseException):
    """Stands for a SIGKILL at one exact event."""


class Log(EventWriter):
    """The real writer, which keeps what was said and may die on a wanted event."""

    def __init__(self, folder: JobFolder, attempt: int = 1, die: Callable[[Event], bool] | None = None) -> None:
        super().__init__(folder.events, attempt)
        self.said: list[Any] = []
        self._die = die

    def write(self, event: Any) -> Any:
        said = super().write(event)
        self.said.append(said)
        if self._die and self._die(event):
            raise Killed
        return said

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.said if event.kind == kind]

    def losses(self) -> dict[int, float | None]:
        return {event.step: event.loss for event in self.of("step")}


class Letters:
    """A mailbox into which a test puts commands."""

    def __init__(self, *waiting: Command) -> None:
        self.waiting = list(waiting)

    def poll(self) -> list[Command]:
        waiting, self.waiting = self.waiting, []
        return waiting


class Said:
    """A writer that keeps what is written."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.attempt = 1

    def write(self, event: Event) -> Event:
        self.events.append(event)
        return event

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.kind == kind]
