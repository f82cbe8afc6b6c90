"""The outer layers of an answer: Gradio's page is dressed in our frame; every page brings its content policy along.

Gradio sends one HTML page and draws it by script. ``Dressed`` puts our head, our header and the page's outline into it,
so that something stands before any script has run. The policy of ``Shell`` names the page's inline scripts by their
hash: no other inline script runs, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from studio.frame import head, header, title
from studio.markup import Markup, join, tag

__all__ = ["Dressed", "Shell", "dress", "policy"]

Headers = tuple[tuple[bytes, bytes], ...]

_SCRIPT = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)
_OUTSIDE = re.compile(r'<meta[^>]+(?:property|name)="(?:og|twitter):[^>]*>\s*', re.IGNORECASE)
_MANIFEST = re.compile(r'<link rel="manifest"[^>]*>')
_UNKEPT: Headers = ((b"cache-control", b"no-store"),)
_HEADERS: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), interest-cohort=()"),
)


def dress(page: str, path: str, outline: Markup) -> str:
    """Gradio's page with our head, our header and its outline, without the addresses of other sites that it names."""
    page = _MANIFEST.sub("", _OUTSIDE.sub("", page))
    reading = tag("script", src="/studio/assets/boot.js")  # before Gradio's own scripts
    top = join(reading, title(path), head(), tag("script", type="module", src="/studio/assets/js/new_run.js"))
    page = page.replace("<head>", f"<head>{top}", 1)
    stands = tag("main", outline, class_="plain", data_outline=True)
    return re.sub(r"(<body[^>]*>)", lambda found: found.group(1) + header(path) + stands, page, count=1)


def policy(page: str) -> str:
    """The content policy of this page: scripts of ours and its own inline scripts, by hash."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"
        for body in _SCRIPT.findall(page)
    )
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; manifest-src 'self'; "
        "worker-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
    )


class Shell:
    """ASGI: gives pages their policy and adds the headers to every answer. ``is_page`` says which paths are pages."""

    def __init__(self, app: ASGIApp, is_page: Callable[[str], bool]) -> None:
        self._app = app
        self._is_page = is_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        outer = _with_headers(send, _HEADERS)
        if scope["method"] == "GET" and self._is_page(scope["path"]):
            outer = _Whole(outer, str, lambda page: (*_UNKEPT, (b"content-security-policy", policy(page).encode())))
        await self._app(scope, receive, outer)


class Dressed:
    """ASGI: dresses the page that Gradio sends at ``/``; ``outline`` is asked anew for each."""

    def __init__(self, app: ASGIApp, outline: Callable[[], Markup]) -> None:
        self._app = app
        self._outline = outline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/":
            send = _Whole(send, lambda page: dress(page, "/", self._outline()), lambda _: ())
        await self._app(scope, receive, send)


def _with_headers(send: Send, more: Headers) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            extra = [pair for pair in more if pair[0] not in present]
            message = {**message, "headers": [*message["headers"], *extra]}
        await send(message)

    return sender


class _Whole:
    """Collects one HTML answer and sends it whole, changed, with headers that depend on it."""

    def __init__(self, send: Send, change: Callable[[str], str], headers: Callable[[str], Headers]) -> None:
        self._send, self._change, self._headers = send, change, headers
        self._start: Message = {}
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        page = self._change(self._body.decode("utf-8"))
        body = page.encode("utf-8")
        ours = ((b"content-length", str(len(body)).encode()), *self._headers(page))
        replaced = {name for name, _ in ours}
        kept = [pair for pair in self._start["headers"] if pair[0].lower() not in replaced]
        await self._send({**self._start, "headers": [*kept, *ours]})
        await self._send({"type": "http.response.body", "body": body})
