"""The allow-list of routes: ours, below ``/studio``, and those of Gradio that its page needs.

Gradio's other routes (files by path, a proxy, its API, share and edit tools) cannot be switched off; the guard refuses
them. ``{path}`` is one or more plain segments, ``{id}`` one word.
"""

import re
from collections.abc import Iterable

from studio.shell.frame import PAGES

__all__ = ["PAGES", "READ", "WRITE", "is_allowed"]

READ = (
    *PAGES,
    # Gradio's page: its files and its events
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
    "PUT": ("/studio/upload", "/studio/open"),
}

_SEGMENT = r"[A-Za-z0-9_@-][A-Za-z0-9_.@-]*"
_PIECES = {r"\{path\}": rf"{_SEGMENT}(?:/{_SEGMENT})*", r"\{id\}": r"[A-Za-z0-9_.-]{1,200}"}


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """An expression that matches any of these."""
    expression = "|".join(map(re.escape, patterns))
    for written, meant in _PIECES.items():
        expression = expression.replace(written, meant)
    return re.compile(expression)


_ALLOWED = {method: _any_of(patterns) for method, patterns in {"GET": READ, **WRITE}.items()}


def is_allowed(method: str, path: str) -> bool:
    """Whether a session may ask this of this path."""
    return method in _ALLOWED and ".." not in path and _ALLOWED[method].fullmatch(path) is not None
