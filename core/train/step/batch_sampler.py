"""Which rows make which step: a pure function of (seed, epoch, batch).

To transformers' Trainer a "batch" is one whole optimizer batch: the row numbers of one step. No iterator is ever
replayed on a resume: whoever asks for the batch of a step gets it, and nothing is used up.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from core.data.deal.packing import epoch_batches


class Sampler(Protocol):
    """The optimizer batches of a run, by the number of steps done before each."""

    @property
    def rows(self) -> int:
        """How many there are to train on."""

    def __len__(self) -> int: ...

    def after(self, step: int) -> list[int] | None:
        """The rows of the step that follows ``step`` done ones; None where that was the last."""


@dataclass(frozen=True)
class BatchSampler:
    """The batches of a run over ``rows`` rows, dealt anew in each epoch."""

    rows: int
    rows_per_step: int
    seed: int
    total_steps: int

    def __len__(self) -> int:
        """Batches of one epoch; the last may be partial."""
        return -(-self.rows // self.rows_per_step)

    def after(self, step: int) -> list[int] | None:
        """The rows of the step that follows ``step`` done ones; None where that was the last."""
        if step >= self.total_steps:
            return None
        epoch, number = divmod(step, len(self))
        return list(_dealt(self.rows, self.rows_per_step, epoch, self.seed)[number])


@dataclass(frozen=True)
class BatchLoader:
    """Stands where the Trainer expects a DataLoader: the rest of the epoch from ``position()`` steps on."""

    sampler: Sampler
    position: Callable[[], int]

    @property
    def dataset(self) -> range:
        """The Trainer counts examples by it."""
        return range(self.sampler.rows)

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        first = self.position()
        for step in range(first, (first // len(self) + 1) * len(self)):
            if (batch := self.sampler.after(step)) is None:
                return
            yield {"rows": batch}


@lru_cache(maxsize=2)
def _dealt(rows: int, rows_per_step: int, epoch: int, seed: int) -> list[list[int]]:
    """An epoch is dealt once, not at each of its steps."""
    return epoch_batches(rows, rows_per_step, epoch, seed)
