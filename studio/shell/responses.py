"""The outer layers of an answer: Gradio's page gets our frame, every answer a content policy.

Gradio draws its page by script; ``Dressed`` adds our head, header and the page's outline. ``Shell`` gives pages a
policy: Gradio's inline scripts are allowed by hash, our pages have none. ``Sealed``, outside of the guard, gives all
other answers a policy that allows nothing.
"""

import base64
import hashlib
import re
from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from studio.shell.assets import KEPT, asset
from studio.shell.frame import PAGES, Now, head, header, title
from studio.shell.markup import Markup, join, tag

Headers = tuple[tuple[bytes, bytes], ...]

_SCRIPT = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)
_OUTSIDE = re.compile(r'<meta[^>]+(?:property|name)="(?:og|twitter):[^>]*>\s*', re.IGNORECASE)
_MANIFEST = re.compile(r'<link rel="manifest"[^>]*>')
_HEADERS: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), interest-cohort=()"),
    (b"content-security-policy", b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
)
_ALIKE = "object-src 'none'; connect-src 'self'; manifest-src 'self'; form-action 'self'; frame-ancestors 'none'"


def dress(page: str, outline: Markup, now: Now) -> str:
    """Gradio's page with our head, header and outline, without the addresses of other sites."""
    page = _MANIFEST.sub("", _OUTSIDE.sub("", page))
    reading = tag("script", src=asset("boot.js"))  # before Gradio's own scripts
    own = ("model_list.css", "data_table.css")
    sheets = (tag("link", rel="stylesheet", href=asset(name)) for name in own)
    top = join(reading, title("/"), head(), *sheets, tag("script", type="module", src=asset("js/pages/new_run.js")))
    page = page.replace("<head>", f"<head>{top}", 1)
    stands = tag("main", outline, class_="plain", data_outline=True)
    return re.sub(r"(<body[^>]*>)", lambda match: match.group(1) + header("/", now) + stands, page, count=1)


def gradio_policy(page: str) -> str:
    """The content policy of Gradio's page: our scripts, its inline scripts by hash, its inline styles and its base."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"
        for body in _SCRIPT.findall(page)
    )
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; "
        f"img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self'; base-uri 'self'; {_ALIKE}"
    )


def plain_policy() -> str:
    """The content policy of our own pages: our files only, and pictures that a page drew; no script may make HTML or
    code out of text."""
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; font-src 'self'; "
        f"require-trusted-types-for 'script'; trusted-types 'none'; base-uri 'none'; {_ALIKE}"
    )


class Shell:
    """ASGI: gives pages their policy; ``/`` is Gradio's page. Gradio's files, named by their content, are kept by the
    browser."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" and scope["method"] == "GET" else ""
        if path.startswith("/assets/"):
            send = partial(_kept, send)
        elif path in PAGES:

            def headers(page: str) -> Headers:
                policy = gradio_policy(page) if path == "/" else plain_policy()
                return (b"cache-control", b"no-store"), (b"content-security-policy", policy.encode())

            send = _Whole(send, str, headers)
        await self._app(scope, receive, send)


async def _kept(send: Send, message: Message) -> None:
    if message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK:
        message = {**message, "headers": [*message["headers"], (b"cache-control", KEPT.encode())]}
    await send(message)


class Sealed:
    """ASGI: adds the headers that every answer has, the guard's refusals too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                more = [pair for pair in _HEADERS if pair[0] not in present]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await self._app(scope, receive, sealed if scope["type"] == "http" else send)


class Dressed:
    """ASGI: puts our frame into Gradio's page at ``/``; ``outline`` and ``now`` are called for each."""

    def __init__(self, app: ASGIApp, outline: Callable[[], Markup], now: Callable[[], Now]) -> None:
        self._app, self._outline, self._now = app, outline, now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/":
            send = _Whole(send, lambda page: dress(page, self._outline(), self._now()), lambda _: ())
        await self._app(scope, receive, send)


class _Whole:
    """Collects one HTML answer and sends it changed, with headers that depend on it."""

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
