"""Commands: acknowledged at once by a thread, obeyed at a safe point (between micro-batches, rows, download blocks).

    mailbox ─► thread: Acknowledged ─► leaving: pause | stop   ─► check() raises Leave
                                    └► waiting: save, sample   ─► take()

Imports no torch.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import wait
from typing import Literal, Protocol, TypeVar

from core.contract.commands import Command
from core.contract.errors import MachineError
from core.contract.events import Acknowledged
from core.machine.host import begun
from core.train.channel.reporter import EventReporter

POLL_SECONDS = 0.2
LOOK_SECONDS = 0.1

T = TypeVar("T")


class Commands(Protocol):
    """Source of commands: ``core.runs.control.mailbox.Mailbox``."""

    def poll(self) -> list[Command]:
        """The commands since the last call, each once."""


class NoCommands:
    """A mailbox that stays empty."""

    def poll(self) -> list[Command]:
        """Nothing."""
        return []


class Leave(BaseException):
    """Ends the work at a safe point on request. No ``Exception``, so that no ``except Exception`` swallows it."""

    def __init__(self, verb: Literal["pause", "stop"]) -> None:
        super().__init__(verb)
        self.verb = verb


class Afresh(BaseException):
    """Ends the work: a fresh process has to go on from the last checkpoint. The text tells people why."""


class CommandQueue:
    """Commands that are received and not done yet."""

    def __init__(self, mailbox: Commands, reporter: EventReporter) -> None:
        self._mailbox, self._reporter = mailbox, reporter
        self._waiting: deque[Command] = deque()
        self._leaving: Literal["pause", "stop", ""] = ""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="mailbox", daemon=True)

    def start(self) -> CommandQueue:
        """Starts the listening thread."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stops listening; commands not acknowledged by then wait for the next attempt."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    @property
    def leaving(self) -> bool:
        """Whether a pause or stop waits to be obeyed."""
        return bool(self._leaving)

    def check(self) -> None:
        """A safe point.

        Raises:
            Leave: pause or stop was asked; a stop outweighs a pause.
        """
        if self._leaving:
            raise Leave(self._leaving)

    def wait(self, seconds: float) -> None:
        """Sleeps.

        Raises:
            Leave: pause or stop was asked meanwhile.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.check()
            time.sleep(LOOK_SECONDS)

    def meanwhile(self, work: Callable[[], T]) -> T:
        """Does ``work``, which knows no safe points, on a thread of its own; on ``Leave`` it is left to end with the
        process.

        Raises:
            Leave: pause or stop was asked meanwhile.
            BaseException: what ``work`` raised.
        """
        done = begun(work, "meanwhile")
        while not wait([done], LOOK_SECONDS).done:
            self.check()
        return done.result()

    def take(self) -> Command | None:
        """The oldest save or sample that waits."""
        return self._waiting.popleft() if self._waiting else None

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                for command in self._mailbox.poll():
                    self._reporter.say(Acknowledged(command_id=command.id, command=command.verb))
                    self._receive(command)
            except (OSError, MachineError):
                pass  # the disk is full or gone: the loop meets the same and says it
            self._closed.wait(POLL_SECONDS)

    def _receive(self, command: Command) -> None:
        if command.verb == "stop":
            self._leaving = "stop"
        elif command.verb == "pause":
            self._leaving = self._leaving or "pause"
        elif command.verb != "save" or all(other.verb != "save" for other in tuple(self._waiting)):
            self._waiting.append(command)  # one checkpoint answers all who asked for one meanwhile
