"""Whether a worker stands still: each stage has its own sign of progress and its own limit.

::

    stage                                    progress                                 silent for at most
    starting, preparing, downloading …       a change of bytes, rows or layers        5 to 10 minutes, or an hour while
    (loading, first_step, saving, merging)                                            it computes, reads or writes
    training, evaluating                     a step, an evaluated batch               max(5 min, 10 × the median step);
                                                                                      before the first as first_step
    waiting                                  none: it waits for the disk, the net …   for ever

CPU time and bytes moved count as activity except in steps, since a card that hangs keeps a core busy. Acknowledgements
come from a thread of their own and do not count. All times are awake seconds (``AwakeClock``).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from core.contract.events import Acknowledged, Event, Hello, Queued, Resumed, Stage, Starting, Step

STEP_SECONDS = 300.0
STEP_MEDIANS = 10.0
RECENT = 50
"""How many of the last steps make the median."""
_ACTIVE_CORES = 0.1
"""A process that uses less of a core is idle."""
_ACTIVE_BYTES_PER_SECOND = 100_000.0
_NO_PROGRESS = (Acknowledged, Starting, Queued, Resumed)


@dataclass(frozen=True)
class Limit:
    """Seconds that a stage may be silent, and ``at_work`` while it is active (0 where activity does not count). A
    ``silent`` of 0 is no limit."""

    silent: float
    at_work: float = 0.0


_HOUR = 3600.0
_LIMITS = {"downloading": Limit(600.0, _HOUR), "first_step": Limit(600.0, _HOUR), "waiting": Limit(0.0)}
_OF_OTHERS = Limit(300.0, _HOUR)
"""For every other stage, and before the first."""


@dataclass(frozen=True)
class Work:
    """What a process tree has done so far, as the system counts it. ``on_disk``: it waits for a disk."""

    cpu_seconds: float = 0.0
    moved_bytes: float = 0.0
    on_disk: bool = False


@dataclass(frozen=True)
class Stall:
    """What stood still, for how long, and how long it may."""

    what: str
    silent_seconds: float
    limit_seconds: float

    @property
    def words(self) -> str:
        """One line for people, without a full stop."""
        return f"{self.what} for {_minutes(self.silent_seconds)}, longer than the {_minutes(self.limit_seconds)} it may"


class Heartbeat:
    """Listens to one worker's events. ``now`` is always awake seconds, and never goes back.

    Args:
        now: when the worker was started, or was met.
        earlier: seconds of the run's steps so far, oldest first.
    """

    def __init__(self, now: float, earlier: Iterable[float] = ()) -> None:
        self._heard = self._active = now
        self._seconds = deque((taken for taken in earlier if taken > 0), RECENT)
        self._stage: Stage | None = None
        self._step = 0
        self._work: tuple[Work, float] | None = None

    def hear(self, event: Event, now: float) -> None:
        """Takes one event of the worker; one that repeats the last progress counts as silence."""
        old = self._stage
        if isinstance(event, Stage) and old:
            if (event.stage, event.text, event.done) == (old.stage, old.text, old.done):
                return
        elif isinstance(event, _NO_PROGRESS):
            return
        self._heard = self._active = now
        self._work = None
        if isinstance(event, Stage):
            self._stage = event
        elif isinstance(event, Step):
            self._step = event.step
            self._seconds.append(event.seconds)
            self._stage = Stage(stage="training")  # a step is what training sounds like, said or not
        elif isinstance(event, Hello):
            self._stage = None

    def see(self, work: Work, now: float) -> None:
        """Takes a reading of what the worker's processes did; enough since the last reading is activity."""
        if self._work is not None:
            before, at = self._work
            seconds = max(now - at, 1e-9)
            computed = (work.cpu_seconds - before.cpu_seconds) / seconds >= _ACTIVE_CORES
            moved = (work.moved_bytes - before.moved_bytes) / seconds >= _ACTIVE_BYTES_PER_SECOND
            if computed or moved or work.on_disk:
                self._active = now
        self._work = (work, now)

    @property
    def stage(self) -> str:
        """The worker's stage; '' before its first."""
        return self._stage.stage if self._stage else ""

    @property
    def median_seconds(self) -> float:
        """Of a step; 0 before the first."""
        return median(self._seconds) if self._seconds else 0.0

    def limit(self) -> Limit:
        """The present limit; for steps and evaluated batches it follows the run's own pace."""
        if self.stage not in ("training", "evaluating"):
            return _LIMITS.get(self.stage, _OF_OTHERS)
        # Before the first step there is no pace, and kernels may have to be compiled.
        step = Limit(max(STEP_SECONDS, STEP_MEDIANS * self.median_seconds))
        return step if self._seconds else _LIMITS["first_step"]

    def stalled(self, now: float) -> Stall | None:
        """The stall, where there is one."""
        limit, silent, idle = self.limit(), now - self._heard, now - self._active
        if limit.at_work and silent >= limit.at_work:
            allowed = limit.at_work
        elif limit.silent and (idle if limit.at_work else silent) >= limit.silent:
            allowed = limit.silent
        else:
            return None
        stage = self._stage
        if stage is None:
            what = "The worker said nothing after its start"
        elif stage.stage == "training":
            pace = f" (a step takes {self.median_seconds:.3g} s)" if self._seconds else ""
            what = f"Step {self._step + 1} did not end{pace}"
        else:
            far = f" at {stage.done:,.0f} of {stage.total:,.0f} {stage.unit}".rstrip() if stage.total else ""
            what = f"'{stage.stage.replace('_', ' ')}' stood still{far}"
        return Stall(what, silent, allowed)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
