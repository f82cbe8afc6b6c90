"""Connections that say nothing are closed, and there is never an end of room for one that does.

Any program on this machine can connect, and with ``--listen`` any machine; each connection costs a file handle, of
which a process has a thousand as a rule. So a request's header must be there within ten seconds, however slowly it
comes, a TLS handshake as well; and where there are too many connections the one that has been idle longest goes.
"""

import asyncio
import contextlib
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
MOST = 256
"""A browser keeps six, however many windows it has."""
_HANDLES = 8192
OPTIONS: dict[str, Any] = {"loop": "studio.server.connections:Loop", "ws": "none", "backlog": 64}
"""For uvicorn, beside ``http=Connection``. asyncio takes a whole backlog of connections in at once, before any of them
is looked at: with uvicorn's 2,048 they were more than there are handles."""


class Connection(H11Protocol):
    """uvicorn's connection with an end to its patience."""

    _timer: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a header; where there is no room, makes some."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > MOST:
            idle = [one for one in self.connections if isinstance(one, Connection) and one._timer is not None]
            longest = min(idle, key=lambda one: one._idle_since)
            longest._at_work()  # it is gone a moment later, and is not chosen again till then
            longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._at_work()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Stops to wait where a whole header has come."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self._at_work()

    def on_response_complete(self) -> None:
        """Begins to wait for the next one."""
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
    """An event loop whose servers give a TLS handshake as long as a header; asyncio's own patience is a minute."""

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        """As asyncio's."""
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", HEADER_SECONDS)
        return await super().create_server(*arguments, **options)


def raise_handle_limit() -> None:
    """Takes more of the file handles that this process may have: a thousand is what an old ``select`` could bear."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _HANDLES if hard == resource.RLIM_INFINITY else min(hard, _HANDLES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
