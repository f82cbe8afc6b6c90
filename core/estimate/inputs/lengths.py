"""Row lengths, sorted once: what a length limit does to them is then a look-up.

With lengths s_1 ≤ … ≤ s_n and their running sums, everything below a limit L is found by bisection::

    Σ min(s, L)^p  =  P_p[c] + (n - c) L^p        c: how many are at most L;  p = 1, 2, 3

so a slider over L is followed in microseconds, for any number of rows. Built once for a data set (a few milliseconds
for 20,000 rows) and remembered.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, compress
from operator import mul
from statistics import NormalDist

from core.contract.data import DataFacts

GRID = 64
"""Points of the sorted lengths at which the longest row of a batch is looked up."""
SURE = 0.025
"""How likely a run may have a step with more tokens than its fullest is taken to have. Such a step is cut in two where
tokens a pass are limited to that."""


class Lengths:
    """The lengths of a data set, uncut: ``given`` in its order, and ``sorted``. Every method takes the limit at which
    rows are cut."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.given, self.sorted = lengths, sorted(lengths)
        squares = list(map(mul, self.sorted, self.sorted))
        self._sums: tuple[list[int], ...] = tuple(
            [0, *accumulate(part)] for part in (self.sorted, squares, map(mul, squares, self.sorted))
        )

    def __len__(self) -> int:
        return len(self.sorted)

    def longest(self, limit: int) -> int:
        """The longest row."""
        return min(self.sorted[-1], limit)

    def cut(self, limit: int) -> int:
        """Rows that are longer than the limit."""
        return len(self) - bisect_right(self.sorted, limit)

    def tokens(self, limit: int, power: int = 1) -> int:
        """Tokens of all rows, each raised to ``power``."""
        short = bisect_right(self.sorted, limit)
        return self._sums[power - 1][short] + (len(self) - short) * int(limit**power)

    def lost(self, limit: int) -> int:
        """Tokens beyond the limit."""
        return self._sums[0][-1] - self.tokens(limit)

    def top(self, rows: int, limit: int) -> int:
        """Tokens of the longest ``rows`` rows together."""
        rest = max(0, len(self) - rows)
        short = max(rest, bisect_right(self.sorted, limit))
        return self._sums[0][short] - self._sums[0][rest] + (len(self) - short) * limit

    def fullest(self, rows: int, steps: int, limit: int) -> int:
        """Tokens that the fullest of so many steps will have, each of ``rows`` rows drawn at random.

        The sum of n rows is nearly normal; its upper quantile with the correction for skewness of Cornish and Fisher
        (1938)::

            n μ + σ √n (z + (z² - 1) γ / 6)        γ = skewness / √n;  z: no step of all above it, but with ``SURE``

        and never more than the longest rows together.
        """
        most = self.top(rows, limit)
        mean = self.tokens(limit) / len(self)
        variance = self.tokens(limit, 2) / len(self) - mean * mean
        if variance <= 1e-9 * mean * mean:
            return min(most, round(rows * mean))
        third = self.tokens(limit, 3) / len(self) - 3 * mean * variance - mean**3
        z = NormalDist().inv_cdf(1 - SURE / max(1, steps))
        skewness = third / (variance * math.sqrt(variance * rows))
        corrected = z + (z * z - 1) * skewness / 6
        above = math.sqrt(variance * rows) * max(z, corrected)
        return min(most, math.ceil(rows * mean + above))

    def padding(self, batch: int, limit: int) -> int:
        """Tokens of padding that an epoch has where batches of so many random rows are filled up to their longest.

        The longest of b rows lies at the quantile u^(1/b) of the lengths, for u even over (0, 1).
        """
        if batch < 2:
            return 0
        places = (int(((point + 0.5) / GRID) ** (1 / batch) * len(self)) for point in range(GRID))
        longest = sum(min(self.sorted[min(place, len(self) - 1)], limit) for place in places) / GRID
        return max(0, round(longest * len(self)) - self.tokens(limit))


@dataclass(frozen=True)
class RowTable:
    """The lengths of a data set's rows. ``learned`` are those that a run takes under the limit at which they were
    counted: it leaves out rows with nothing trained within its limit. ``others``: of preferences the shorter side's
    lengths, of the same rows; None where nobody has measured them."""

    whole: Lengths
    learned: Lengths
    others: Lengths | None
    learned_others: Lengths | None
    trained: int


@lru_cache(maxsize=8)
def table_of(facts: DataFacts) -> RowTable:
    """The rows, sorted once for all limits: what takes milliseconds is found again by the facts."""
    whole, others = Lengths(facts.lengths), Lengths(facts.others) if facts.others else None
    learned, learned_others = whole, others
    if 0 in facts.trained and any(facts.trained):
        learned = Lengths(tuple(compress(facts.lengths, facts.trained)))
        learned_others = Lengths(tuple(compress(facts.others, facts.trained))) if facts.others else None
    return RowTable(whole, learned, others, learned_others, sum(facts.trained))


def learned_lengths(facts: DataFacts, limit: int) -> Sequence[int]:
    """Lengths of the rows that a run takes. All of them where trained tokens were not counted under this limit: any may
    have something to train."""
    return table_of(facts).learned.given if limit == facts.max_length else facts.lengths
