"""What a request may bring: a body of a megabyte within half a minute. Only an uploaded file is more; it is streamed.

JSON becomes several times its size when it is read, and everything here fits in a few kilobytes. So a body is read
whole, up to its bound, before anybody parses it.
"""

import asyncio

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 1 << 20
SECONDS = 30.0
_STREAMED = ("PUT", "/studio/upload")
_LARGE = {
    "code": "request.large",
    "message": f"Expected at most {MOST_BYTES >> 20} MB, found more, or a browser that stopped sending.",
    "hint": "Send less, or load the page again.",
}


class Bounded:
    """ASGI: reads what a request brings and passes it on; 413 where it is too much or does not come."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope.get("method", "GET")
        if scope["type"] != "http" or method in ("GET", "HEAD") or (method, scope["path"]) == _STREAMED:
            await self._app(scope, receive, send)
            return
        body = await whole_body(receive, MOST_BYTES, SECONDS)
        if body is None:
            await JSONResponse(_LARGE, 413)(scope, receive, send)
            return
        await self._app(scope, replayed(body, receive), send)


def replayed(body: bytes, receive: Receive) -> Receive:
    """What the next layer receives: the body that was read, and then whatever else comes."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again


async def whole_body(receive: Receive, most: int, seconds: float) -> bytes | None:
    """The body; None for more than ``most`` bytes, one that breaks off, or one that takes longer than ``seconds``."""
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > most:
                    return None
                if not message.get("more_body"):
                    return b"".join(pieces)
    except TimeoutError:
        return None
