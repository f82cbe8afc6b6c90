"""Sessions: one-time start tokens in memory, and the hashed cookies of browsers that were let in.

A start token (256 bits, in the opened address) is valid once within two minutes. The browser then gets a cookie (256
bits) whose SHA-256 is kept for thirty days (``core/machine/sessions.py``). ``doctor --revoke`` ends all cookies and
unused tokens.
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
        """Cookies that a full disk did not take, each with its era; valid while this studio lives."""

    def token(self) -> str:
        """A fresh start token."""
        fresh = secrets.token_urlsafe(32)
        with self._lock:
            now = time.monotonic()
            self._tokens = {key: kept for key, kept in self._tokens.items() if kept[0] > now}
            self._tokens[_digest(fresh)] = now + TOKEN_SECONDS, read_sessions(self._path).era
        return fresh

    def enter(self, token: str) -> str | None:
        """Uses a start token and returns a cookie for it; None where it is unknown, used, too old or revoked."""
        with self._lock:
            until, era = self._tokens.pop(_digest(token), (0.0, ""))
            if until <= time.monotonic() or era != read_sessions(self._path).era:
                return None
        return self.admit()

    def admit(self) -> str:
        """A new cookie, for a browser that showed a token or the password."""
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            try:
                remember_browser(self._path, _digest(cookie), COOKIE_SECONDS)
            except OSError as error:
                if not is_full(error):
                    raise
                self._unwritten[_digest(cookie)] = read_sessions(self._path).era
        return cookie

    def knows(self, cookie: str) -> bool:
        """Whether this cookie is valid; False while the file cannot be read."""
        if not cookie:
            return False
        with self._lock, contextlib.suppress(OSError):
            kept, digest = read_sessions(self._path), _digest(cookie)
            return kept.browsers.get(digest, 0.0) > time.time() or self._unwritten.get(digest) == kept.era
        return False


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
