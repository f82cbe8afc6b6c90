"""Who may come in: one-time start tokens in memory, and the hashed cookies of browsers that were let in.

A start token (256 bits) opens the door once within two minutes; it travels in the address that is opened. The browser
then holds a cookie whose SHA-256 alone is kept (0600, renamed whole), for thirty days, so that a restarted studio still
knows its pages.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
import time
from pathlib import Path

__all__ = ["COOKIE_SECONDS", "TOKEN_SECONDS", "Door", "write_private"]

TOKEN_SECONDS = 120.0
COOKIE_SECONDS = 30 * 24 * 3600
_BROWSERS_KEPT = 50


class Door:
    """Tokens and cookies. Thread-safe."""

    def __init__(self, sessions: Path) -> None:
        self._sessions = sessions
        self._lock = threading.Lock()
        self._tokens: dict[str, float] = {}

    def token(self) -> str:
        """A fresh start token."""
        fresh = secrets.token_urlsafe(32)
        with self._lock:
            now = time.monotonic()
            self._tokens = {key: until for key, until in self._tokens.items() if until > now}
            self._tokens[_digest(fresh)] = now + TOKEN_SECONDS
        return fresh

    def enter(self, token: str) -> str | None:
        """Spends a start token and returns a cookie for it; None where the token is unknown, spent or too old."""
        with self._lock:
            until = self._tokens.pop(_digest(token), 0.0)
            if until <= time.monotonic():
                return None
            cookie = secrets.token_urlsafe(32)
            self._remember(_digest(cookie))
        return cookie

    def knows(self, cookie: str) -> bool:
        """Whether this cookie was given out and is not too old."""
        if not cookie:
            return False
        with self._lock:
            return self._read().get(_digest(cookie), 0.0) > time.time()

    def _remember(self, digest: str) -> None:
        now = time.time()
        kept = {key: until for key, until in self._read().items() if until > now}
        newest = dict(sorted(kept.items(), key=lambda item: item[1])[-_BROWSERS_KEPT + 1 :])
        write_private(self._sessions, json.dumps({**newest, digest: now + COOKIE_SECONDS}))

    def _read(self) -> dict[str, float]:
        try:
            raw = json.loads(self._sessions.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(key): float(until) for key, until in raw.items()} if isinstance(raw, dict) else {}


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner reads, whole or not at all."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
