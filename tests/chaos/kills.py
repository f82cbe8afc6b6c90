"""The small process, killed inside its writes: life after life, each killed until it comes to its end.

A first life, unkilled, tells how many calls and bytes there are; then every attempt draws one of them. The attempts are
forked from here, so that one costs milliseconds. Between attempts somebody steers (and is killed while sending, too).
"""

import os
import random
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from core.runs.control.mailbox import present_attempt, send
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config

from .judge import Reader, must
from .seam import Ledger, Seam, Strike
from .small import small_config, train

STEPS, WEIGHT_BYTES = 24, 40_000
DURABLE = frozenset({"checkpoint", "finished"})
MOST_ATTEMPTS = 400
"""A life that needs more has stopped going on."""


@dataclass
class Figures:
    """What was counted: kills by who was struck and where, lives, and what else there is to say."""

    kills: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    besides: str = ""

    def note(self, ledger: Ledger) -> None:
        """Takes over the kills that a life's ledger tells."""
        self.lives += 1
        for words in ledger.lines("killed"):
            self.kills[f"{words[1]} {words[3]} {words[4] if words[3] == 'before' else 'bytes'}"] += 1

    def line(self, what: str, seed: int, seconds: float) -> str:
        """One line for people."""
        places = ", ".join(f"{count} {place}" for place, count in sorted(self.kills.items()))
        told = f"{self.kills.total()} kills in {self.lives} lives, seed {seed}, {seconds:.0f} s, 0 faults"
        return f"{what}: {told} ({'; '.join(filter(None, (places, self.besides)))})"


def forked(work: Callable[[], None], strike: Strike, ledger: Ledger, who: str) -> bool:
    """Does ``work`` in a forked process that is struck so; True where it came to its end, False where it was killed.

    Raises:
        AssertionError: it failed by itself, which no strike excuses; its traceback is on stderr.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            seam = Seam(strike, ledger, who).install()
            work()
            seam.tell_counts()
            code = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    must(status in (0, -signal.SIGKILL), who, "struck at", strike, "failed by itself with", status)
    return status == 0


def make_life(home: Path, name: str, steps: int = STEPS, weight_bytes: int = WEIGHT_BYTES) -> tuple[JobFolder, Ledger]:
    """A fresh run folder and its ledger."""
    folder = JobFolder(home / name)
    folder.path.mkdir(parents=True)
    folder.run_yaml.write_text(dump_config(small_config(steps, weight_bytes)), encoding="utf-8")
    return folder, Ledger(home / f"{name}.ledger")


def counts(home: Path) -> tuple[int, int]:
    """Calls and bytes of an unkilled life, which is judged as well."""
    folder, ledger = make_life(home, "whole")
    must(forked(lambda: train(folder, ledger), Strike(), ledger, "worker"), "the unkilled life was killed")
    Reader(folder, ledger, WEIGHT_BYTES).judge_end(STEPS)
    _, _, calls, written = ledger.lines("counted")[0]
    return int(calls), int(written)


def kill_small(home: Path, kills: int, seed: int, power: bool = False) -> Figures:
    """At least so many kills of worker and sender, everything judged after each.

    Args:
        power: it goes with the process: what was not made durable is lost, and its readers with it.

    Raises:
        AssertionError: something was lost; the words say the seed and the life.
    """
    draw, figures = random.Random(seed), Figures()
    calls, written = counts(home)
    while figures.kills.total() < kills:
        folder, ledger = make_life(home, f"life-{figures.lives}")
        try:
            _live(folder, ledger, draw, (calls // 3, written // 3), power)
        except BaseException as error:
            raise AssertionError(f"seed {seed}, {folder.path}: {error}; {ledger.lines('killed')[-1:]}") from error
        figures.note(ledger)
    return figures


def draw_strike(draw: random.Random, calls: int, written: int) -> Strike:
    """A kill at one of so many calls, at one of so many bytes, or in the middle of a write."""
    kind = draw.choice(("call", "byte", "half"))
    most = {"call": calls, "byte": written, "half": max(calls // 2, 1)}[kind]
    return Strike(kind, draw.randint(1, most))  # type: ignore[arg-type]


def _live(folder: JobFolder, ledger: Ledger, draw: random.Random, most: tuple[int, int], power: bool) -> None:
    reader = Reader(folder, ledger, WEIGHT_BYTES)
    for _ in range(MOST_ATTEMPTS):
        if power:
            strike = Strike("power", draw.randint(1, most[0]))
        else:
            _steer(folder, ledger, draw)
            strike = draw_strike(draw, *most)
        ended = forked(lambda: train(folder, ledger), strike, ledger, "worker")
        if power:
            reader = Reader(folder, ledger, WEIGHT_BYTES, DURABLE)  # a follower has no power either
        reader.judge()
        if ended:
            reader.judge_end(STEPS)
            return
    raise AssertionError("the life does not come to its end")


def _steer(folder: JobFolder, ledger: Ledger, draw: random.Random) -> None:
    """Now and then a command; half of the senders die while they send, and the next command arrives all the same."""
    if not folder.events.exists() or draw.random() < 0.5:
        return
    verb = draw.choice(("save", "sample"))
    attempt = present_attempt(folder.events) + draw.randint(0, 3)  # 0: for one that is dead, and for nobody after it

    def tell() -> None:
        ledger.tell("sent", send(folder, verb, attempt=attempt).id, attempt)

    if draw.random() < 0.5:
        forked(tell, draw_strike(draw, 3, 150), ledger, "sender")
    tell()
