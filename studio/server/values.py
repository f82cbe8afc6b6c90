"""What a page sends to New run's handlers is plain: text, numbers, yes and no, and lists of them.

Gradio takes anything that looks like a file of its own (``{"path", "meta"}``) to its cache before a handler is asked:
any file that the studio may read is then copied, and an address is fetched. No field of ours holds files (uploads have
a route of their own), so an event that brings anything but plain values is refused before Gradio reads it.
"""

import json
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from studio.server.access.bodies import MOST_BYTES, SECONDS, replayed, whole_body

_EVENTS = "/gradio_api/queue/join"
_DEEPEST = 4


class PlainValues:
    """ASGI: reads an event's body first and passes it on where all its values are plain."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].rstrip("/") != _EVENTS:
            await self._app(scope, receive, send)
            return
        body = await whole_body(receive, MOST_BYTES, SECONDS)
        if body is None or not _is_plain_event(body):
            await PlainTextResponse("An event brings plain values.", 403)(scope, receive, send)
            return
        await self._app(scope, replayed(body, receive), send)


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
