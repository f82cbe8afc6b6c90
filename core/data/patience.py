"""A limit on what a chat template may take: it is a program from outside, and one row of it must not take a minute.

A signal interrupts the template wherever it is (also within the multiplication of huge numbers, which looks for
signals itself). Signals reach the main thread only, so elsewhere nothing is limited here; the studio's renderer works
in its main thread, and is ended from outside where even that does not help.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from core.contract.errors import StudioError

__all__ = ["CHARACTERS", "SECONDS", "UnfitTemplateError", "limited_time", "require_short"]

SECONDS = 4.0
"""For one rendering, which takes less than a millisecond as a rule."""
CHARACTERS = 20_000_000
"""So many characters more than its row holds a template may not write."""
_HINT = "Choose the template ChatML, or another model."


class UnfitTemplateError(StudioError):
    """The template itself is unfit, whatever the row: no further row is tried."""


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    message = f"Expected a chat template that is done with a row within {SECONDS:g} seconds, found one still at work."
    raise UnfitTemplateError("data.template_time", message, _HINT)


@contextmanager
def limited_time(seconds: float = SECONDS) -> Iterator[None]:
    """Ends what is done inside with a UnfitTemplateError when it takes longer."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def require_short(rendered: str, given: int) -> str:
    """``rendered`` itself, unless it is absurdly longer than the ``given`` characters of the row.

    Raises:
        UnfitTemplateError: it is.
    """
    if len(rendered) - 10 * given > CHARACTERS:
        message = f"Expected a chat template that writes a row, found one that writes {len(rendered):,} characters."
        raise UnfitTemplateError("data.template_size", message, _HINT)
    return rendered
