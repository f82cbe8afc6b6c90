"""Watching one worker until it leaves, or has to be ended.

::

    its process is gone                               ─► settle
    its folder is gone                                ─► end it
    "stop now"                                        ─► end it
    its last event was written a while ago            ─► end it
    it was asked to stop or pause and does not leave  ─► end it
    it stalls (core.runs.record.stall)                ─► its stacks go to worker.log, then end it

The log is the worker's meanwhile. While a worker is halted (SIGSTOP) its time does not count, and a stop or pause wakes
it; from then on time counts even where a debugger holds it.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil

from core.contract.commands import Command
from core.machine.cards import CardSet
from core.machine.hardware import Machine, read_machine
from core.runs.control.mailbox import Mailbox
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.standing import Standing
from core.runs.log.events_log import LAST_KINDS, EventTail
from core.runs.process.activity import halted, wake, work_of
from core.runs.process.worker_log import cap_log
from core.runs.record.job_record import RunRecord
from core.runs.record.stall import Heartbeat, Stall
from core.runs.supervise.worker_process import Worker

TICK_SECONDS = 0.1
LOOK_SECONDS = 0.5
WORK_SECONDS = 10.0
LINGER_SECONDS = 10.0
"""For a worker to leave after its last event."""
LEAVE_SECONDS = 25.0
"""For a worker to save and leave when asked to, so that 'stop' is done within 30 s ..."""
LEAVE_STEPS = 1.5
"""... or so many of its own steps where those take longer."""
STACKS_SECONDS = 1.0
SLEPT_SECONDS = 60.0
"""A gap this long counts as sleep."""
AFTERMATH_SECONDS = 300.0
"""A worker that ends so soon after sleep is taken to have died of it."""
LONGEST_TICK_SECONDS = 5.0
"""A tick is 0.1 s; on a busy machine it may take a few."""
MAX_FUTILE_RESTARTS = 2
CARD_LOOK_SECONDS = 2.0
CARD_ANSWER_SECONDS = 0.5
"""An answer usually takes milliseconds; a later one counts at the next look."""


def _boottime() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # Linux only
    return time.clock_gettime(clock) if clock is not None else time.monotonic()


class AwakeClock:
    """Counts the seconds that the machine was awake; call ``tick()`` every few seconds.

    Sleep, a paused virtual machine, SIGSTOP and a changed clock all show as a long gap between two ticks, which counts
    for a few seconds at most. CLOCK_MONOTONIC stops while Linux sleeps and CLOCK_BOOTTIME does not: the larger of the
    two gaps is how long the machine was away.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, boottime: Callable[[], float] = _boottime
    ) -> None:
        self._monotonic, self._boottime = monotonic, boottime
        self._last = (monotonic(), boottime())
        self.awake = 0.0
        """Seconds since this clock was made."""
        self.away = 0.0
        """Seconds of the gap before the last tick; 0 where there was none."""

    def tick(self, counts: bool = True) -> float:
        """Seconds awake up to now; without ``counts``, less the time since the last tick."""
        now = (self._monotonic(), self._boottime())
        passed = max(0.0, now[0] - self._last[0])  # a clock that goes back counts nothing
        gap = max(passed, now[1] - self._last[1])
        self.away = gap if gap > LONGEST_TICK_SECONDS else 0.0
        self._last = now
        if counts:
            self.awake += min(passed, LONGEST_TICK_SECONDS)
        return self.awake


@dataclass(frozen=True)
class Ending:
    """Why a watch ended; with nothing set the worker left by itself. ``slept_seconds``: sleep in the minutes before."""

    stop: Command | None = None
    stall: Stall | None = None
    late: str = ""
    """The verb that was not obeyed in time: stop or pause."""
    slept_seconds: float = 0.0


class Watch:
    """One worker, from when it was started or met."""

    def __init__(
        self, folder: JobFolder, worker: Worker, attempt: int, record: RunRecord, standing: Standing | None = None
    ) -> None:
        self._standing = standing or Standing(folder)
        self._folder, self._worker, self._attempt = folder, worker, attempt
        self._mailbox = Mailbox(folder, attempt, set(record.acknowledged), {"stop_now", "stop", "pause"})
        self._tail = EventTail(folder.events)
        self.clock = AwakeClock()
        self._beat = Heartbeat(0.0, [step.seconds for step in record.steps])
        self._over_at: float | None = None
        self._asked: tuple[str, float] | None = (record.pending, 0.0) if record.pending in ("stop", "pause") else None
        self._slept = (0.0, 0.0)  # how long, and when it was noticed
        self._halted = False
        self._due = {"look": 0.0, "work": WORK_SECONDS}

    def wait(self) -> Ending:
        """Returns when the worker is gone or is to be ended."""
        while True:
            # The clock first: a worker that died of sleep is gone at the tick that shows it.
            now = self.clock.tick(counts=not self._halted or self._asked is not None)
            if self.clock.away >= SLEPT_SECONDS:
                self._slept = (self.clock.away, now)
            if self._worker.gone():
                return self._ending()
            for command in self._mailbox.poll():
                if command.verb == "stop_now":
                    return self._ending(stop=command)
                # A stop outweighs a pause; the first of its kind sets the time.
                if not self._asked or (command.verb, self._asked[0]) == ("stop", "pause"):
                    self._asked = (command.verb, now)
            if self._halted or now >= self._due["look"]:
                self._due["look"] = now + LOOK_SECONDS
                if ending := self._look(now):
                    return ending
            time.sleep(TICK_SECONDS)

    def _look(self, now: float) -> Ending | None:
        if self._standing.gone():
            return self._ending()
        worker = self._worker.identity
        self._halted = worker is not None and halted(worker)
        for event in self._tail.read():
            if event.attempt == self._attempt:
                self._beat.hear(event, now)
                self._over_at = now if event.kind in LAST_KINDS else None
        cap_log(self._folder.log)
        if self._asked and self._halted:
            wake(worker)  # to hear it
        if self._over_at is not None:
            return self._ending() if now - self._over_at >= LINGER_SECONDS else None
        if now >= self._due["work"] and worker and self._beat.limit().at_work:
            self._due["work"] = now + WORK_SECONDS
            self._beat.see(work_of(worker), now)
        stall = self._beat.stalled(now)
        if self._asked and (stall or self._beat.stage != "saving"):  # a checkpoint being written has its own limit
            verb, since = self._asked
            steps = LEAVE_STEPS * self._beat.median_seconds if self._beat.stage in ("training", "evaluating") else 0.0
            if now - since >= max(LEAVE_SECONDS, steps):
                return self._ending(late=verb)
        if not stall or self._folder.kind == "proof":
            return None
        self._show_stacks()
        return self._ending(stall=stall)

    def _show_stacks(self) -> None:
        """Has the worker print where each of its threads stands (faulthandler, registered at its very start)."""
        if self._worker.identity and (process := self._worker.identity.process()):
            with suppress(OSError, psutil.Error):
                ranks = [child.pid for child in process.children() if "core.worker" in child.cmdline()]
                for pid in (process.pid, *ranks):
                    os.kill(pid, signal.SIGUSR1)
        until = time.monotonic() + STACKS_SECONDS
        while time.monotonic() < until and not self._worker.gone():
            time.sleep(TICK_SECONDS)

    def _ending(self, stop: Command | None = None, stall: Stall | None = None, late: str = "") -> Ending:
        slept, noticed = self._slept
        recent = slept if self.clock.awake - noticed < AFTERMATH_SECONDS else 0.0
        return Ending(stop, stall, late, recent)


class Restarts:
    """Whether a worker that ended is followed by another: while each brings a newer checkpoint or a correction.
    ``step`` and ``corrections``: those at the start.
    """

    def __init__(self, step: int = 0, corrections: int = 0) -> None:
        self.futile = 0
        """Ends in a row without progress, this one included."""
        self._furthest, self._corrections = step, corrections

    def worth_it(self, step: int, corrections: int) -> bool:
        """Counts an end, given the newest checkpoint's step and the corrections so far; False for the third in a row
        without progress."""
        if corrections > self._corrections:  # it may have gone back to an older checkpoint
            self.futile, self._furthest = 1, step
        else:
            self.futile = 1 if step > self._furthest else self.futile + 1
            self._furthest = max(step, self._furthest)
        self._corrections = max(corrections, self._corrections)
        return self.futile <= MAX_FUTILE_RESTARTS


class CardLook:
    """Whether the driver sees the locked cards; asked in one thread, since after sleep a driver may hang."""

    def __init__(self, cards: CardSet, read: Callable[[], Machine] = read_machine) -> None:
        self._missing, self._read = set(cards.ids), read
        self._thread: threading.Thread | None = None
        self._due = 0.0

    def answers(self) -> bool:
        """The last answer; asks again while that is no. On the CPU always yes."""
        asking = self._thread is not None and self._thread.is_alive()
        if self._missing and not asking and time.monotonic() >= self._due:
            self._due = time.monotonic() + CARD_LOOK_SECONDS
            self._thread = threading.Thread(target=self._ask, name="card", daemon=True)
            self._thread.start()
            self._thread.join(CARD_ANSWER_SECONDS)
        return not self._missing

    def _ask(self) -> None:
        self._missing -= {gpu.cuda_name for gpu in self._read().gpus}
