"""The small process on a disk that is full from a drawn byte on, swept over everything that it writes.

For every megabyte (and every write of the log and the mailbox): the process ends by its error or goes on without the
write, the last good checkpoint stands, the log is whole, and the next process, with room, goes on to the end.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from core.contract.errors import MachineError
from core.runs.control.mailbox import present_attempt, send
from core.runs.folder.job_folder import JobFolder
from core.runs.log import events_log

from .judge import Reader, must
from .kills import Figures, forked, make_life
from .seam import Kind, Ledger, Strike
from .small import train

STEPS, WEIGHT_BYTES = 8, 700_000
"""Four checkpoints of 2.1 MB each, the adapter a third of it."""
KINDS: tuple[Kind, ...] = ("full", "stuffed", "brief")


def sweep_disk(home: Path, apart: int = 1) -> Figures:
    """Full from every megabyte on: for writes alone, for all that wants room, and for a while only; or each of these
    from megabytes that lie so many apart, no two from the same ones.

    Raises:
        AssertionError: something was lost; the words say where.
    """
    folder, ledger = make_life(home, "whole", STEPS, WEIGHT_BYTES)
    must(forked(lambda: train(folder, ledger), Strike(), ledger, "worker"), "was killed")
    written = int(ledger.lines("counted")[0][3])
    points = [
        (at, kind)
        for number, at in enumerate(range(0, written, 1_000_000))
        for turn, kind in enumerate(KINDS)
        if (number - turn) % apart == 0
    ]
    for at, kind in points:
        place = home / f"{kind}-{at}"
        try:
            _one(place, Strike(kind, at))
            shutil.rmtree(place)
        except BaseException as error:
            raise AssertionError(f"{kind} from byte {at} on: {error}") from error
    return Figures(besides=f"full at {len(points)} points over {written / 1e6:.1f} MB")


def _one(home: Path, strike: Strike) -> None:
    folder, ledger = make_life(home, "life", STEPS, WEIGHT_BYTES)
    reader = Reader(folder, ledger, WEIGHT_BYTES)
    forked(lambda: _tried(lambda: train(folder, ledger), ledger), strike, ledger, "worker")
    must(ledger.lines("refused"), "the full disk was never met")
    gave_up = ledger.lines("gave-up")
    must(strike.kind != "brief" or not gave_up or not folder.checkpoints.exists(), "did not wait:", gave_up)
    if strike.kind == "brief" and not gave_up:
        reader.judge_end(STEPS)
        return
    if folder.events.exists():
        reader.judge()
        _send_without_room(folder, ledger, strike.kind)
    must(forked(lambda: train(folder, ledger), Strike(), ledger, "worker"), "was killed")
    reader.judge_end(STEPS)


def _send_without_room(folder: JobFolder, ledger: Ledger, kind: Kind) -> None:
    """A command that finds no room is refused, and stands in no one's way: the next one arrives."""
    attempt = present_attempt(folder.events) + 1
    for room in (0, 1, 70):
        before = len(ledger.lines("gave-up"))
        forked(
            lambda: _tried(lambda: send(folder, "save", attempt=attempt), ledger), Strike(kind, room), ledger, "sender"
        )
        must(len(ledger.lines("gave-up")) > before, "a command that found no room was taken as sent")
    ledger.tell("sent", send(folder, "save", attempt=attempt).id, attempt)


def _tried(work: Callable[[], object], ledger: Ledger) -> None:
    events_log.PATIENCE_SECONDS = 0.0  # of this forked process: nobody makes room for it while it leaves
    try:
        work()
    except (MachineError, OSError) as error:
        ledger.tell("gave-up", error)
