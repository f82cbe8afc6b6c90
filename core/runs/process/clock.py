"""Awake time: what counts when somebody asks how long a worker has been silent.

A machine that sleeps, a virtual machine that its host holds, a process that is stopped (SIGSTOP) and a clock that
somebody sets all look alike to whoever waits in small ticks: between two ticks lies more than a tick. So only ticks are
counted, each for a few seconds at most::

    awake += min(monotonic now − monotonic before, 5 s)

CLOCK_MONOTONIC stands still while Linux sleeps and CLOCK_BOOTTIME does not; their difference, or else the size of the
gap, says how long the machine was away.
"""

import time
from collections.abc import Callable

LONGEST_TICK_SECONDS = 5.0
"""A tick is 0.1 s; a machine that computes hard may let its supervisor wait for a few."""


def _boottime() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # Linux only
    return time.clock_gettime(clock) if clock is not None else time.monotonic()


class AwakeClock:
    """Counts while it is asked: ``tick()`` at least every few seconds."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, boottime: Callable[[], float] = _boottime
    ) -> None:
        self._monotonic, self._boottime = monotonic, boottime
        self._last = (monotonic(), boottime())
        self.awake = 0.0
        """Seconds awake since this clock was made."""
        self.away = 0.0
        """Seconds of the gap that the last tick found, 0 where it found none."""

    def tick(self, counts: bool = True) -> float:
        """Seconds awake, now; what went by since the last tick is left out where it does not count."""
        now = (self._monotonic(), self._boottime())
        passed = max(0.0, now[0] - self._last[0])  # a clock that goes back counts nothing
        gap = max(passed, now[1] - self._last[1])
        self.away = gap if gap > LONGEST_TICK_SECONDS else 0.0
        self._last = now
        if counts:
            self.awake += min(passed, LONGEST_TICK_SECONDS)
        return self.awake
