"""A limit on what a chat template may take: it is a program from outside, and one row of it must not take a minute.

A signal interrupts the template wherever it is (also within the multiplication of huge numbers, which looks for
signals itself). Signals reach the main thread only, so elsewhere nothing is limited here; the studio's renderer works
in its main thread, and is ended from outside where even that does not help.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from core.contract.errors import Fault
from core.machine import limits

SECONDS = 2.0
"""For one rendering, which takes less than a millisecond as a rule."""
CHARACTERS = 20_000_000
"""So many characters more than its row holds a template may not write."""
_MEMORY_BYTES = 256 << 20
_AGAIN_SECONDS = 0.2


class UnfitTemplateError(Fault):
    """The template itself is unfit, whatever the row: no further row is tried."""


@contextmanager
def limited_time(seconds: float = SECONDS) -> Iterator[None]:
    """Ends what is done inside with an UnfitTemplateError when it takes longer."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGALRM) is not _too_long:  # set once: without a running clock it is never called
        signal.signal(signal.SIGALRM, _too_long)
    # Again and again, since a template is first compiled, and whoever folds its constants there takes any error for no.
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise UnfitTemplateError("data.template_time", seconds=SECONDS)


def limited_memory() -> AbstractContextManager[None]:
    """Lets this process grow by so much that any template can be tried out: beyond, Python raises MemoryError.

    Not for tokenising, which may need more, and whose library ends the process when it gets none.
    """
    return limits.limited_memory(_MEMORY_BYTES)


def out_of_memory() -> UnfitTemplateError:
    """What is said of a template that takes more memory than there is for it."""
    return UnfitTemplateError("data.template_memory", megabytes=_MEMORY_BYTES >> 20)


def require_short(rendered: str, given: int) -> str:
    """``rendered`` itself, unless it is absurdly longer than the ``given`` characters of the row.

    Raises:
        UnfitTemplateError: it is.
    """
    if len(rendered) - 10 * given > CHARACTERS:
        raise UnfitTemplateError("data.template_size", count=len(rendered))
    return rendered
