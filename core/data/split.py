"""Which rows are held out: a pure function of the number of rows, the choice and the seed."""

from __future__ import annotations

import random

from core.contract.config import DataChoice

__all__ = ["split_rows"]

FEW = 5
"""Below this many rows none is spared."""


def split_rows(n_rows: int, choice: DataChoice, seed: int) -> tuple[list[int], list[int]]:
    """Indices of training and held-out rows, both ascending, together every row exactly once.

    ``eval_fraction`` of the rows, at most ``eval_rows_max``, at least one when anything is held out at all; fewer than
    five rows are all trained on.
    """
    if n_rows < FEW or choice.eval_fraction == 0:
        return list(range(n_rows)), []
    held = min(max(1, round(n_rows * choice.eval_fraction)), choice.eval_rows_max)
    evaluation = sorted(random.Random(f"split:{seed}").sample(range(n_rows), held))  # noqa: S311 - no secret
    kept_aside = set(evaluation)
    return [row for row in range(n_rows) if row not in kept_aside], evaluation
