"""How a job's log goes from the supervisor to the worker that it has started: not before that one can hear.

A worker takes half a second to come up, more on a busy machine, and whoever asks it to stop or pause meanwhile is to
be answered within one. So log and mailbox stay with the supervisor until the worker knocks:

    supervisor                                      worker
    starts it with one end of a door                imports what it needs to hear
    hears for it                                    knocks, and waits before the door
    gives the log away, opens the door              takes log and mailbox, says hello

A door opens when the other side closes it, however: a worker whose supervisor died goes on, and one that died before
it knocked is not waited for. There is never a second writer.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress

__all__ = ["ReadyPipe", "signal_ready"]

_VARIABLE = "LUTHIER_DOOR"
_TICK_SECONDS = 0.1
_KNOCK_SECONDS = 60.0


class ReadyPipe:
    """The supervisor's side."""

    def __init__(self) -> None:
        self._inside, self._outside = socket.socketpair()

    @property
    def descriptor(self) -> int:
        """The worker's end, which it inherits."""
        return self._outside.fileno()

    @property
    def environment(self) -> dict[str, str]:
        """What the worker is told, so that it knocks."""
        return {_VARIABLE: str(self.descriptor)}

    def handed(self) -> None:
        """The worker has its end: ours of it is closed, so that its death is noticed."""
        self._outside.close()

    def watched(self, called_off: Callable[[], bool]) -> bool:
        """Returns once the worker has knocked, or will not any more; before that when ``called_off`` says so: True.

        Who takes very long is to be let in all the same, and then judged like any worker that stands still.
        """
        late = time.monotonic() + _KNOCK_SECONDS
        while time.monotonic() < late and not select.select([self._inside], [], [], _TICK_SECONDS)[0]:
            if called_off():
                return True
        return False

    def open(self) -> None:
        """Lets the worker in. The log must have been given away before."""
        self._inside.close()
        self._outside.close()


def signal_ready() -> None:
    """The worker's side: returns when log and mailbox are its own; at once where nobody holds a door."""
    passed = os.environ.pop(_VARIABLE, "")
    if not passed.isdigit():
        return
    with suppress(OSError), socket.socket(fileno=int(passed)) as door:
        door.sendall(b"?")
        door.recv(1)
