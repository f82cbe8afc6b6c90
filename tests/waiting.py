"""Waiting in a test: for something that another process or thread brings about, or for a machine that is not busy."""

import time
from collections.abc import Callable

import psutil


def until(found: Callable[[], object], seconds: float = 120.0) -> None:
    """Looks again and again until it is so; a test that waits for longer has failed."""
    last = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < last, "it did not happen in time"
        time.sleep(0.05)


def wait_for_calm(seconds: float = 8.0) -> None:
    """Until half of the processor was idle for half a second; not longer than so."""
    last = time.monotonic() + seconds
    while psutil.cpu_percent(interval=0.5) > 50 and time.monotonic() < last:
        pass
