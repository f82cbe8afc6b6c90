"""One studio a root folder: where the running one is (``studio.json``, 0600), and how a second start asks it.

A studio holds ``locks/studio`` while it lives: of two starts in one instant one waits until the other answers. The file
is believed only when its process lives (pid and creation, counted from the boot, so that a corrected clock changes
nothing) and answers on its port to the secret in the file; the answer is a fresh start token.
"""

import contextlib
import http.client
import json
import os
import ssl
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.machine.disk import read_plain, write_whole
from core.machine.locations import Locations
from core.machine.locks import FileLock
from core.runs.process.processes import Identity, identify
from studio.server.access.listening import Front

_MOST_BYTES = 1 << 16
_LOOK_SECONDS = 0.1
_SECONDS = 20.0
"""A starting studio listens at once and answers when its pages are built."""


def living_studio(locations: Locations) -> str | None:
    """The address that opens the living studio of this root, with a fresh start token; None where none lives."""
    known = _read(locations)
    try:
        if (
            known is None
            or not Identity(int(known["pid"]), float(known["created"]), str(known.get("boot", ""))).alive()
        ):
            return None
    except (ValueError, TypeError, OverflowError):
        return None
    certificate = known.get("certificate")
    front = Front(int(known["port"]), certificate=Path(str(certificate)) if certificate else None)
    token = _ask(front, str(known["secret"]))
    return front.address(token) if token else None


@contextlib.contextmanager
def only_studio(locations: Locations, seconds: float = _SECONDS) -> Iterator[str | None]:
    """The running studio's address, or None where the caller is now the only one, while the block lasts.

    One that holds the lock for ``seconds`` without an answer is ignored.
    """
    lock = FileLock(locations.locks / "studio")
    until = time.monotonic() + seconds
    try:
        while not (address := living_studio(locations)) and time.monotonic() < until:
            with contextlib.suppress(OSError):  # a full disk, or one without locks
                if not lock.acquire():
                    time.sleep(_LOOK_SECONDS)
                    continue
                address = living_studio(locations)  # it may have started meanwhile
            break
        yield address
    finally:
        lock.release()


@contextlib.contextmanager
def remember(locations: Locations, front: Front, secret: str) -> Iterator[None]:
    """Writes ``studio.json`` while the block lasts; removes it unless another studio has replaced it."""
    me = identify(os.getpid()) or Identity(os.getpid(), 0.0)
    certificate = str(front.certificate.resolve()) if front.certificate else ""
    mine = {**asdict(me), "port": front.port, "secret": secret, "certificate": certificate}
    with contextlib.suppress(OSError):  # on a full disk a second start does not know
        write_whole(locations.studio, json.dumps(mine), mode=0o600)
    try:
        yield
    finally:
        if {**(_read(locations) or {}), "secret": secret} == mine:  # ``revoke`` may have changed the secret
            locations.studio.unlink(missing_ok=True)


def secret_of(locations: Locations) -> str:
    """The secret in the file now; empty, which is never accepted, where there is none."""
    known = _read(locations)
    return str(known["secret"]) if known else ""


def _read(locations: Locations) -> dict[str, Any] | None:
    try:
        raw = json.loads(read_plain(locations.studio, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return raw if isinstance(raw, dict) and {"pid", "created", "port", "secret"} <= raw.keys() else None


def _ask(front: Front, secret: str) -> str:
    """Asks on loopback, without proxy or redirect; under TLS only a holder of the studio's own certificate."""
    connection: http.client.HTTPConnection | None = None
    try:
        if front.certificate is None:
            connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=_SECONDS)
        else:
            trusted = ssl.create_default_context(cafile=front.certificate)
            trusted.check_hostname = False  # the certificate is not made for loopback
            trusted.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            connection = http.client.HTTPSConnection("127.0.0.1", front.port, timeout=_SECONDS, context=trusted)
        connection.request("POST", "/studio/token", headers={"Authorization": f"Bearer {secret}"})
        answer = connection.getresponse()
        return str(json.loads(answer.read()).get("token", "")) if answer.status == 200 else ""
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    finally:
        if connection:
            connection.close()
