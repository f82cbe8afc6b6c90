"""A rank beside rank 0: it computes its share and writes nothing but ``worker.log``.

It leaves as soon as its line to rank 0 ends. What ends it is told on that line, and said by rank 0. Imports no torch.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
from typing import Any

from core.contract.events import Event
from core.machine.children.shared_memory import SharedMemory
from core.runs.ranks.line import Line
from core.runs.ranks.start import GONE_SECONDS, LINE_VARIABLE, PLACE_VARIABLE


class Member:
    """This process, where it is a rank beside rank 0; ``first`` of its machine's, or not; ``shared`` with those."""

    def __init__(self) -> None:
        place, _, words = os.environ.pop(PLACE_VARIABLE).partition(" ")
        self.first = place == "0"
        self.shared = SharedMemory.inherited(words, writes=self.first)
        self.line = Line(socket.socket(fileno=int(os.environ.pop(LINE_VARIABLE))))
        self._messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.line.listen(self._messages.put, lambda: os._exit(0))

    @staticmethod
    def is_one() -> bool:
        """Whether this process was started as one."""
        return LINE_VARIABLE in os.environ

    def hear(self) -> dict[str, Any]:
        """The next message of rank 0."""
        return self._messages.get()

    def wait(self) -> None:
        """Until rank 0 is gone, and this process with it."""
        threading.Event().wait()

    def tell(self, **why: Any) -> None:
        """Says what ends this rank; nobody hears it where rank 0 went first, which then is the reason."""
        threading.Event().wait(GONE_SECONDS)
        self.line.say(**why)


class Silence:
    """Where its events go: rank 0 says what there is to say."""

    def write(self, event: Event) -> Event:
        """Nothing."""
        return event
