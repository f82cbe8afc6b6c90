"""Losses and gradients that are not finite, steps without a target, and data without a single one.

    loss, gradient norm ─► finite? ─► the optimiser acts
                            └ no: the step is skipped, its rows are named ─► three in a row: rollback, once

    bad steps b, b+1, b+2 ─► the newest checkpoint of a step s ≤ b - 2 ─► half the learning rate ─► a fresh process

Checkpoint s is known to be good since step s + 1 was; that of step b - 1 only where its held-out loss was measured.
Without any the run begins again. Later checkpoints are deleted before the ``Correction`` is written, so a worker killed
in between meets the same numbers again. A second rollback is a fault; the Correction in the log tells that it is one.

With float16 a gradient beyond the format's range is no fault: the scaler skips that step and halves its scale. A scale
below 1 is one.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from core.contract.errors import DataError, RunError
from core.contract.events import Correction
from core.runs.folder.job_folder import JobFolder, checkpoint_step
from core.runs.record.job_record import RunRecord
from core.runs.record.outcome import measured_at
from core.train.channel.command_queue import Afresh
from core.train.channel.reporter import EventReporter
from core.train.keep import checkpoint

LIMIT = 3
"""Steps in a row whose loss or gradient is not finite before the run goes back."""
_RATE, _MARK = "train.learning_rate", "Bad numbers:"
"""What a rollback corrects, and how its reason begins."""
_NAMED = 8


def _stop(bad: Sequence[int], what: str) -> None:
    raise RunError("train.not_finite/repeatedly", what=what, count=len(bad), first=bad[0], last=bad[-1])


@dataclass
class Guard:
    """Judges each step before the optimiser acts on it.

    ``name_rows`` names the rows of the user's file in a bad step ("": unknown); ``turn_back`` is called with the bad
    steps in a row and what was wrong, and raises.
    """

    reporter: EventReporter
    bad: list[int] = field(default_factory=list)
    overflows: int = 0
    name_rows: Callable[[], str] = lambda: ""
    turn_back: Callable[[Sequence[int], str], None] = _stop

    def require_weight(self, step: int, weight: float) -> None:
        """Refuses a step whose mean loss would be 0 / 0.

        Raises:
            RunError: its rows have no trained token.
        """
        if weight <= 0:
            raise RunError("train.nothing_trained", step=step, rows=_of(self.name_rows()))

    def judge(self, step: int, loss: float, grad_norm: float = 0.0, scale: float | None = None) -> bool:
        """Whether this step may change the adapter; a bad one is noted and skipped.

        Args:
            scale: of the gradients in float16; None without a scaler.

        Raises:
            RunError: the third bad step in a row.
        """
        fault = _fault(loss, grad_norm, scale)
        if not fault:
            if math.isfinite(grad_norm):
                self.bad.clear()
                return True
            self.overflows += 1  # the first, tenth, hundredth … is noted
            if math.log10(self.overflows).is_integer():
                self.reporter.note(
                    "step.overflow",
                    f"Step {step}: a gradient beyond float16's range at scale {scale:,.0f} ({self.overflows} so far).",
                    "No fault: the step is left out and the scale is halved.",
                )
            return True
        self.bad.append(step)
        rows = _of(self.name_rows())
        self.reporter.note("step.skipped", f"Step {step} skipped: {fault}{rows}.", "The adapter was left as it was.")
        if len(self.bad) >= LIMIT:
            self.turn_back(tuple(self.bad), fault)
        return False


def _fault(loss: float, grad_norm: float, scale: float | None) -> str:
    if not math.isfinite(loss):
        return f"loss {loss}"
    if scale is not None:
        return f"float16's loss scale {scale:g}" if scale < 1 else ""
    return "" if math.isfinite(grad_norm) else f"gradient norm {grad_norm}"


def _of(rows: str) -> str:
    return f" ({rows})" if rows else ""


def require_targets(trained_tokens: int, rows: int, max_length: int) -> None:
    """Refuses data that trains nothing.

    Raises:
        DataError: there are no rows, or no row has a trained token.
    """
    if not rows:
        raise DataError("data.no_rows")
    if not trained_tokens:
        raise DataError("data.nothing_trained/cut", rows=rows, max_length=max_length)


def turn_back(
    folder: JobFolder, record: RunRecord, rate: float, reporter: EventReporter, bad: Sequence[int], what: str
) -> None:
    """Goes back to the last checkpoint known to be good, with half the learning rate.

    Args:
        record: the log when the attempt began.
        rate: the present learning rate.
        bad: the steps in a row; ``what`` was wrong in them.

    Raises:
        Afresh: a fresh process goes on from there.
        RunError: the run went back before.
    """
    mine = [one for one in record.corrections if one.key == _RATE and one.reason.startswith(_MARK)]
    steps = f"{len(bad)} steps in a row (steps {bad[0]} to {bad[-1]})"
    if mine:
        raise RunError("train.not_finite/again", rate=mine[-1].new, what=what, steps=steps)
    before = folder.checkpoints / checkpoint.step_name(bad[0] - 1)
    checkpoint.remove_after(folder, bad[0] - (2 if measured_at(before) is None else 1))
    start = checkpoint.latest_good(folder)
    step = (checkpoint_step(start.name) or 0) if start else 0
    reason = f"{_MARK} {what}, {steps}; back to step {step} with half the learning rate, once."
    reporter.say(Correction(key=_RATE, old=json.dumps(rate), new=json.dumps(rate / 2), reason=reason))
    raise Afresh(f"Bad numbers in steps {bad[0]} to {bad[-1]}: back to step {step} with half the learning rate.")


def rows_at_fault(trainer: Any, numbers: Sequence[int]) -> str:
    """The rows of the present step whose own loss is not finite, by their ``numbers`` in the user's file; all of the
    step where each is finite by itself.
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
