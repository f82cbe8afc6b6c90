"""The batches of a probe: made-up rows as long as the real ones, and in which order they are trained.

A short batch comes first, a quarter as long: it warms everything up, and its speed is what a long one's is held
against where the card's memory may have reached into the machine's. Then comes the longest batch that the data has,
again and again.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from core.contract.config import RunConfig
from core.train.step.rows import PairRows, TextRows, rows_for

SHORT = 4
"""A short batch's rows are so many times shorter."""
LOWEST_ID = 3
"""Below it many vocabularies keep their special tokens."""
LEAST_TOKENS = 4


@dataclass(frozen=True)
class InTurn:
    """A ``Sampler`` of these batches, one a step; together they are one epoch."""

    batches: tuple[Sequence[int], ...]

    @property
    def rows(self) -> int:
        """Of all batches together."""
        return sum(map(len, self.batches))

    def __len__(self) -> int:
        return len(self.batches)

    def after(self, step: int) -> list[int] | None:
        """The rows of the step that follows ``step`` done ones; None where that was the last."""
        return list(self.batches[step]) if step < len(self.batches) else None


def made_rows(config: RunConfig, lengths: Sequence[int], vocabulary: int) -> TextRows | PairRows:
    """Rows of random tokens: a short batch's, then a long one's. Every token is trained, which takes the most."""
    draw = random.Random(config.train.seed)  # noqa: S311 - no secret
    rows = rows_for(config.learning)
    for length in [*(max(LEAST_TOKENS, length // SHORT) for length in lengths), *lengths]:
        ids = draw.choices(range(min(LOWEST_ID, vocabulary - 1), vocabulary), k=max(LEAST_TOKENS, length))
        if isinstance(rows, TextRows):
            rows.append(ids, [-100, *ids[1:]])
        else:
            half = len(ids) // 2
            rows.append(ids[:half], ids[half:], list(reversed(ids[half:])))
    return rows
