"""Limits on request bodies: a megabyte within half a minute, except for uploads, which are streamed.

An event for New run may contain plain values only: text, numbers, booleans and lists of them. Gradio copies whatever
looks like one of its files (``{"path", "meta"}``) to its cache, and fetches addresses, before a handler is called. No
field of ours holds files, so such events are refused before Gradio reads them.
"""

import asyncio
import json
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 1 << 20
SECONDS = 30.0
_STREAMED = {("PUT", "/studio/upload"), ("PUT", "/studio/open")}
_EVENTS = "/gradio_api/queue/join"
_DEEPEST = 4
_LARGE = {
    "code": "request.large",
    "message": f"More than {MOST_BYTES >> 20} MB came, or the browser stopped sending.",
    "hint": "Send less, or load the page again.",
}


class Bounded:
    """ASGI: reads the body and passes it on; 413 where it is too large or slow, 403 for an event that is not plain."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope.get("method", "GET")
        if scope["type"] != "http" or method in ("GET", "HEAD") or (method, scope["path"]) in _STREAMED:
            await self._app(scope, receive, send)
            return
        body = await whole_body(receive, MOST_BYTES, SECONDS)
        answer: Response
        if body is None:
            answer = JSONResponse(_LARGE, 413)
        elif scope["path"].rstrip("/") == _EVENTS and not _is_plain_event(body):
            answer = PlainTextResponse("An event brings plain values.", 403)
        else:
            await self._app(scope, _replayed(body, receive), send)
            return
        await answer(scope, receive, send)


def _is_plain_event(body: bytes) -> bool:
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and isinstance(event.get("data"), list) and _is_plain(event["data"], _DEEPEST)


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, list):
        return depth > 0 and all(_is_plain(item, depth - 1) for item in value)
    return not isinstance(value, dict)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body that was read, then whatever else comes."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again


async def whole_body(receive: Receive, most: int, seconds: float) -> bytes | None:
    """The body; None for more than ``most`` bytes, one that breaks off, or one that takes longer than ``seconds``."""
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                body += message.get("body", b"")
                if len(body) > most:
                    return None
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        return None
