"""How a job's log goes from the supervisor to the worker that it has started: not before that one can hear.

A worker takes half a second to come up, more on a busy machine, and whoever asks it to stop or pause meanwhile is to
be answered within one. So log and mailbox stay with the supervisor until the worker is ready:

    supervisor                                      worker
    starts it with one end of a socket pair         imports what it needs to hear
    hears for it                                    writes a byte, and waits for the end of file
    gives the log away, closes the pair             takes log and mailbox, says hello

The end of file comes however the other side ends: a worker whose supervisor died goes on, and one that died before it
was ready is not waited for. There is never a second writer.
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
        """The worker has its end: ours of it is closed, so that its death is noticed."""
        self._workers.close()

    def wait(self, called_off: Callable[[], bool]) -> bool:
        """Returns once the worker is ready, or never will be; before that when ``called_off`` says so: True.

        Who takes very long is let go on all the same, and then judged like any worker that stands still.
        """
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
    """The worker's side: returns when log and mailbox are its own; at once where no supervisor hears for it."""
    passed = os.environ.pop(_VARIABLE, "")
    if passed.isdigit():
        with suppress(OSError), socket.socket(fileno=int(passed)) as pipe:
            pipe.sendall(b"?")
            pipe.recv(1)
