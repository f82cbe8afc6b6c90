"""Whether a worker stands still: each stage has its own heartbeat and its own limit.

::

    stage                                    heartbeat                                silent for at most
    starting, preparing, downloading …       a change of the stage's progress         5 to 10 minutes, or an hour with
    (loading, first_step, saving, merging)   (bytes, rows, layers)                    light beats: it computes or reads
    training, evaluating                     a step, a measured batch                 max(5 min, 10 × the median step);
                                                                                      before the first as first_step
    waiting                                  none: it waits for the disk, the net …   for ever

A light beat is work that a process does without saying anything (a model read from a cold disk, kernels that are
compiled); a step has none, since a card that hangs keeps a core busy. An acknowledgement is no beat either: it comes
from a thread that lives on when the work stands.

All times are *awake* seconds (``AwakeClock``): a night's sleep is no silence. Nothing here looks at a
clock.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from core.contract.events import Acknowledged, Event, Hello, Queued, Resumed, Stage, Starting, Step

STEP_SECONDS = 300.0
STEP_MEDIANS = 10.0
RECENT = 50
"""So many of the last steps make the median: a machine that is used for other things changes its pace."""
LIGHT_CORES = 0.1
"""A process that computes with less than this share of a core only listens."""
LIGHT_BYTES_PER_SECOND = 100_000.0
_NO_BEAT = (Acknowledged, Starting, Queued, Resumed)


@dataclass(frozen=True)
class Limit:
    """Seconds that a stage may be silent; ``at_work`` is the same while light beats come, 0 where they count nothing.
    A limit of 0 is none."""

    silent: float
    at_work: float = 0.0


_HOUR = 3600.0
_LIMITS = {"downloading": Limit(600.0, _HOUR), "first_step": Limit(600.0, _HOUR), "waiting": Limit(0.0)}
_OF_OTHERS = Limit(300.0, _HOUR)
"""Of every other stage, and before the first."""


@dataclass(frozen=True)
class Work:
    """What a process and those below it have done so far, as the system counts it. ``on_disk``: it waits for a disk."""

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
        self._heard = self._lit = now
        self._seconds = deque((taken for taken in earlier if taken > 0), RECENT)
        self._stage: Stage | None = None
        self._step = 0
        self._work: tuple[Work, float] | None = None

    def hear(self, event: Event, now: float) -> None:
        """Takes one event of the worker. One that repeats the progress it told before is no beat."""
        old = self._stage
        if isinstance(event, Stage) and old:
            if (event.stage, event.text, event.done) == (old.stage, old.text, old.done):
                return
        elif isinstance(event, _NO_BEAT):
            return
        self._heard = self._lit = now
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
        """Takes a reading of what the worker's processes did; enough of it since the last reading is a light beat."""
        if self._work is not None:
            before, at = self._work
            seconds = max(now - at, 1e-9)
            computed = (work.cpu_seconds - before.cpu_seconds) / seconds >= LIGHT_CORES
            moved = (work.moved_bytes - before.moved_bytes) / seconds >= LIGHT_BYTES_PER_SECOND
            if computed or moved or work.on_disk:
                self._lit = now
        self._work = (work, now)

    @property
    def stage(self) -> str:
        """What the worker is at; '' before its first word about it."""
        return self._stage.stage if self._stage else ""

    @property
    def median_seconds(self) -> float:
        """What a step takes, 0 where none was made yet."""
        return median(self._seconds) if self._seconds else 0.0

    def limit(self) -> Limit:
        """What holds at present; for steps and measured batches it follows the run's own pace."""
        if self.stage not in ("training", "evaluating"):
            return _LIMITS.get(self.stage, _OF_OTHERS)
        # Before a step was measured there is no pace to go by: a slow machine, or kernels to compile, take their time.
        step = Limit(max(STEP_SECONDS, STEP_MEDIANS * self.median_seconds))
        return step if self._seconds else _LIMITS["first_step"]

    def stalled(self, now: float) -> Stall | None:
        """The stall, where there is one."""
        limit, silent, unlit = self.limit(), now - self._heard, now - self._lit
        if limit.at_work and silent >= limit.at_work:
            allowed = limit.at_work
        elif limit.silent and (unlit if limit.at_work else silent) >= limit.silent:
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
