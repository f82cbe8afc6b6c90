"""Limits on the time, memory and output of a chat template, which is a foreign program.

A signal interrupts it, also within the multiplication of huge numbers. Signals reach the main thread only; elsewhere
there is no limit of time. The studio's renderer works in its main thread, and its process is killed where that fails.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from core.contract.errors import Fault
from core.machine import limits

SECONDS = 2.0
"""For one rendering, which usually takes less than a millisecond."""
CHARACTERS = 20_000_000
"""What a template may write beyond ten times its row's characters."""
_MEMORY_BYTES = 256 << 20
_AGAIN_SECONDS = 0.2


class UnfitTemplateError(Fault):
    """The template itself is unfit: no further row is tried."""


@contextmanager
def limited_time(seconds: float = SECONDS) -> Iterator[None]:
    """Raises UnfitTemplateError within the block when it takes longer."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGALRM) is not _too_long:
        signal.signal(signal.SIGALRM, _too_long)
    # Repeated, since Jinja's folding of constants swallows any error.
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise UnfitTemplateError("data.template_time", seconds=SECONDS)


def limited_memory() -> AbstractContextManager[None]:
    """Limits the growth of this process: beyond it, Python raises MemoryError. Not for tokenising, whose library aborts
    the process when it gets no memory."""
    return limits.limited_memory(_MEMORY_BYTES)


def out_of_memory() -> UnfitTemplateError:
    """The error for a template that takes too much memory."""
    return UnfitTemplateError("data.template_memory", megabytes=_MEMORY_BYTES >> 20)


def require_short(rendered: str, given: int) -> str:
    """``rendered`` itself. Raises UnfitTemplateError where it is far longer than the row's ``given`` characters."""
    if len(rendered) - 10 * given > CHARACTERS:
        raise UnfitTemplateError("data.template_size", count=len(rendered))
    return rendered
