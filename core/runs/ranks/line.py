"""The line between rank 0 and another rank: JSON, a line each way, over a socket. Its end tells each that the other is
gone, however that died. Imports no torch."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MOST_BYTES = 1 << 20
"""Of one message."""


class Line:
    """One end."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self._guard = end, threading.Lock()

    @property
    def address(self) -> str:
        """This machine's, by which the other end reaches it; '' of a line within it."""
        name = self._end.getsockname()
        return str(name[0]) if isinstance(name, tuple) else ""

    def say(self, **message: Any) -> None:
        """Sends a message; to nobody where the other end is gone."""
        with self._guard, suppress(OSError):
            self._end.sendall(json.dumps(message).encode() + b"\n")

    def listen(self, heard: Callable[[dict[str, Any]], object], ended: Callable[[], object]) -> None:
        """In a thread: ``heard`` of each message, and ``ended`` when the other end is gone or says what is none."""

        def read() -> None:
            with suppress(OSError, ValueError, KeyError, TypeError), self._end.makefile("rb") as lines:
                while (line := lines.readline(MOST_BYTES)).endswith(b"\n"):
                    heard(dict(json.loads(line)))
            ended()

        threading.Thread(target=read, name="line", daemon=True).start()

    def close(self) -> None:
        """Ends it."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()
