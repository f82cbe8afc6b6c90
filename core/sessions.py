"""The browsers that were let in, as they are kept on the disk: hashes of their cookies, and the era they belong to.

``{"era": "…", "browsers": {"sha256 of a cookie": until when, in seconds since 1970}}``, readable by its owner only and
renamed whole. ``revoke`` forgets every browser and begins a new era: a living studio reads the file at every request,
so its cookies end with it, and start tokens of an earlier era open nothing any more.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

from core.disk import write_whole
from core.runs.locks import locked

__all__ = ["Sessions", "read_sessions", "remember_browser", "revoke"]

_BROWSERS_KEPT = 50


@dataclass(frozen=True)
class Sessions:
    """What the file says: ``browsers`` are hashed cookies, each with the time at which it ends."""

    era: str = ""
    browsers: dict[str, float] = field(default_factory=dict)


def read_sessions(path: Path) -> Sessions:
    """The file's content; nothing where there is none, or none that can be read."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Sessions(str(raw["era"]), {str(key): float(until) for key, until in raw["browsers"].items()})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return Sessions()


def remember_browser(path: Path, digest: str, seconds: float) -> None:
    """Adds a hashed cookie that holds for so long; those that have ended, and the oldest above fifty, are dropped."""
    now = time.time()
    with locked(_lock_of(path)):
        known = read_sessions(path)
        living = {key: until for key, until in known.browsers.items() if until > now}
        newest = dict(sorted(living.items(), key=lambda item: item[1])[-_BROWSERS_KEPT + 1 :])
        _write(path, Sessions(known.era, {**newest, digest: now + seconds}))


def revoke(path: Path) -> int:
    """Ends every session, also those of a living studio; how many browsers had one."""
    with locked(_lock_of(path)):
        known = read_sessions(path)
        _write(path, Sessions(secrets.token_hex(16)))
    return sum(until > time.time() for until in known.browsers.values())


def _write(path: Path, sessions: Sessions) -> None:
    write_whole(path, json.dumps({"era": sessions.era, "browsers": sessions.browsers}), mode=0o600)


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")
