"""How a job's log and mailbox go from the supervisor to the worker that it has started.

A worker takes half a second or more to start, and a stop or pause is to be answered within one. So the supervisor keeps
both until the worker is ready:

    supervisor                                      worker
    starts it with one end of a socket pair         imports what the mailbox needs
    answers commands                                writes a byte, waits for the end of file
    gives the log away, closes the pair             takes log and mailbox, says hello

The death of either side ends the other's wait, and there is never a second writer.
"""

import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress

_VARIABLE = "LUTHIER_DOOR"
_READY_SECONDS = 60.0


class ReadyPipe:
    """The supervisor's side."""

    def __init__(self) -> None:
        self._mine, self._workers = socket.socketpair()
        self.descriptor = self._workers.fileno()
        """The worker's end, which it inherits."""
        self.environment = {_VARIABLE: str(self.descriptor)}

    def passed_on(self) -> None:
        """Closes our copy of the worker's end, so that the worker's death is noticed."""
        self._workers.close()

    def wait(self, called_off: Callable[[], bool]) -> bool:
        """Waits for the worker to be ready or dead, a minute at most; True where ``called_off`` came first."""
        late = time.monotonic() + _READY_SECONDS
        while time.monotonic() < late and not select.select([self._mine], [], [], 0.1)[0]:
            if called_off():
                return True
        return False

    def close(self) -> None:
        """Lets the worker go on. The log must have been given away before."""
        self._mine.close()
        self._workers.close()


def signal_ready() -> None:
    """The worker's side: returns when log and mailbox are its own; at once where no supervisor started it."""
    passed = os.environ.pop(_VARIABLE, "")
    if passed.isdigit():
        with suppress(OSError), socket.socket(fileno=int(passed)) as pipe:
            pipe.sendall(b"?")
            pipe.recv(1)
