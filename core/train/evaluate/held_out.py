"""The held-out loss, measured pass by pass; memory that runs out makes passes smaller and never ends a run.

    loss = Σ_p Σ_{r in p} loss(r) / Σ_r weight(r)

A sum over rows is the same however they are cut, so a pass that did not fit is measured in halves, and what follows is
cut as small. One row alone that does not fit leaves the loss unmeasured, which is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from core.model.faults import is_out_of_memory
from core.train.channel.reporter import EventReporter
from core.train.safety.memory import let_go_of
from core.train.step.mixin import Rows, split_window

__all__ = ["HeldOut"]

EVALUATION_ROWS = 64
"""Held-out rows are cut into passes so many at a time."""


class HeldOut:
    """Measures ``rows`` with the trainer's own loss. ``seam`` is called before each pass and may leave."""

    def __init__(self, trainer: Any, rows: Rows, tell: EventReporter, seam: Callable[[], None]) -> None:
        self._trainer, self._rows, self._tell, self._seam = trainer, rows, tell, seam
        self._most = 0
        """Tokens a pass since memory ran out here; 0: as in training."""
        self.measured: dict[str, float] = {}
        """What was measured beside the loss the last time, as means over the same."""

    def loss(self) -> float:
        """Mean over what is trained; NaN where it is not finite or a row alone does not fit."""
        model, count, done = self._trainer.model_wrapped, len(self._rows), 0
        total, weight = 0.0, 0
        self._trainer.measure_anew()
        model.eval()
        try:
            with torch.no_grad():
                for first in range(0, count, EVALUATION_ROWS):
                    for chosen in self._cut(range(first, min(first + EVALUATION_ROWS, count))):
                        self._tell.stage("evaluating", "Held-out rows", done, count, "rows")
                        self._seam()
                        total += self._sum(model, chosen)
                        weight += sum(self._rows.weight(row) for row in chosen)
                        done += len(chosen)
        finally:
            model.train()
        self._tell.stage("evaluating", "Held-out rows", done, done, "rows")
        found = zip(self._trainer.measures, self._trainer.sums, strict=True)
        self.measured = {name: float(value) / weight for name, value in found}
        return total / weight

    def _cut(self, group: Sequence[int]) -> list[list[int]]:
        tokens = self._trainer.tokens_per_pass
        return split_window(self._rows, group, min(tokens, self._most or tokens), self._trainer.packed)

    def _sum(self, model: Any, chosen: Sequence[int]) -> float:
        try:
            return float(self._trainer.pass_loss(model, self._rows, chosen))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            let_go_of(error)
        if len(chosen) == 1:
            self._say("The held-out loss could not be measured: one row alone is more than the memory holds.")
            return math.nan
        if not self._most:
            self._say("The memory ran out in an evaluation; its passes are smaller from here on, the loss is the same.")
        middle = len(chosen) // 2
        self._most = max(1, sum(self._rows.length(row) for row in chosen) // 2)
        return self._sum(model, chosen[:middle]) + self._sum(model, chosen[middle:])

    def _say(self, text: str) -> None:
        self._tell.note("memory.evaluation", text, "Training goes on.")
