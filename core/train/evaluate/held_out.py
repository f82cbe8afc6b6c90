"""The held-out loss, measured in micro-batches m of rows r.

    loss = Σ_m Σ_{r in m} loss(r) / Σ_r weight(r)

Ranks share the rows of each group and add up their sums; a rank that cannot go on says NaN and stays with the others.

Out of memory never ends a run here: that micro-batch is halved, and later ones are as small. If a single row does not
fit, the loss is NaN.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from core.model.faults import is_out_of_memory
from core.train.channel.reporter import EventReporter
from core.train.safety.memory import let_go_of
from core.train.step.batches import split_batch
from core.train.step.rows import Rows

EVALUATION_ROWS = 64
"""Rows that are cut into micro-batches at a time."""
_NO_ROW = "The held-out loss could not be measured: one row alone is more than the memory holds."


class HeldOut:
    """Measures ``rows`` with the trainer's loss; ``safe_point`` is called before each micro-batch."""

    def __init__(self, trainer: Any, rows: Rows, reporter: EventReporter, safe_point: Callable[[], None]) -> None:
        self._trainer, self._rows, self._reporter, self._safe_point = trainer, rows, reporter, safe_point
        self._most = 0
        """Limit of tokens per micro-batch since memory ran out here; 0: as in training."""
        self.measured: dict[str, Any] = {}
        """Means of the trainer's ``measures`` in the last evaluation, and its ``held_out_measures``."""

    def loss(self) -> float:
        """Mean loss; NaN where it is not finite or a single row does not fit."""
        trainer, model, count, done = self._trainer, self._trainer.model_wrapped, len(self._rows), 0
        total, lost, self.measured = 0.0, False, {}
        trainer.measure_anew()
        model.eval()
        try:
            with torch.no_grad():
                for first in range(0, count, EVALUATION_ROWS):
                    group = range(first, min(first + EVALUATION_ROWS, count))
                    tokens = min(trainer.tokens_per_pass, self._most or trainer.tokens_per_pass)
                    fits, shared = self._prelude(model, group, tokens)
                    trainer.settle(trainer.ranks.sum(shared))
                    lost = lost or not fits
                    for chosen in split_batch(self._rows, trainer.own(self._rows, group), tokens, trainer.packed):
                        self._reporter.stage("evaluating", "Held-out rows", done, count, "rows")
                        self._safe_point()
                        total = math.nan if lost else total + self._sum(model, chosen)
                        done += len(chosen) * trainer.ranks.count
        finally:
            model.train()
        self._reporter.stage("evaluating", "Held-out rows", count, count, "rows")
        weight = sum(map(self._rows.weight, range(count)))
        own = [math.nan if lost else total, *map(float, trainer.sums)]
        mean, *means = trainer.ranks.sum(torch.tensor(own, dtype=torch.float64)).div(weight).tolist()
        self.measured = dict(zip(trainer.measures, means, strict=True)) | trainer.held_out_measures()
        return float(mean)

    def _prelude(self, model: Any, group: Sequence[int], tokens: int) -> tuple[bool, torch.Tensor | None]:
        """This rank's part of what the rows of a group share; where memory runs out, again in smaller micro-batches.
        False where a single row does not fit."""
        while tokens:
            try:
                return True, self._trainer.prelude_sums(model, self._rows, group, tokens)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                let_go_of(error)
            tokens //= 2
        self._say(_NO_ROW)
        return False, torch.full((), torch.nan, device=self._trainer.args.device)

    def _sum(self, model: Any, chosen: Sequence[int]) -> float:
        try:
            return float(self._trainer.pass_loss(model, self._rows, chosen))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            let_go_of(error)
        if len(chosen) == 1:
            self._say(_NO_ROW)
            return math.nan
        if not self._most:
            self._say("The memory ran out in an evaluation; its passes are smaller from here on, the loss is the same.")
        middle = len(chosen) // 2
        self._most = max(1, sum(self._rows.length(row, self._trainer.packed) for row in chosen) // 2)
        return self._sum(model, chosen[:middle]) + self._sum(model, chosen[middle:])

    def _say(self, text: str) -> None:
        self._reporter.note("memory.evaluation", text, "Training goes on.")
