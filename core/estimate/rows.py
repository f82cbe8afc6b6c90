"""Rows, tokens and steps: what the data means for the length of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from core.contract.config import DataChoice, RunConfig
from core.contract.data import DataFacts

__all__ = ["Rows", "held_out_rows", "rows_of", "total_steps", "train_rows"]

TOO_FEW_ROWS = 5


@dataclass(frozen=True)
class Rows:
    """The data under a length limit. Without facts every row counts as full, and ``known`` is False."""

    train: int
    longest: int
    tokens_per_epoch: int
    trained_per_epoch: int
    cut: int
    known: bool

    @property
    def mean(self) -> float:
        """Tokens of a training row."""
        return self.tokens_per_epoch / self.train if self.train else float(self.longest)


def held_out_rows(rows: int, choice: DataChoice) -> int:
    """How many rows ``core.data.split`` keeps aside, without dealing them (a test holds the two together)."""
    if rows < TOO_FEW_ROWS or choice.eval_fraction == 0:
        return 0
    return min(max(1, round(rows * choice.eval_fraction)), choice.eval_rows_max)


def train_rows(config: RunConfig, facts: DataFacts) -> int:
    """Usable rows less those that are kept aside."""
    return facts.rows - held_out_rows(facts.rows, config.data)


def total_steps(config: RunConfig, train_rows: int) -> int:
    """Optimiser steps of a run: windows an epoch (the last, smaller one counts) times epochs, rounded up.

    ``max_steps`` ends it earlier.
    """
    windows = math.ceil(train_rows / config.rows_per_step)
    steps = math.ceil(windows * config.train.num_train_epochs - 1e-9)
    return min(steps, config.train.max_steps) if config.train.max_steps else steps


def rows_of(config: RunConfig, facts: DataFacts | None) -> Rows:
    """The data's numbers for this config."""
    limit = config.train.max_length
    if facts is None or not facts.lengths:
        return Rows(train=0, longest=limit, tokens_per_epoch=0, trained_per_epoch=0, cut=0, known=False)
    tokens, longest, cut = _cut(facts.lengths, limit)
    train = train_rows(config, facts)
    scale = train / len(facts.lengths)
    return Rows(
        train=train,
        longest=longest,
        tokens_per_epoch=round(tokens * scale),
        trained_per_epoch=round(_sum(facts.trained) * scale),
        cut=round(cut * facts.rows / len(facts.lengths)),
        known=True,
    )


@lru_cache(maxsize=64)
def _cut(lengths: tuple[int, ...], limit: int) -> tuple[int, int, int]:
    """Tokens, longest row and number of cut rows under a limit; remembered, since every knob asks again."""
    return sum(min(length, limit) for length in lengths), min(max(lengths), limit), sum(n > limit for n in lengths)


@lru_cache(maxsize=64)
def _sum(numbers: tuple[int, ...]) -> int:
    return sum(numbers)
