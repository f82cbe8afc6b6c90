"""The browsers that were let in, as they are kept on the disk: hashes of their cookies, and the era they belong to.

``{"era": "…", "browsers": {"sha256 of a cookie": until when, in seconds since 1970}}``, readable by its owner only and
renamed whole. ``revoke`` forgets every browser and begins a new era: a living studio reads the file at every request,
so its cookies end with it, and start tokens of an earlier era open nothing any more. It also draws a new secret for the
living studio (``studio.json``), with which a second start gets such tokens: somebody may know the old one.
"""

import json
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from core.machine.disk import read_plain, write_whole
from core.machine.locations import Locations
from core.machine.locks import locked

_BROWSERS_KEPT = 50
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Sessions:
    """What the file says: ``browsers`` are hashed cookies, each with the time at which it ends."""

    era: str = ""
    browsers: dict[str, float] = field(default_factory=dict)


def read_sessions(path: Path) -> Sessions:
    """The file's content; nothing where there is none, or none of ours.

    Raises:
        OSError: it is there and cannot be read just now, which says nothing about who was let in.
    """
    try:
        raw = json.loads(read_plain(path, _MOST_BYTES))
        return Sessions(str(raw["era"]), {str(key): float(until) for key, until in raw["browsers"].items()})
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Sessions()


def remember_browser(path: Path, digest: str, seconds: float) -> None:
    """Adds a hashed cookie that holds for so long; those that have ended, and the oldest above fifty, are dropped."""
    now = time.time()
    with locked(_lock_of(path)):
        known = read_sessions(path)
        living = {key: until for key, until in known.browsers.items() if until > now}
        newest = dict(sorted(living.items(), key=lambda item: item[1])[-_BROWSERS_KEPT + 1 :])
        _write(path, Sessions(known.era, {**newest, digest: now + seconds}))


def revoke(locations: Locations) -> int:
    """Ends every session, also those of a living studio, and its secret; how many browsers had one.

    Raises:
        OSError: nothing can be written there.
    """
    path = locations.sessions
    with locked(_lock_of(path)):
        known = Sessions()
        with suppress(OSError):  # what cannot be read is ended all the same
            known = read_sessions(path)
        with suppress(OSError, ValueError, RecursionError):  # a living studio reads its own secret from there
            studio = json.loads(read_plain(locations.studio, _MOST_BYTES))
            if isinstance(studio, dict):
                write_whole(locations.studio, json.dumps({**studio, "secret": secrets.token_urlsafe(32)}), mode=0o600)
        _write(path, Sessions(secrets.token_hex(16)))
    return sum(until > time.time() for until in known.browsers.values())


def _write(path: Path, sessions: Sessions) -> None:
    write_whole(path, json.dumps({"era": sessions.era, "browsers": sessions.browsers}), mode=0o600)


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")
