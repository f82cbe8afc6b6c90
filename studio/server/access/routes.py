"""The allow-list of routes: what a session uses of Gradio, and everything of ours. The rest does not pass the guard.

Gradio cannot be told to leave out what it brings beside its page (files by path, a proxy, its own API, share and edit
tools). So none of its routes exists for a browser but those that its page was seen to need; whatever another version
brings is refused, too. Routes of ours stand below ``/studio``, where Gradio has none: each page's ``routes.py``.

``{path}`` is one or more plain segments, ``{id}`` one word.
"""

import re
from collections.abc import Iterable

from studio.shell.frame import PAGES

__all__ = ["PAGES", "READ", "WRITE", "is_allowed"]

READ = (
    *PAGES,
    # Gradio's page: its files, and how it hears of its own events
    "/assets/{path}",
    "/static/{path}",
    "/svelte/{path}",
    "/theme.css",
    "/manifest.json",
    "/favicon.ico",
    "/robots.txt",
    "/gradio_api/heartbeat/{id}",
    "/gradio_api/queue/data",
    "/gradio_api/app_id",
    "/gradio_api/startup-events",
    "/studio/{path}",
)

WRITE = {
    "POST": ("/gradio_api/queue/join", "/gradio_api/cancel", "/gradio_api/reset", "/studio/{path}"),
    "PUT": ("/studio/upload",),
}

_SEGMENT = r"[A-Za-z0-9_@-][A-Za-z0-9_.@-]*"
_PIECES = {r"\{path\}": rf"{_SEGMENT}(?:/{_SEGMENT})*", r"\{id\}": r"[A-Za-z0-9_.-]{1,200}"}


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """What matches one of these."""
    expression = "|".join(map(re.escape, patterns))
    for written, meant in _PIECES.items():
        expression = expression.replace(written, meant)
    return re.compile(expression)


_ALLOWED = {method: _any_of(patterns) for method, patterns in {"GET": READ, **WRITE}.items()}


def is_allowed(method: str, path: str) -> bool:
    """Whether a session may ask this of this path."""
    return method in _ALLOWED and ".." not in path and _ALLOWED[method].fullmatch(path) is not None
