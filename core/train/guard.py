"""What must not be trained through: numbers that are none, and data without a single target."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from core.contract.errors import DataError, RunError
from core.train.tell import Teller

__all__ = ["LIMIT", "Guard", "require_targets"]

LIMIT = 3
"""Steps in a row whose loss or gradient is not finite before the run fails."""


@dataclass
class Guard:
    """Judges each step before the optimiser acts on it."""

    tell: Teller
    bad: list[int] = field(default_factory=list)

    def judge(self, step: int, loss: float, grad_norm: float = 0.0) -> bool:
        """Whether this step may change the adapter; a bad one is noted and skipped.

        Raises:
            RunError: the third bad step in a row.
        """
        if math.isfinite(loss) and math.isfinite(grad_norm):
            self.bad.clear()
            return True
        self.bad.append(step)
        what = f"loss {loss}" if not math.isfinite(loss) else f"gradient norm {grad_norm}"
        if len(self.bad) >= LIMIT:
            raise RunError(
                "train.not_finite",
                f"Expected a finite loss, found {what} {LIMIT} steps in a row (steps {self.bad[0]} to {step}).",
                "Lower the learning rate; with float16, try bfloat16 or float32.",
            )
        self.tell.note("step.skipped", f"Step {step} skipped: {what}.", "The adapter was left as it was.")
        return False


def require_targets(trained_tokens: int, rows: int, max_length: int) -> None:
    """Refuses data that trains nothing, before a model is loaded for it.

    Raises:
        DataError: there are no rows, or no row has a trained token.
    """
    if not rows:
        raise DataError("data.no_rows", "Expected rows to train on, found none.", "Choose another layout or mapping.")
    if not trained_tokens:
        raise DataError(
            "data.nothing_trained",
            f"Expected tokens to train on, found none in {rows} rows cut at {max_length} tokens.",
            "Choose another mapping, a longer 'Longest example', or learn from everything.",
        )
