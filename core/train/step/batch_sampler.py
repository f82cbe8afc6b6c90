"""Which rows make which step: a pure function of (seed, epoch, window).

To transformers' Trainer a "batch" is one whole optimiser window: the row numbers of one step. No iterator is ever
replayed on a resume. Whenever the Trainer asks for windows, it gets those from the present step on, and whoever wants
to prepare a later one may ask for it: nothing is used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from core.data.deal.packing import windows

__all__ = ["BatchSampler"]


@dataclass(frozen=True)
class BatchSampler:
    """Stands where the Trainer expects a DataLoader. ``position`` tells the number of steps that are done."""

    rows: int
    rows_per_step: int
    seed: int
    total_steps: int
    position: Callable[[], int]

    @property
    def dataset(self) -> range:
        """The Trainer counts examples by it."""
        return range(self.rows)

    def __len__(self) -> int:
        """Windows of one epoch; the last may be partial."""
        return -(-self.rows // self.rows_per_step)

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        epoch, first = divmod(self.position(), len(self))
        for window in _dealt(self.rows, self.rows_per_step, epoch, self.seed)[first:]:
            if self.position() >= self.total_steps:
                return
            yield {"rows": list(window)}

    def after(self, step: int) -> list[int] | None:
        """The rows of the step that follows ``step`` done ones; None where that was the last."""
        if step >= self.total_steps:
            return None
        epoch, number = divmod(step, len(self))
        return list(_dealt(self.rows, self.rows_per_step, epoch, self.seed)[number])

    def epoch_at(self, step: int) -> float:
        """How often the data was seen after ``step`` steps."""
        return step / len(self)


@lru_cache(maxsize=2)
def _dealt(rows: int, rows_per_step: int, epoch: int, seed: int) -> list[list[int]]:
    """An epoch is dealt once, not at each of its steps."""
    return windows(rows, rows_per_step, epoch, seed)
