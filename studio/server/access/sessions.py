"""Who may come in: one-time start tokens in memory, and the hashed cookies of browsers that were let in.

A start token (256 bits) opens the door once within two minutes; it travels in the address that is opened. The browser
then holds a cookie (256 bits as well) whose SHA-256 alone is kept (``core/machine/sessions.py``), for thirty days, so
that a restarted studio still knows its pages. ``doctor --revoke`` ends all of them, and every token that was not spent
yet.
"""

import contextlib
import hashlib
import secrets
import threading
import time
from pathlib import Path

from core.machine.disk import is_full
from core.machine.sessions import read_sessions, remember_browser

TOKEN_SECONDS = 120.0
COOKIE_SECONDS = 30 * 24 * 3600


class AccessTokens:
    """Tokens and cookies. Thread-safe."""

    def __init__(self, sessions: Path) -> None:
        self._path = sessions
        self._lock = threading.Lock()
        self._tokens: dict[str, tuple[float, str]] = {}
        self._unwritten: dict[str, str] = {}
        """Cookies that a full disk did not take, each with the era that it was given out in."""

    def token(self) -> str:
        """A fresh start token."""
        fresh = secrets.token_urlsafe(32)
        with self._lock:
            now = time.monotonic()
            self._tokens = {key: kept for key, kept in self._tokens.items() if kept[0] > now}
            self._tokens[_digest(fresh)] = now + TOKEN_SECONDS, read_sessions(self._path).era
        return fresh

    def enter(self, token: str) -> str | None:
        """Spends a start token and returns a cookie for it; None where it is unknown, spent, too old or revoked."""
        with self._lock:
            until, era = self._tokens.pop(_digest(token), (0.0, ""))
            if until <= time.monotonic() or era != read_sessions(self._path).era:
                return None
        return self.admit()

    def admit(self) -> str:
        """A cookie for a browser that has shown why it may come in."""
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            try:
                remember_browser(self._path, _digest(cookie), COOKIE_SECONDS)
            except OSError as error:
                if not is_full(error):
                    raise
                # Known for as long as this studio lives.
                self._unwritten[_digest(cookie)] = read_sessions(self._path).era
        return cookie

    def knows(self, cookie: str) -> bool:
        """Whether this cookie was given out, is not too old, and was not revoked since. No, while nobody can read."""
        if not cookie:
            return False
        with self._lock, contextlib.suppress(OSError):
            kept, digest = read_sessions(self._path), _digest(cookie)
            return kept.browsers.get(digest, 0.0) > time.time() or self._unwritten.get(digest) == kept.era
        return False


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
