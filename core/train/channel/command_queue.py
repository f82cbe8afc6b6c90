"""Commands, received at once and obeyed at a safe point.

A thread looks into the mailbox five times a second and acknowledges what it finds, also while a model loads or an
evaluation runs. The work asks at every safe point (between micro-batches, rows, download blocks)::

    mailbox ─► thread: Acknowledged ─► leaving: pause | stop   ─► check() raises Leave
                                    └► waiting: save, sample   ─► take()

Light: nothing of torch is imported here.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Literal, Protocol, TypeVar

from core.contract.commands import Command
from core.contract.errors import MachineError
from core.contract.events import Acknowledged
from core.train.channel.reporter import EventReporter

POLL_SECONDS = 0.2
LOOK_SECONDS = 0.1

T = TypeVar("T")


class Commands(Protocol):
    """``core.runs.control.mailbox.Mailbox``: the new commands for this attempt, each once."""

    def poll(self) -> list[Command]:
        """The commands since the last call."""


class NoCommands:
    """The mailbox of work that nobody steers."""

    def poll(self) -> list[Command]:
        """Nothing."""
        return []


class Leave(BaseException):
    """Ends the work at a safe point because somebody asked; no fault, so no ``except Exception`` swallows it."""

    def __init__(self, verb: Literal["pause", "stop"]) -> None:
        super().__init__(verb)
        self.verb = verb


class Afresh(BaseException):
    """Ends the work because only a fresh process can go on, from the last checkpoint; its text says why, for people."""


class CommandQueue:
    """What was asked of this worker and is not done yet."""

    def __init__(self, mailbox: Commands, reporter: EventReporter) -> None:
        self._mailbox, self._reporter = mailbox, reporter
        self._waiting: deque[Command] = deque()
        self._leaving: Literal["pause", "stop", ""] = ""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="mailbox", daemon=True)

    def start(self) -> CommandQueue:
        """Begins to listen."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Ends the listening; what was not acknowledged by then waits for the next attempt."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    @property
    def leaving(self) -> bool:
        """Whether a pause or stop waits to be obeyed."""
        return bool(self._leaving)

    def check(self) -> None:
        """Leaves when that was asked.

        Raises:
            Leave: pause or stop; a stop outweighs a pause.
        """
        if self._leaving:
            raise Leave(self._leaving)

    def wait(self, seconds: float) -> None:
        """Waits for so long, for something outside this process.

        Raises:
            Leave: pause or stop was asked meanwhile.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.check()
            time.sleep(LOOK_SECONDS)

    def meanwhile(self, work: Callable[[], T]) -> T:
        """Does ``work`` on a thread of its own, which cannot be called off, and looks up meanwhile; who leaves does not
        wait for it, and it ends with the process.

        Raises:
            Leave: pause or stop was asked meanwhile.
            BaseException: what ``work`` raised.
        """
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                done.set_exception(error)

        threading.Thread(target=run, name="meanwhile", daemon=True).start()
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
