"""Waiting in a test: for something that another process or thread brings about, or for a machine that is not busy."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import psutil

T = TypeVar("T")


def until(found: Callable[[], Any], seconds: float = 120.0, why: Callable[[], str] = str) -> Any:
    """Looks again and again until there is something, and gives it; a test that waits for longer has failed, and
    ``why`` tells what stands there instead."""
    last = time.monotonic() + seconds
    while not (there := found()):
        assert time.monotonic() < last, f"it did not happen in time: {why()}"
        time.sleep(0.02)
    return there


def wait_for_calm(seconds: float = 8.0) -> None:
    """Until half of the processor was idle for half a second; not longer than so."""
    last = time.monotonic() + seconds
    while psutil.cpu_percent(interval=0.5) > 50 and time.monotonic() < last:
        pass


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` in a thread of its own: a worker that drove a browser before has a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
