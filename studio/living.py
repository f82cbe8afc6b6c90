"""One studio a root folder: where the living one is (``studio.json``, 0600), and how a second start asks it.

The file is believed only when its process still lives (pid and creation, counted from the boot: a corrected clock must
not disown it) and answers on its port to the secret that stands beside them; the answer is a fresh start token.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from core.locations import Locations
from core.runs.processes import Identity, identify
from studio.door import write_private

__all__ = ["living_studio", "remember"]

_SECONDS = 20.0
"""A studio that is just starting listens already, and answers when its pages stand."""


def living_studio(locations: Locations) -> str | None:
    """The address that opens the living studio of this root, with a fresh start token; None where none lives."""
    known = _read(locations)
    if known is None or not _lives(known):
        return None
    port = int(known["port"])
    token = _ask(port, str(known["secret"]))
    return f"http://127.0.0.1:{port}/enter?token={token}" if token else None


@contextlib.contextmanager
def remember(locations: Locations, port: int, secret: str) -> Iterator[None]:
    """Says where this studio is while it lives; the file goes with it, unless another has taken its place."""
    me = identify(os.getpid()) or Identity(os.getpid(), 0.0)
    mine = {**asdict(me), "port": port, "secret": secret}
    write_private(locations.studio, json.dumps(mine))
    try:
        yield
    finally:
        if _read(locations) == mine:
            locations.studio.unlink(missing_ok=True)


def _read(locations: Locations) -> dict[str, Any] | None:
    try:
        raw = json.loads(locations.studio.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return raw if isinstance(raw, dict) and {"pid", "created", "port", "secret"} <= raw.keys() else None


def _lives(known: dict[str, Any]) -> bool:
    try:
        return Identity(int(known["pid"]), float(known["created"]), str(known.get("boot", ""))).alive()
    except (ValueError, TypeError, OverflowError):
        return False


def _ask(port: int, secret: str) -> str:
    """Straight to loopback: no proxy, no redirect."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
    try:
        connection.request("POST", "/studio/token", headers={"Authorization": f"Bearer {secret}"})
        answer = connection.getresponse()
        return str(json.loads(answer.read()).get("token", "")) if answer.status == 200 else ""
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    finally:
        connection.close()
