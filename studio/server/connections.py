"""Limits on connections: idle ones are closed, so that file handles are left for others.

Any program on this machine can connect, and with ``--listen`` any machine. A request's header and a TLS handshake must
be complete within ten seconds; where there are too many connections the one that has been idle longest is closed.
"""

import asyncio
import contextlib
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
MOST = 256
"""A browser keeps six."""
_HANDLES = 8192
OPTIONS: dict[str, Any] = {"loop": "studio.server.connections:Loop", "ws": "none", "backlog": 64}
"""For uvicorn, beside ``http=Connection``. asyncio accepts a whole backlog at once: uvicorn's 2,048 are too many."""


class Connection(H11Protocol):
    """uvicorn's connection, aborted where a header takes too long."""

    _timer: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the timer; aborts the longest idle connection where there are too many."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > MOST:
            idle = [one for one in self.connections if isinstance(one, Connection) and one._timer is not None]
            longest = min(idle, key=lambda one: one._idle_since)
            longest._at_work()  # not chosen again before it is gone
            longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timer."""
        self._at_work()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Stops the timer where a whole header has come."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self._at_work()

    def on_response_complete(self) -> None:
        """Starts the timer for the next header."""
        self._wait()
        super().on_response_complete()

    def _wait(self) -> None:
        self._at_work()
        self._idle_since = self.loop.time()
        self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _at_work(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose servers allow a TLS handshake as long as a header; asyncio's default is a minute."""

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        """As asyncio's, with this limit."""
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", HEADER_SECONDS)
        return await super().create_server(*arguments, **options)


def raise_handle_limit() -> None:
    """Raises the soft limit of file handles."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _HANDLES if hard == resource.RLIM_INFINITY else min(hard, _HANDLES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
