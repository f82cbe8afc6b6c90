"""Intervals, each by a formula that is named: what a few rows can tell, and what they cannot. Numpy alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from core.report.schema import Change, Figure

DRAWS = 2_000
LEAST = 5
"""Fewer rows get no interval: a bootstrap of four repeats the same few means."""
BOOTSTRAP = (
    f"95% intervals: bootstrap over rows (Efron 1979), {DRAWS:,} draws, percentiles 2.5 and 97.5, further out for few "
    "rows (Hesterberg 2015); of shares: exact (Clopper and Pearson 1934)."
)
_BLOCK = 1 << 22
Numbers = numpy.ndarray[Any, Any]


@dataclass(frozen=True)
class Compared:
    """Means before and after, and their difference with the interval of the same rows."""

    before: Figure
    after: Figure
    difference: Figure

    @property
    def change(self) -> Change:
        return change_of(self.difference)


def mean(sums: Sequence[float], weights: Sequence[float], seed: int = 0) -> Figure:
    """Σ sums / Σ weights of rows, with its interval: of losses summed over each row's tokens the mean a token."""
    return _figures(numpy.asarray([sums], dtype=float), numpy.asarray(weights, dtype=float), seed)[0]


def compared(before: Sequence[float], after: Sequence[float], weights: Sequence[float]) -> Compared:
    """Both means and their difference, over the same draws of rows."""
    one, other = numpy.asarray(before, dtype=float), numpy.asarray(after, dtype=float)
    return Compared(*_figures(numpy.stack([one, other, other - one]), numpy.asarray(weights, dtype=float)))


def apart(one: Figure, other: Figure) -> Figure:
    """``one`` less ``other`` of two independent samples: their half widths are added as squares."""
    value = one.value - other.value
    if None in (one.low, one.high, other.low, other.high):
        return Figure(value=value, of=one.of + other.of)
    half = [((figure.high or 0.0) - (figure.low or 0.0)) / 2 for figure in (one, other)]
    width = math.hypot(*half)
    return Figure(value=value, low=value - width, high=value + width, of=one.of + other.of)


def change_of(difference: Figure) -> Change:
    """What a difference of losses says: nothing where 0 is in its interval, or where it has none."""
    if difference.low is None or difference.high is None or difference.low <= 0 <= difference.high:
        return "same"
    return "better" if difference.value < 0 else "worse"


def share(count: int, of: int) -> Figure:
    """A share of rows with its exact interval: the shares under which ``count`` or fewer, or more, have 2.5%."""
    if of == 0:
        return Figure(value=0.0)

    def at_most(successes: int, probability: float) -> float:
        """P(X <= successes) of ``of`` tries."""
        if probability in (0.0, 1.0):
            return 1.0 if probability == 0.0 or successes >= of else 0.0
        places = numpy.arange(successes + 1)
        logs = chosen[: successes + 1] + places * math.log(probability) + (of - places) * math.log1p(-probability)
        return float(numpy.exp(logs).sum())

    steps = numpy.concatenate([[0.0], numpy.cumsum(numpy.log(numpy.arange(1, of + 1)))])
    chosen = steps[of] - steps - steps[::-1]  # log of n over k
    low = 0.0 if count == 0 else _root(lambda p: at_most(count - 1, p) - 0.975)
    high = 1.0 if count == of else _root(lambda p: at_most(count, p) - 0.025)
    return Figure(value=count / of, low=low, high=high, of=of)


def _root(falling: Any) -> float:
    """Where a falling function of a share is 0, by halving."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2


def _tail(rows: int) -> float:
    """The share of draws beyond each end: Φ(−√(n/(n−1)) t₀.₉₇₅), with the t of n − 1 degrees of freedom as its series
    has it (Abramowitz and Stegun 26.7.5). Plain percentiles of five rows would hold 84% in place of 95%."""
    z, free = 1.959964, rows - 1
    series = (z, (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    reach = math.sqrt(rows / free) * sum(term / free**power for power, term in enumerate(series))
    return math.erfc(reach / math.sqrt(2)) / 2


def _figures(sums: Numbers, weights: Numbers, seed: int = 0) -> list[Figure]:
    """Of each line of ``sums`` ``[lines, rows]`` its total over that of ``weights`` ``[rows]``, with intervals."""
    rows, total = len(weights), float(weights.sum())
    values = sums.sum(1) / total if total else numpy.zeros(len(sums))
    if rows < LEAST or not total:
        return [Figure(value=float(value), of=rows) for value in values]
    dice, drawn = numpy.random.default_rng(seed), []
    for first in range(0, DRAWS, block := max(1, _BLOCK // rows)):
        chosen = dice.integers(0, rows, (min(block, DRAWS - first), rows))
        drawn.append(sums[:, chosen].sum(2) / weights[chosen].sum(1))
    tail = 100 * _tail(rows)
    low, high = numpy.percentile(numpy.concatenate(drawn, axis=1), [tail, 100 - tail], axis=1)
    return [
        Figure(value=float(value), low=float(least), high=float(most), of=rows)
        for value, least, most in zip(values, low, high, strict=True)
    ]
