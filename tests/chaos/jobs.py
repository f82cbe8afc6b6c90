"""Starters, supervisors and their workers, killed inside their calls, with real processes and a store that looks on.

    start (killed, asked again with the same draft) ─► supervisor (killed) ─► worker (killed) ─► … ─► finished

"Resume" and "Start" are all that a person may have to say: whatever else would be needed is a manual step, and none is.
A life ends with one run, finished as if nothing had happened, and nobody left.
"""

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from core.contract.errors import RunError
from core.machine.cards import held_by
from core.machine.hardware import Machine
from core.machine.locations import Locations
from core.runs.control.queue import JobQueue
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import RUN_ID, JobFolder
from core.runs.record.job_record import RUNNING, RunRecord
from core.runs.record.summary import nobody_lives
from core.runs.supervise.supervisor import supervise

from .judge import Reader, must
from .kills import Figures, draw_strike, forked
from .seam import Ledger, Seam, Strike
from .small import LEDGER, STRIKES, small_config

MACHINE = Machine((), 2, 0, 0, None, "Linux", False)
SUPERVISOR = (sys.executable, "-m", "tests.chaos.jobs")
WORKER = (sys.executable, "-m", "tests.chaos.small")
STEPS, WEIGHT_BYTES = 12, 20_000
PATIENCE_SECONDS = 60.0
STRIKES_A_LIFE = 5
CALLS = {"starter": (30, 1_500), "supervisor": (60, 2_500), "worker": (250, 400_000)}
"""About as many calls and bytes as each makes when left alone; a strike beyond them meets nobody."""


def kill_jobs(home: Path, kills: int, seed: int) -> Figures:
    """At least so many kills of starters, supervisors and workers.

    Raises:
        AssertionError: something was lost, doubled or left behind; the words say the seed and the life.
    """
    draw, figures = random.Random(seed), Figures()
    while figures.kills.total() < kills:
        life = _Life(Locations(home / f"life-{figures.lives}").make(), draw, min(kills, STRIKES_A_LIFE))
        try:
            life.live()
        except BaseException as error:
            raise AssertionError(
                f"seed {seed}, {life.locations.home}: {error}; {life.ledger.lines('killed')}"
            ) from error
        figures.note(life.ledger)
    return figures


class _Life:
    """One run, from its first Start to its end."""

    def __init__(self, locations: Locations, draw: random.Random, most_strikes: int) -> None:
        self.locations, self.draw, self.most_strikes = locations, draw, most_strikes
        self.ledger = Ledger(locations.home / "ledger")
        self.store = RunStore(locations, SUPERVISOR)
        self.strikes = 0

    def live(self) -> None:
        os.environ[LEDGER] = str(self.ledger.path)
        run_id = self._start()
        reader = Reader(self.store.open(run_id), self.ledger, WEIGHT_BYTES)
        while (record := self._settled(run_id)).state != "finished":
            reader.judge()
            must(record.state in ("lost", "failed", "paused"), "came to rest as", record.state, record.failure)
            self._arm()
            if self._struck(lambda: self.store.resume(run_id)):
                continue
            try:
                self.store.resume(run_id)
            except RunError:  # the one that was cut off had come far enough
                must(self.store.record(run_id).state in {*RUNNING, "finished"}, "cannot be resumed")
        self._until(lambda: nobody_lives(self.store.open(run_id)), "somebody lives on")
        reader.judge_end(STEPS)
        self._judge_house(run_id)

    def _start(self) -> str:
        """Start, pressed again where it was cut off: always the one run of this draft."""
        config = small_config(STEPS, WEIGHT_BYTES)
        self._arm()
        self._struck(lambda: self.store.start(config, "draft"))
        run_id = self.store.start(config, "draft")
        made = [path.name for path in self.locations.runs.iterdir() if RUN_ID.fullmatch(path.name)]
        must(made == [run_id], "one draft became", made)
        return run_id

    def _struck(self, work: Callable[[], object]) -> bool:
        """Does this in a process that may be killed meanwhile; True where it came to its end."""
        return forked(lambda: work() and None, draw_strike(self.draw, *CALLS["starter"]), self.ledger, "starter")

    def _arm(self) -> None:
        """Draws what happens to supervisor and worker of the next attempt; after some strikes life goes on in peace."""
        self.strikes += 1
        for who, variable in STRIKES.items():
            strike = draw_strike(self.draw, *CALLS[who])
            quiet = self.strikes > self.most_strikes or self.draw.random() < 0.3
            os.environ[variable] = str(Strike() if quiet else strike)

    def _settled(self, run_id: str) -> RunRecord:
        """The record once nothing moves any more; looking at it is what adopts a worker without supervisor."""
        self._until(lambda: self.store.record(run_id).state not in RUNNING, "does not come to rest")
        folder = self.store.open(run_id)
        if self.store.record(run_id).state == "failed":
            self._until(lambda: nobody_lives(folder), "somebody lives on")
        return self.store.record(run_id)

    def _until(self, done: Callable[[], bool], words: str) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not done():
            must(time.monotonic() < end, words, _log_of(self.locations))
            time.sleep(0.01)

    def _judge_house(self, run_id: str) -> None:
        must(held_by(self.locations, MACHINE.cards) is None, "the card is still held")
        must(not (waiting := JobQueue(self.locations).cards()), "the queue still names", waiting)
        left = [process.pid for process in psutil.process_iter() if _is_of(process, self.locations.home)]
        must(not left, "processes left:", left)
        for path in self.locations.runs.glob(".new-*"):
            os.utime(path, (0, 0))  # a folder in the making is given a minute
        RunStore(self.locations, SUPERVISOR).adopt()  # a studio that starts sweeps
        odd = [path.name for path in self.locations.runs.iterdir() if path.name not in (run_id, ".drafts")]
        must(not odd, "left behind:", odd)


def _is_of(process: psutil.Process, home: Path) -> bool:
    try:
        mine = any(str(home) in word for word in process.cmdline())
        return mine and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _log_of(locations: Locations) -> str:
    logs = [JobFolder(path).log for path in locations.runs.iterdir() if RUN_ID.fullmatch(path.name)]
    return "\n".join(log.read_text(encoding="utf-8")[-2000:] for log in logs if log.exists())


if __name__ == "__main__":  # the real supervisor over the small worker, struck as its environment says
    strike = Strike.parse(os.environ.get(STRIKES["supervisor"], ""))
    Seam(strike, Ledger(Path(os.environ[LEDGER])), "supervisor").install()
    sys.exit(supervise(Path(sys.argv[1]), WORKER, MACHINE))
