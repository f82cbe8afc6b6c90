"""A run's numbers for its charts: read once, smoothed, then thinned to what a screen can show.

The steps of a run's record become columns, to which each tick adds the new ones. A chart gets at most ``BUCKETS``
buckets of neighbouring steps, each as its lowest and highest value, so no spike is lost. A bucket's width in steps is a
power of two: buckets stay where they are while the run grows, and all are sent again only when the width doubles.

Smoothing is an exponential mean without start-up bias, taken before thinning: ``m = b m + (1 - b) x``, shown as
``m / (1 - b^n)`` after n known values. Unknown values are NaN in here and null outside, never 0.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from core.contract.events import MOST_CARDS, Step
from core.contract.methods import HELD_OUT_MEASURES, MEASURES
from core.runs.record.job_record import RunRecord
from core.runs.record.outcome import Measure, best, measures

BUCKETS = 600
LEVELS = (0.0, 0.6, 0.9, 0.98)
METRICS = (
    "loss",
    "learning_rate",
    "grad_norm",
    "tokens_per_second",
    "memory_bytes",
    "card_used_bytes",
    "gpu_load",
    "power_watts",
    "temperature_celsius",
    *MEASURES,
)
EXACT = frozenset({"learning_rate", "memory_bytes", "card_used_bytes", "temperature_celsius"})
"""Readings without noise, which are not smoothed."""
OF_CARDS = ("card_used_bytes", "gpu_load", "power_watts", "temperature_celsius")
"""What is drawn of every card of a run on several: "gpu_load.1" is the second card's load."""


@dataclass(frozen=True)
class Window:
    """What a page asks for: steps ``first`` to ``last`` (0: to the end), the smoothing ``level``, and what it has.

    ``since`` is the last step that the page knows, ``shape`` that of its last answer; where the shape changed (another
    width, a resumed run, other smoothing) everything is sent again.
    """

    since: int = 0
    shape: str = ""
    level: float = 0.0
    first: int = 0
    last: int = 0


@dataclass
class _Mean:
    """The running state of one smoothed column."""

    value: float = 0.0
    weight: float = 0.0
    column: array[float] = field(default_factory=lambda: array("d"))

    def extend(self, values: array[float], level: float) -> None:
        """Continues over these values."""
        if np.isnan(values).all():
            self.column.extend(values)
            return
        mean, weight, new = self.value, self.weight, 1 - level
        shown = []
        for value in values:
            if value == value:  # known, since NaN differs from itself
                mean = level * mean + new * value
                weight = level * weight + new
                shown.append(mean / weight)
            else:
                shown.append(value)
        self.value, self.weight = mean, weight
        self.column.extend(shown)


def is_metric(name: str) -> bool:
    """Whether a line of that name is drawn over the steps."""
    metric, _, card = name.partition(".")
    return name in METRICS or (metric in OF_CARDS and card.isascii() and card.isdigit() and int(card) < MOST_CARDS)


def value_of(step: Step, name: str) -> float | None:
    """A step's reading by the line's name."""
    metric, _, card = name.partition(".")
    if not card:
        return getattr(step, name)
    return getattr(step.cards[int(card)], metric) if int(card) < len(step.cards) else None


class RunPoints:
    """All steps of a run as columns. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = 0  # how often the columns had to be built anew
        self._clear()

    def _clear(self) -> None:
        self._steps: array[int] = array("q")
        self._values: dict[str, array[float]] = {name: array("d") for name in METRICS}
        self._means: dict[float, dict[str, _Mean]] = {}
        self._last: Step | None = None

    def answer(self, record: RunRecord, window: Window) -> dict[str, Any]:
        """The chart's numbers as JSON values, with held-out losses and the best of them.

        ``version`` changes whenever the answer may have.
        """
        with self._lock:
            self._follow(record.steps)
            answer = self._buckets(window)
        answer["evaluations"] = _held_out(record, "loss")
        answer["measured"] = {name: held for name in HELD_OUT_MEASURES if (held := _held_out(record, name))}
        answer["forecast"] = forecast_bytes(record) or None
        answer["best"] = _best(best(measures(record)))
        happened = (record.steps, record.evaluations, record.checkpoints, record.corrections, record.pauses)
        answer["version"] = ".".join(str(len(events)) for events in happened)
        return answer

    def _follow(self, steps: Sequence[Step]) -> None:
        """Appends the record's new steps; starts again where it dropped some."""
        known = len(self._steps)
        if known > len(steps) or (known and steps[known - 1] != self._last):
            self._clear()
            self._generation += 1
            known = 0
        added = steps[known:]
        for card in range(max((len(step.cards) for step in added), default=0)):
            for metric in OF_CARDS:
                self._values.setdefault(f"{metric}.{card}", array("d", (math.nan,)) * known)
        self._steps.extend([step.step for step in added])
        for name, column in self._values.items():
            column.extend(_known([value_of(step, name) for step in added]))
        self._last = steps[-1] if steps else None

    def _buckets(self, window: Window) -> dict[str, Any]:
        """Bucket positions, raw columns and, where ``level`` is above 0, smoothed ones."""
        level = min(LEVELS, key=lambda known: abs(known - window.level))
        newest = self._steps[-1] if self._steps else 0
        first, last = max(window.first, 0), window.last or newest
        width = 1  # steps a bucket: the smallest power of two that needs no more than BUCKETS buckets
        while -(-(last - first + 1) // width) >= BUCKETS:
            width *= 2
        shape = f"{self._generation}.{width}.{level}.{window.first}.{window.last}"
        fresh = window.shape != shape
        begin = first if fresh else max(first, window.since // width * width)
        low, high = bisect_left(self._steps, begin), bisect_right(self._steps, last)
        edges: list[int] = []  # where a new bucket begins among these steps
        if high > low:
            buckets = np.frombuffer(self._steps[low:high], dtype=np.int64) // width
            edges = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist()]
        ends = [*edges[1:], high - low] if edges else []
        means = self._means.setdefault(level, {}) if level else {}
        noisy = [name for name in self._values if name.partition(".")[0] not in EXACT] if level else []
        for name in noisy:
            mean = means.setdefault(name, _Mean())
            mean.extend(self._values[name][len(mean.column) :], level)  # goes on from the last call
        return {
            "shape": shape,
            "fresh": fresh,
            "width": width,
            "first": first,
            "begin": begin,
            "until": last,
            "since": newest,
            "last": {name: _rounded(column[-1]) for name, column in self._values.items() if column},
            "steps": [(self._steps[low + a] + self._steps[low + b - 1]) / 2 for a, b in zip(edges, ends, strict=True)],
            "raw": _thin(self._values, low, high, edges),
            "smooth": _thin({name: mean.column for name, mean in means.items()}, low, high, edges),
        }


def _held_out(record: RunRecord, name: str) -> list[list[Any]]:
    """The held-out readings of a measure, by step."""
    known = ((item.step, _rounded(getattr(item, name))) for item in record.evaluations[-BUCKETS:])
    return [[step, value] for step, value in known if value is not None]


def _best(first: Measure | None) -> list[Any] | None:
    """Step and value of the best measure, and the line of a chart that it stands on."""
    if first is None:
        return None
    name, value = first.told
    return [first.step, _rounded(value), "evaluation" if first.own is None else f"held_out_{name}"]


points_of: Callable[[Path], RunPoints] = lru_cache(maxsize=6)(lambda _: RunPoints())
"""The columns of the runs shown last, by folder."""


def forecast_bytes(record: RunRecord) -> int:
    """The planned memory, comparable with what the run measures; 0 where unknown."""
    last, plan = (record.steps[-1] if record.steps else None), record.plan
    if plan is None:
        return 0
    if last is not None and last.reserved_bytes is not None and plan.predicted:
        return plan.predicted.predicted_bytes  # tensors against tensors
    return plan.estimated_bytes


def _known(values: list[float | None]) -> array[float]:
    """A column's new values; None and infinities become NaN."""
    if values.count(None) == len(values):
        return array("d", (math.nan,)) * len(values)
    column = np.array(values, dtype=np.float64)  # None becomes NaN
    column[~np.isfinite(column)] = math.nan
    return array("d", column.tobytes())


def _thin(columns: dict[str, array[float]], low: int, high: int, edges: list[int]) -> dict[str, Any]:
    """Lowest and highest value a bucket; a column without a known value is left out."""
    thinned = {}
    for name, column in columns.items():
        values = np.frombuffer(column[low:high], dtype=np.float64) if high > low else np.empty(0)
        if edges and not np.isnan(values).all():
            lows, highs = np.fmin.reduceat(values, edges), np.fmax.reduceat(values, edges)
            alike = np.array_equal(lows, highs, equal_nan=True)
            low_end, high_end = ([_rounded(value) for value in ends.tolist()] for ends in (lows, highs))
            thinned[name] = {"low": low_end, "high": None if alike else high_end}
    return thinned


def _rounded(value: float | None) -> float | None:
    """To six significant digits, a third of the bytes."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
