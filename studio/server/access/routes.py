"""The allow-list of routes: exactly what a session uses. What is not named here does not pass the guard.

Gradio brings far more (files by path, a proxy, its own API, share and edit tools); none of it exists for a browser. A
new route of ours is added here: ``tests/unit/studio_a/test_a_door_matrix.py`` asks the living application for its
routes, and fails for one that nobody classified.

``{path}`` is one or more plain segments, ``{id}`` one word.
"""

from __future__ import annotations

import re

__all__ = ["PAGES", "READ", "WRITE", "is_allowed"]

PAGES = ("/", "/watch", "/try", "/take-home", "/history", "/doctor", "/proof", "/glossary")

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
    # ours
    "/studio/assets/{path}",
    "/studio/standing",
    "/studio/points",
    "/studio/runs",
    "/studio/history",
    "/studio/compare",
    "/studio/queue",
    "/studio/ended",
    "/studio/run/{id}/config",
    "/studio/run/{id}/yaml",
    "/studio/run/{id}/keep",
    "/studio/run/{id}/held-out",
    "/studio/proofs",
)

WRITE = {
    "POST": (
        "/gradio_api/queue/join",
        "/gradio_api/cancel",
        "/gradio_api/reset",
        "/studio/ask",
        "/studio/cache/clear",
        "/studio/run/{id}/pause",
        "/studio/run/{id}/resume",
        "/studio/run/{id}/save",
        "/studio/run/{id}/stop",
        "/studio/run/{id}/stop_now",
        "/studio/run/{id}/discard",
        "/studio/run/{id}/delete",
        "/studio/run/{id}/rerun",
        "/studio/run/{id}/mend",
        "/studio/run/{id}/anyway",
        "/studio/run/{id}/rename",
        "/studio/queue/{id}/move",
        "/studio/run/{id}/export",
        "/studio/run/{id}/export/{id}/stop",
        "/studio/proofs/start/{id}",
        "/studio/proofs/{id}/stop",
        "/studio/proofs/{id}/delete",
    ),
    "PUT": ("/studio/upload",),
}

_PIECES = {
    "path": r"[A-Za-z0-9_@-][A-Za-z0-9_.@-]*(?:/[A-Za-z0-9_@-][A-Za-z0-9_.@-]*)*",
    "id": r"[A-Za-z0-9_.-]{1,200}",
}


def is_allowed(method: str, path: str) -> bool:
    """Whether a session may ask this of this path."""
    if ".." in path:
        return False
    found = _READ if method == "GET" else _WRITE.get(method)
    return found is not None and found.fullmatch(path) is not None


def _one(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """All patterns as one."""
    parts = (re.sub(r"\\{(\w+)\\}", lambda piece: _PIECES[piece[1]], re.escape(pattern)) for pattern in patterns)
    return re.compile("(?:" + "|".join(parts) + ")")


_READ = _one(READ)
_WRITE = {method: _one(patterns) for method, patterns in WRITE.items()}
