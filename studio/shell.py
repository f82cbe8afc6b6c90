"""The frame around every page: head, header and navigation stand in the first bytes, and the content policy with them.

Gradio sends one HTML page per route and draws it by script. This layer puts our style sheet, our script and the header
into that page, so that something stands before any script has run, and answers with a policy that names the page's
inline scripts by their hash: no other inline script runs, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from studio.parts import Markup, icon, join, tag
from studio.text import say

__all__ = ["Shell", "dress", "policy"]

LINKS = (("/", "nav.new"), ("/watch", "nav.watch"), ("/history", "nav.history"), ("/doctor", "nav.doctor"))
TITLES = {**dict(LINKS), "/try": "nav.try", "/take-home": "nav.take"}
_SCRIPT = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)
_OUTSIDE = re.compile(r'<meta[^>]+(?:property|name)="(?:og|twitter):[^>]*>\s*', re.IGNORECASE)
_MANIFEST = re.compile(r'<link rel="manifest"[^>]*>')
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), interest-cohort=()"),
)


def dress(page: str, path: str) -> str:
    """Gradio's page with our head and header, without the addresses of other sites that it names."""
    page = _MANIFEST.sub("", _OUTSIDE.sub("", page))
    title = f"<title>{say(TITLES[path])} · {say('app')}</title>" if path in TITLES else ""
    page = page.replace("<head>", f"<head>{title}{_head()}", 1)
    return re.sub(r"(<body[^>]*>)", lambda found: found.group(1) + _header(path), page, count=1)


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


def _head() -> Markup:
    return join(
        tag("script", src="/studio/assets/boot.js"),
        Markup('<link rel="stylesheet" href="/studio/assets/studio.css">'),
        Markup('<link rel="stylesheet" href="/studio/assets/runs.css">'),
        Markup('<link rel="icon" type="image/svg+xml" href="/studio/assets/logo.svg">'),
        Markup('<link rel="manifest" crossorigin="use-credentials" href="/studio/assets/app.webmanifest">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        tag("script", type="module", src="/studio/assets/studio.js"),
        tag("script", type="module", src="/studio/assets/js/new_run.js"),
    )


def _header(path: str) -> Markup:
    links = (
        tag("a", say(words), href=target, aria_current="page" if target == path else None) for target, words in LINKS
    )
    mark = tag("a", _logo(), tag("span", say("app")), href="/", class_="mark", aria_label=say("nav.home"))
    return join(
        tag("a", say("skip"), href="#page", class_="skip"),
        tag("header", mark, tag("nav", *links, aria_label=say("nav.label")), class_="top"),
    )


def _logo() -> Markup:
    return icon("logo")


class Shell:
    """ASGI: dresses pages, adds the headers to every answer. ``pages`` says which paths are pages."""

    def __init__(self, app: ASGIApp, is_page: Callable[[str], bool]) -> None:
        self._app = app
        self._is_page = is_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "GET" and self._is_page(scope["path"]):
            await self._app(scope, receive, _Dresser(scope["path"], send))
        else:
            await self._app(scope, receive, _with_headers(send))


def _with_headers(send: Send) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            extra = [pair for pair in _HEADERS if pair[0] not in present]
            message = {**message, "headers": [*message["headers"], *extra]}
        await send(message)

    return sender


class _Dresser:
    """Collects one HTML answer, dresses it and sends it whole."""

    def __init__(self, path: str, send: Send) -> None:
        self._path = path
        self._send = send
        self._start: Message = {}
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        page = dress(self._body.decode("utf-8"), self._path)
        body = page.encode("utf-8")
        dropped = (b"content-length", b"content-security-policy", b"cache-control")
        headers = [pair for pair in self._start["headers"] if pair[0].lower() not in dropped]
        headers += [
            (b"content-length", str(len(body)).encode()),
            (b"content-security-policy", policy(page).encode()),
            (b"cache-control", b"no-store"),
            *_HEADERS,
        ]
        await self._send({**self._start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
