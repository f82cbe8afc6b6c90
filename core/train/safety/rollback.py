"""Rollback, once: what a run does after numbers that are none, three steps in a row.

    bad steps b, b+1, b+2 ─► the newest checkpoint of a step s ≤ b - 2 ─► half the learning rate ─► a fresh process

Step s + 1 was computed with what checkpoint s holds, and was good. The one of step b - 1 only made bad numbers so far,
so it is trusted where its held-out loss was measured and finite. Without any the run begins again. Later checkpoints go
first and the ``Correction`` is said after, so a worker that is killed in between meets the same numbers once more. The
Correction in the log is the memory: a second time the run stops and explains.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from core.contract.errors import RunError
from core.contract.events import Correction
from core.runs.folder.job_folder import JobFolder, checkpoint_step
from core.runs.record.job_record import RunRecord
from core.runs.record.outcome import measured_loss
from core.train.channel.command_queue import Afresh
from core.train.channel.reporter import EventReporter
from core.train.keep import checkpoint

LEARNING_RATE = "train.learning_rate"
_MARK = "Bad numbers:"
"""How the reason of a correction for such numbers begins."""
_NAMED = 8


@dataclass(frozen=True)
class Rollback:
    """One run's way back. ``rate`` is the learning rate as it is now, ``record`` the log when the attempt began."""

    folder: JobFolder
    record: RunRecord
    rate: float
    reporter: EventReporter

    def turn_back(self, bad: Sequence[int], what: str) -> None:
        """Goes back to the last checkpoint that was seen to train well, with half the learning rate.

        Raises:
            Afresh: a fresh process goes on from there.
            RunError: the run went back before.
        """
        mine = [one for one in self.record.corrections if one.key == LEARNING_RATE and one.reason.startswith(_MARK)]
        steps = f"{len(bad)} steps in a row (steps {bad[0]} to {bad[-1]})"
        if mine:
            raise RunError("train.not_finite/again", rate=mine[-1].new, what=what, steps=steps)
        before = self.folder.checkpoints / checkpoint.step_name(bad[0] - 1)
        checkpoint.remove_after(self.folder, bad[0] - (2 if measured_loss(before) is None else 1))
        start = checkpoint.latest_good(self.folder)
        step = (checkpoint_step(start.name) or 0) if start else 0
        reason = f"{_MARK} {what}, {steps}; back to step {step} with half the learning rate, once."
        self.reporter.say(
            Correction(key=LEARNING_RATE, old=json.dumps(self.rate), new=json.dumps(self.rate / 2), reason=reason)
        )
        raise Afresh(f"Bad numbers in steps {bad[0]} to {bad[-1]}: back to step {step} with half the learning rate.")


def rows_at_fault(trainer: Any, numbers: Sequence[int]) -> str:
    """The rows of the present step whose own loss is not finite, by their ``numbers`` in the user's file; where all
    are finite, all of the step.

    Each row is computed once more by itself, which changes nothing: random numbers follow from seed and step.
    """
    if not numbers:
        return ""
    batch, rows = trainer.sampler.after(trainer.step) or [], trainer.rows
    with torch.no_grad():
        bad = [row for row in batch if not math.isfinite(float(trainer.pass_loss(trainer.model_wrapped, rows, [row])))]
    faulty = sorted({numbers[row] for row in bad or batch})
    shown = ", ".join(str(number) for number in faulty[:_NAMED])
    more = f" and {len(faulty) - _NAMED} more" if len(faulty) > _NAMED else ""
    return f"{'row' if len(faulty) == 1 else 'rows'} {shown}{more} of the data file"
