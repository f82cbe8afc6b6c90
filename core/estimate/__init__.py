"""ESTIMATE: what a run needs in memory, time and disk, by arithmetic alone; and the plan that fits a machine."""

from core.estimate.advise import advise
from core.estimate.estimate import estimate
from core.estimate.fit import resolve
from core.estimate.learned import Learned
from core.estimate.predict import predict, probed
from core.estimate.rows import total_steps, train_rows
from core.estimate.suggest import make_it_fit, use_the_room

__all__ = [
    "Learned",
    "advise",
    "estimate",
    "make_it_fit",
    "predict",
    "probed",
    "resolve",
    "total_steps",
    "train_rows",
    "use_the_room",
]
