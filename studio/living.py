"""One studio a root folder: where the living one is (``studio.json``, 0600), and how a second start asks it.

The file is believed only when its process still lives (pid and creation, counted from the boot: a corrected clock must
not disown it) and answers on its port to the secret that stands beside them; the answer is a fresh start token.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.disk import write_whole
from core.locations import Locations
from core.runs.processes import Identity, identify
from studio.front import Front

__all__ = ["living_studio", "remember"]

_SECONDS = 20.0
"""A studio that is just starting listens already, and answers when its pages stand."""


def living_studio(locations: Locations) -> str | None:
    """The address that opens the living studio of this root, with a fresh start token; None where none lives."""
    known = _read(locations)
    if known is None or not _lives(known):
        return None
    certificate = known.get("certificate")
    front = Front(int(known["port"]), certificate=Path(str(certificate)) if certificate else None)
    token = _ask(front, str(known["secret"]))
    return front.address(token) if token else None


@contextlib.contextmanager
def remember(locations: Locations, front: Front, secret: str) -> Iterator[None]:
    """Says where this studio is while it lives; the file goes with it, unless another has taken its place."""
    me = identify(os.getpid()) or Identity(os.getpid(), 0.0)
    certificate = str(front.certificate.resolve()) if front.certificate else ""
    mine = {**asdict(me), "port": front.port, "secret": secret, "certificate": certificate}
    write_whole(locations.studio, json.dumps(mine), mode=0o600)
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


def _ask(front: Front, secret: str) -> str:
    """Straight to loopback: no proxy, no redirect. Under TLS only who holds the studio's own certificate is asked."""
    connection: http.client.HTTPConnection | None = None
    try:
        connection = _connection(front)
        connection.request("POST", "/studio/token", headers={"Authorization": f"Bearer {secret}"})
        answer = connection.getresponse()
        return str(json.loads(answer.read()).get("token", "")) if answer.status == 200 else ""
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    finally:
        if connection:
            connection.close()


def _connection(front: Front) -> http.client.HTTPConnection:
    if front.certificate is None:
        return http.client.HTTPConnection("127.0.0.1", front.port, timeout=_SECONDS)
    trusted = ssl.create_default_context(cafile=front.certificate)
    trusted.check_hostname = False  # it is made for the name that others use, not for loopback
    trusted.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return http.client.HTTPSConnection("127.0.0.1", front.port, timeout=_SECONDS, context=trusted)
