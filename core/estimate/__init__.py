"""ESTIMATE: what a run needs in memory, time and disk, by arithmetic alone; and the plan that fits a machine."""

from core.estimate.estimate import estimate
from core.estimate.fit import resolve
from core.estimate.rows import held_out_rows, total_steps, train_rows

__all__ = ["estimate", "held_out_rows", "resolve", "total_steps", "train_rows"]
