"""Discards answers that nobody fetches: Gradio keeps every one in memory until then.

Its page asks (``queue/join``) under a session hash and listens to it (``queue/data``) at once. A hash that nobody has
listened to half a minute after its last question is forgotten.
"""

import asyncio
import contextlib
import json
from collections import Counter, OrderedDict
from typing import Any
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = 30.0
_JOIN, _DATA = "/gradio_api/queue/join", "/gradio_api/queue/data"
_SESSIONS_KEPT = 1000


class Unheard:
    """ASGI around Gradio's page; ``queue`` is its queue, of which two fields and a method are used."""

    def __init__(self, app: ASGIApp, queue: Any) -> None:
        self._app, self._queue = app, queue
        self._open: Counter[str] = Counter()
        self._heard: OrderedDict[str, float] = OrderedDict()
        self._newest: dict[str, float] = {}
        """When a session last asked: only that question's timer discards anything."""
        self._waiting: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").rstrip("/") if scope["type"] == "http" else ""
        if path == _JOIN:
            await self._asked(scope, receive, send)
            return
        if path != _DATA:
            await self._app(scope, receive, send)
            return
        session = parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [""])[0]
        self._open[session] += 1
        self._heard[session] = asyncio.get_running_loop().time()
        self._heard.move_to_end(session)
        while len(self._heard) > _SESSIONS_KEPT:
            self._heard.popitem(last=False)
        try:
            await self._app(scope, receive, send)
        finally:
            self._open[session] -= 1
            self._open += Counter()  # drops those at zero

    async def _asked(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = ""

        async def noted() -> Message:
            nonlocal session
            message = await receive()
            with contextlib.suppress(ValueError, AttributeError, RecursionError):
                session = str(json.loads(message.get("body", b"")).get("session_hash") or "")
            if session:
                self._newest[session] = begun
            return message

        begun = asyncio.get_running_loop().time()
        try:
            await self._app(scope, noted, send)
        finally:
            if session:
                task = asyncio.create_task(self._forget(session, begun))
                self._waiting.add(task)
                task.add_done_callback(self._waiting.discard)

    async def _forget(self, session: str, begun: float) -> None:
        await asyncio.sleep(SECONDS)
        if self._newest.get(session) != begun:
            return
        del self._newest[session]
        if self._open[session] or self._heard.get(session, 0.0) >= begun:
            return
        await self._queue.clean_events(session_hash=session)  # work that goes on for it is silent from here
        for kept in (self._queue.pending_messages_per_session, self._queue.pending_event_ids_session):
            if session in kept:
                del kept[session]
