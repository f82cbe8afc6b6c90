"""Whole runs of the built-in model, their workers, supervisors and studios killed at drawn moments.

    start ─► (a moment: seconds into an attempt, a step, a checkpoint being written) ─► SIGKILL ─► … ─► finished

A worker's death ends in an offer to resume, which is taken; a supervisor's is mended by whoever looks next; a studio's
is noticed by nobody. In the end adapter, optimiser, losses and what stands are the uninterrupted run's, bit for bit.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil

from core.cli.demo import demo_config
from core.contract.config import RunConfig
from core.data.service.data_service import DataService
from core.machine.locations import Locations
from core.runs.control.prepare import prepare
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder, checkpoint_step
from core.runs.log.events_log import EventTail
from core.runs.process.processes import Identity, read_owners
from core.runs.record.job_record import RUNNING, RunRecord, folded
from core.runs.record.summary import nobody_lives
from core.train.keep import checkpoint
from tests.e2e.driving import running_studio

from .judge import must
from .kills import Figures

VICTIMS = ["worker", "supervisor", "studio"] * 3 + ["worker"]
RANKS = 3
AMONG_RANKS = ["rank"] * 6 + ["worker"] * 3 + ["supervisor"]
"""The worker is rank 0 of ``RANKS`` processes that train together, over gloo."""
STEPS = 30
KILLS_A_LIFE = 5
PATIENCE_SECONDS = 240.0
RANKS_SECONDS = 10.0
"""All ranks of an attempt are gone by then after the death of one; a moment on a machine with a core for each."""
DEATHS = ("worker.died", "worker.restarts")


def starter_config(home: Path, steps: int = STEPS) -> RunConfig:
    """A short run of the built-in model on its sample, resolved as the window does it."""
    service = DataService(Locations(home).make())
    try:
        raw = prepare(demo_config(), Locations(home), service).config.model_dump()
    finally:
        service.close()
    raw["train"].update(max_steps=steps, save_steps=2, eval_steps=6, save_minutes=0, per_device_train_batch_size=4)
    raw["lora"].update(lora_dropout=0.1)
    return RunConfig.model_validate(raw)


def uninterrupted(home: Path, config: RunConfig) -> JobFolder:
    """The run to which all others are compared, at its end."""
    life = _Life(home, config, random.Random(0))
    life.until(lambda: life.record().state not in RUNNING, "does not end")
    must(life.record().state == "finished", "ended as", life.record().state, life.record().failure)
    return life.folder


def kill_ranks(home: Path, kills: int, seed: int) -> Figures:
    """A run of several ranks, of which any may be killed: the others end within seconds, and it goes on."""
    os.environ["OMP_NUM_THREADS"] = "1"
    raw = starter_config(home / "whole").model_dump()
    raw["train"]["cards"] = ",".join(map(str, range(RANKS)))
    raw["model"]["streamed_layers"] = 3  # in memory that the ranks share
    config = RunConfig.model_validate(raw)
    return kill_whole(home, (config, uninterrupted(home / "whole", config)), kills, seed, AMONG_RANKS)


def kill_whole_runs(home: Path, kills: int, seed: int) -> Figures:
    """The same, with the uninterrupted run made first."""
    os.environ["OMP_NUM_THREADS"] = "1"  # the same sums on every machine, and two lives fit on two cores
    config = starter_config(home / "whole")
    return kill_whole(home, (config, uninterrupted(home / "whole", config)), kills, seed)


def kill_whole(
    home: Path, whole: tuple[RunConfig, JobFolder], kills: int, seed: int, among: Sequence[str] = VICTIMS
) -> Figures:
    """At least so many kills, in lives of a few kills each, two at a time.

    Raises:
        AssertionError: something was lost; the words say the seed and the life.
    """
    figures, resumed = Figures(), 0
    victims = [among[number % len(among)] for number in range(kills)]
    random.Random(seed).shuffle(victims)
    parts = [victims[first : first + KILLS_A_LIFE] for first in range(0, kills, KILLS_A_LIFE)]
    with ThreadPoolExecutor(2) as pool:
        lives = [
            pool.submit(_killed, home / f"life-{number}", whole, part, seed + number)
            for number, part in enumerate(parts)
        ]
        for life in lives:
            figures.lives += 1
            resumed += life.result().resumed
            figures.kills.update(life.result().killed)
    figures.besides = f"resumed {resumed} times; each life ended bit for bit as the uninterrupted one"
    return figures


def _killed(home: Path, whole: tuple[RunConfig, JobFolder], victims: list[str], seed: int) -> _Life:
    life = _Life(home, whole[0], random.Random(seed))
    try:
        for victim in victims:
            life.kill(victim)
        life.to_the_end()
        _judge(life.folder, whole[1])
    except BaseException as error:
        told = [(event.kind, event.step) for event in EventTail(life.folder.events).read()[-8:]]
        raise AssertionError(f"seed {seed}, {home}, {victims}, after {life.killed}: {error}; {told}") from error
    return life


class _Life:
    """One run from its start to its end."""

    def __init__(self, home: Path, config: RunConfig, draw: random.Random) -> None:
        self.store, self.draw = RunStore(Locations(home).make()), draw
        self.folder = self.store.open(self.store.start(config))
        self.killed: list[str] = []
        self.resumed = 0

    def record(self) -> RunRecord:
        """Looks at the run, as a studio does all the time."""
        return self.store.record(self.folder.name)

    def kill(self, victim: str) -> None:
        """Waits for a drawn moment, then ends this victim, and has the run go on."""
        if victim == "studio":
            self._kill_studio()
        else:
            self._wait_for_a_moment()
            self._end(victim)
        self.killed.append(victim)

    def to_the_end(self) -> None:
        """Until it is finished and nobody is left."""
        self.until(self._gone_on, "does not end")
        self.until(lambda: nobody_lives(self.folder), "somebody lives on")

    def until(self, done: Callable[[], object], words: str) -> None:
        """Waits for this, with patience for a busy machine."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not done():
            must(time.monotonic() < end, words, self.folder.log.read_text(encoding="utf-8")[-2000:])
            time.sleep(0.02)

    def _gone_on(self) -> bool:
        """Presses Resume where a death ended the attempt; True where the run is finished."""
        record = self.record()
        if record.state in ("failed", "lost"):
            must(record.state == "lost" or (record.failure and record.failure.code in DEATHS), record.failure)
            self._judge_rest(record)
            self.store.resume(self.folder.name)
            self.resumed += 1
        return record.state == "finished"

    def _judge_rest(self, record: RunRecord) -> None:
        bad: list[str] = []
        newest = checkpoint.latest_good(self.folder, lambda path, why: bad.append(f"{path.name}: {why}"))
        said = max((event.step for event in record.checkpoints), default=0)
        must(not bad, "unreadable newest checkpoint:", bad)
        must(not said or (newest and (checkpoint_step(newest.name) or 0) >= said), "step", said, "was said to stand")

    def _wait_for_a_moment(self) -> None:
        """Seconds into the attempt (most of them imports), a few steps on, or a checkpoint being written."""
        kind = self.draw.choice(("seconds", "step", "saving"))
        if kind == "seconds":
            until = time.monotonic() + self.draw.uniform(0, 6)
            self.until(lambda: self._gone_on() or time.monotonic() > until, "waits")
            return
        target = self.record().last_step + self.draw.randint(1, 4)
        saving = kind == "saving"

        def there() -> bool:
            if self._gone_on():
                return True
            record = self.record()
            stage = record.stage.stage if record.stage else ""
            return record.last_step >= target and (not saving or stage == "saving")

        self.until(there, f"never came to step {target}")
        time.sleep(self.draw.uniform(0, 0.05))

    def _end(self, who: str) -> None:
        if who == "rank":
            self._end_rank()
            return
        identity = self._owner(who)
        if identity:
            os.kill(identity.pid, signal.SIGKILL)
            self.until(lambda: not identity.alive(), f"the {who} outlived its SIGKILL")

    def _owner(self, who: str) -> Identity | None:
        """The living victim; one that is just being started is waited for."""

        def victim() -> Identity | None:
            identity: Identity | None = getattr(read_owners(self.folder), who)
            return identity if identity and identity.alive() else None

        self.until(lambda: victim() or self._gone_on(), f"there is no {who}")
        return victim()

    def _end_rank(self) -> None:
        """One of those beside rank 0, drawn; all of its attempt are gone soon after."""

        def ranks() -> list[psutil.Process]:
            owner = read_owners(self.folder).worker
            worker = owner.process() if owner else None
            with suppress(psutil.Error):
                return [worker, *worker.children()] if worker and worker.children() else []
            return []

        there: list[psutil.Process] = []
        self.until(lambda: there.extend(ranks()) or there or self._gone_on(), "there are no ranks")
        if not there:
            return
        victim = self.draw.choice(there[1:])
        with suppress(psutil.Error):
            victim.kill()
        begun = time.monotonic()
        self.until(lambda: not any(map(_lives, there)), "ranks outlive the death of one")
        took = time.monotonic() - begun
        must(took < RANKS_SECONDS, "ranks outlived the death of one by", took)

    def _kill_studio(self) -> None:
        """Opens a studio over the run and ends it; worker, supervisor and attempt are the same before and after."""
        with running_studio(self.store.locations.home) as studio:
            time.sleep(self.draw.uniform(0, 1.5))
            if self.draw.random() < 0.5:
                studio.fresh_address()  # not only while it starts
            before, record = read_owners(self.folder), self.record()
            must(studio.process.poll() is None, "the studio ended by itself")
            studio.stop(signal.SIGKILL)
        time.sleep(0.3)
        after = self.record()
        if after.state in RUNNING:
            must(read_owners(self.folder) == before, "the run noticed:", before, read_owners(self.folder))
            must((after.attempt, after.last_step >= record.last_step) == (record.attempt, True), "the run went back")


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _judge(folder: JobFolder, whole: JobFolder) -> None:
    """The end is the uninterrupted run's."""
    mine, its = (folded(job) for job in (folder, whole))
    for part in ("steps", "evaluations"):
        told, expected = ([(event.step, event.loss) for event in getattr(record, part)] for record in (mine, its))
        must(told == expected, part, "differ:", told, expected)
    names = [sorted(path.name for path in job.checkpoints.iterdir()) for job in (folder, whole)]
    must(names[0] == names[1], "other checkpoints stand:", names)
    for path in sorted(whole.checkpoints.rglob("*.safetensors")):
        same = (folder.checkpoints / path.relative_to(whole.checkpoints)).read_bytes() == path.read_bytes()
        must(same, path.relative_to(whole.checkpoints), "differs from the uninterrupted run's")
    announced = [{event.name for event in record.checkpoints} for record in (mine, its)]
    must(announced[0] == announced[1], "other checkpoints were announced:", announced)
