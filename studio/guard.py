"""The only door of the studio: pure ASGI, before everything else.

    Host ours? ─► Origin, Sec-Fetch-Site ours? ─► start token? ─► cookie known? ─► route allowed? ─► the window

Loopback alone protects nothing: any page of the web can send requests to 127.0.0.1, and any process can connect. So a
request must name our host and port (against DNS rebinding), come from our own pages (against cross-site requests), and
carry the Strict cookie that only a start token buys. What a session does not use does not exist (404).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from studio.door import COOKIE_SECONDS, Door
from studio.locked import locked_page, opening_page

__all__ = ["PAGES", "Guard"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PAGES = ("/", "/watch", "/try", "/take-home", "/history", "/doctor")
_READ = re.compile(
    r"/(assets|static|svelte)/[\w./@-]+|/(theme\.css|manifest\.json|favicon\.ico|robots\.txt)"
    r"|/gradio_api/(heartbeat/[\w-]+|queue/data|upload_progress|app_id|startup-events)|/studio/[\w./@-]+"
)
_WRITE = re.compile(r"/gradio_api/(queue/join|cancel|reset)/?|/studio/[\w./@-]+")


class Guard:
    """Wraps the application. ``secret`` is what a second start shows to get a fresh token (``studio.json``, 0600)."""

    def __init__(self, app: App, door: Door, port: int, secret: str) -> None:
        self._app = app
        self._door = door
        self._secret = secret
        self._hosts = frozenset((f"127.0.0.1:{port}", f"localhost:{port}"))
        self._cookie = f"luthier_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            answer = self._answer(scope, Headers(scope=scope))
            await (answer or self._app)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """The guard's own answer, or None where the request may go on."""
        path, method = scope["path"], scope["method"]
        if headers.get("host") not in self._hosts:
            return PlainTextResponse("This studio answers to 127.0.0.1 only.", 421)
        if path == "/studio/token":
            return self._token(method, headers)
        if path == "/enter" and method == "GET":
            return self._enter(scope, headers)
        if not self._same_site(headers):
            return PlainTextResponse("This request comes from another site.", 403)
        if not self._door.knows(self._given(headers)):
            return _closed(path, headers)
        return None if _exists(method, path) else PlainTextResponse("Not found.", 404)

    def _same_site(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return False
        return headers.get("sec-fetch-site", "none") in ("same-origin", "none")

    def _token(self, method: str, headers: Headers) -> Response:
        """A second start asks for a fresh token; no page can, since pages send Origin or Sec-Fetch-Site."""
        shown = headers.get("authorization", "").removeprefix("Bearer ")
        from_page = "origin" in headers or "sec-fetch-site" in headers
        if method != "POST" or from_page or not hmac.compare_digest(shown.encode(), self._secret.encode()):
            return PlainTextResponse("Not found.", 404)
        return JSONResponse({"token": self._door.token()}, headers={"Cache-Control": "no-store"})

    def _enter(self, scope: Scope, headers: Headers) -> Response:
        """Spends the token of the address. Answers 200 and refreshes: a redirect would keep the other site's mark."""
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        cookie = self._door.enter(token)
        if cookie is None:
            known = self._door.knows(self._given(headers))
            return _page(opening_page(), 200) if known else _page(locked_page(), 403)
        response = _page(opening_page(), 200)
        response.set_cookie(self._cookie, cookie, max_age=COOKIE_SECONDS, httponly=True, samesite="strict", path="/")
        return response

    def _given(self, headers: Headers) -> str:
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return ""
        return morsel.value if morsel else ""


def _exists(method: str, path: str) -> bool:
    if ".." in path:
        return False
    if method in ("GET", "HEAD"):
        return path in PAGES or _READ.fullmatch(path) is not None
    return method in ("POST", "PUT", "DELETE") and _WRITE.fullmatch(path) is not None


def _closed(path: str, headers: Headers) -> Response:
    if path in PAGES and "text/html" in headers.get("accept", ""):
        return _page(locked_page(), 403)
    fault = {"code": "door.closed", "message": "This browser was not let in.", "hint": "Start the studio again."}
    return JSONResponse(fault, 403)


def _page(html: str, status: int) -> HTMLResponse:
    headers = {
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    }
    return HTMLResponse(html, status, headers=headers)
