"""Answers that nobody listens to are thrown away: Gradio keeps every one until it is fetched.

Its page asks (``queue/join``) and listens to what is said under its own mark (``queue/data``) at once. Whoever asks
under a mark to which nobody has listened half a minute later never will: what was said there would stay in memory.
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
_MARKS_KEPT = 1000


class Unheard:
    """ASGI around Gradio's page; ``queue`` is its queue, of which two fields and a method are used."""

    def __init__(self, app: ASGIApp, queue: Any) -> None:
        self._app, self._queue = app, queue
        self._open: Counter[str] = Counter()
        self._heard: OrderedDict[str, float] = OrderedDict()
        self._newest: dict[str, float] = {}
        """When a mark was last asked under: only that question's end of patience throws anything away."""
        self._waiting: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").rstrip("/")
        if scope["type"] == "http" and path == _DATA:
            await self._listened(scope, receive, send)
        elif scope["type"] == "http" and path == _JOIN:
            await self._asked(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _listened(self, scope: Scope, receive: Receive, send: Send) -> None:
        mark = parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [""])[0]
        self._open[mark] += 1
        self._heard[mark] = asyncio.get_running_loop().time()
        self._heard.move_to_end(mark)
        while len(self._heard) > _MARKS_KEPT:
            self._heard.popitem(last=False)
        try:
            await self._app(scope, receive, send)
        finally:
            self._open[mark] -= 1
            self._open += Counter()  # drops those at zero

    async def _asked(self, scope: Scope, receive: Receive, send: Send) -> None:
        mark = ""

        async def noted() -> Message:
            nonlocal mark
            message = await receive()
            with contextlib.suppress(ValueError, AttributeError, RecursionError):
                mark = str(json.loads(message.get("body", b"")).get("session_hash") or "")
            if mark:
                self._newest[mark] = begun
            return message

        begun = asyncio.get_running_loop().time()
        try:
            await self._app(scope, noted, send)
        finally:
            if mark:
                task = asyncio.create_task(self._forget(mark, begun))
                self._waiting.add(task)
                task.add_done_callback(self._waiting.discard)

    async def _forget(self, mark: str, begun: float) -> None:
        await asyncio.sleep(SECONDS)
        if self._newest.get(mark) != begun:
            return
        del self._newest[mark]
        if self._open[mark] or self._heard.get(mark, 0.0) >= begun:
            return
        await self._queue.clean_events(session_hash=mark)  # what is still at work for it says nothing any more
        for kept in (self._queue.pending_messages_per_session, self._queue.pending_event_ids_session):
            if mark in kept:
                del kept[mark]
