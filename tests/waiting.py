"""Waiting in a test for something that another process or thread brings about."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(found: Callable[[], object], seconds: float = 120.0) -> None:
    """Looks again and again until it is so; a test that waits for longer has failed."""
    last = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < last, "it did not happen in time"
        time.sleep(0.05)
