"""``sessions.json``: hashes of the cookies of the browsers that were let in, and the era they belong to.

``{"era": "…", "browsers": {"sha256 of a cookie": its end in seconds since 1970}}``, readable by its owner only and
replaced whole. A living studio reads it at every request, so ``revoke`` ends all sessions and, by a new era, all start
tokens. It also draws a new secret for ``studio.json``, with which a second start gets such tokens.
"""

import json
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from core.machine.disk import read_object, read_plain, write_whole
from core.machine.locations import Locations
from core.machine.locks import locked

_BROWSERS_KEPT = 50
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Sessions:
    """The file's content; ``browsers`` are hashed cookies with their ends."""

    era: str = ""
    browsers: dict[str, float] = field(default_factory=dict)


def read_sessions(path: Path) -> Sessions:
    """The file's content; empty where it is missing or malformed.

    Raises:
        OSError: it exists and cannot be read.
    """
    try:
        raw = json.loads(read_plain(path, _MOST_BYTES))
        return Sessions(str(raw["era"]), {str(key): float(until) for key, until in raw["browsers"].items()})
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Sessions()


def remember_browser(path: Path, digest: str, seconds: float) -> None:
    """Adds a hashed cookie for so many seconds; drops ended ones, and the oldest above fifty."""
    now = time.time()
    with locked(_lock_of(path)):
        known = read_sessions(path)
        living = {key: until for key, until in known.browsers.items() if until > now}
        newest = dict(sorted(living.items(), key=lambda item: item[1])[-_BROWSERS_KEPT + 1 :])
        _write(path, Sessions(known.era, {**newest, digest: now + seconds}))


def revoke(locations: Locations) -> int:
    """Ends every session and a living studio's secret; returns how many browsers had a session.

    Raises:
        OSError: nothing can be written there.
    """
    path = locations.sessions
    with locked(_lock_of(path)):
        known = Sessions()
        with suppress(OSError):
            known = read_sessions(path)
        with suppress(OSError):  # a living studio reads its own secret from there
            if studio := read_object(locations.studio, _MOST_BYTES):
                write_whole(locations.studio, json.dumps({**studio, "secret": secrets.token_urlsafe(32)}), mode=0o600)
        _write(path, Sessions(secrets.token_hex(16)))
    return sum(until > time.time() for until in known.browsers.values())


def _write(path: Path, sessions: Sessions) -> None:
    write_whole(path, json.dumps({"era": sessions.era, "browsers": sessions.browsers}), mode=0o600)


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")
