"""Rows, tokens and steps: what the data means for the length of a run.

Row lengths are sorted once; what a length limit does to them is then a look-up. With lengths s_1 ≤ … ≤ s_n and their
running sums P_p, a limit L is a bisection::

    Σ min(s, L)^p  =  P_p[c] + (n - c) L^p        c: how many are at most L;  p = 1, 2, 3
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, compress
from operator import add, mul
from statistics import NormalDist

from core.contract.config import DataChoice, RunConfig
from core.contract.data import DataFacts
from core.data.deal.packing import epoch_batches
from core.data.deal.split import held_out_rows, split_rows

DEALT_ROWS = 5000
"""Up to this many rows, all epochs together, the fullest step is looked up; beyond, estimated."""
GRID = 64
"""Points of the sorted lengths at which the longest row of a batch is looked up."""
MANY = 2**40
"""Tokens that no row has."""
SURE = 0.025
"""The chance that a run has a step with more tokens than its estimated fullest."""


class Lengths:
    """The uncut lengths of a data set: ``given`` in its order, and ``sorted``. Methods take the limit at which rows are
    cut."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.given, self.sorted = lengths, sorted(lengths)
        squares = list(map(mul, self.sorted, self.sorted))
        self._sums: tuple[list[int], ...] = tuple(
            [0, *accumulate(part)] for part in (self.sorted, squares, map(mul, squares, self.sorted))
        )

    def __len__(self) -> int:
        return len(self.sorted)

    def longest(self, limit: int) -> int:
        """Tokens of the longest row."""
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

            n μ + σ √n (z + (z² - 1) γ / 6)        γ = skewness / √n;  z: all steps below it, but for ``SURE``

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
        """Padding tokens of an epoch where batches of so many random rows are filled up to their longest.

        The longest of b rows lies at the quantile u^(1/b) of the lengths, for u even over (0, 1).
        """
        if batch < 2:
            return 0
        places = (int(((point + 0.5) / GRID) ** (1 / batch) * len(self)) for point in range(GRID))
        longest = sum(min(self.sorted[min(place, len(self) - 1)], limit) for place in places) / GRID
        return max(0, round(longest * len(self)) - self.tokens(limit))


@dataclass(frozen=True)
class RowTable:
    """The lengths of a data set's rows. ``learned`` are without rows that have nothing trained within the limit at
    which they were counted. ``others``: of preferences the shorter side's; None where not measured."""

    whole: Lengths
    learned: Lengths
    others: Lengths | None
    learned_others: Lengths | None
    trained: int


@lru_cache(maxsize=8)
def table_of(facts: DataFacts) -> RowTable:
    """The rows, sorted once for all limits; cached."""
    whole, others = Lengths(facts.lengths), Lengths(facts.others) if facts.others else None
    learned, learned_others = whole, others
    if 0 in facts.trained and any(facts.trained):
        learned = Lengths(tuple(compress(facts.lengths, facts.trained)))
        learned_others = Lengths(tuple(compress(facts.others, facts.trained))) if facts.others else None
    return RowTable(whole, learned, others, learned_others, sum(facts.trained))


def learned_lengths(facts: DataFacts, limit: int) -> Sequence[int]:
    """Lengths of the rows that a run takes: all of them where trained tokens were not counted under this limit."""
    return table_of(facts).learned.given if limit == facts.max_length else facts.lengths


@dataclass(frozen=True)
class Rows:
    """An epoch of the data under a length limit. Without facts every row counts as full, and ``known`` is False.

    In tokens: ``fullest`` of the step that has most, ``lost`` beyond the limit, ``packed`` what packed rows compute,
    ``padding`` what more if batches are filled up to their longest row, pairs' prompts read twice among it.
    """

    train: int
    longest: int
    tokens_per_epoch: int
    trained_per_epoch: int
    cut: int
    known: bool
    fullest: int = 0
    lost: int = 0
    packed: int = 0
    padding: int = 0
    sides: int = 1
    """Sequences of a row, two of a pair."""
    most: int = 0
    """Tokens of the row that has most, all its sides."""
    labels: int = 0
    """Different labels; 0 where rows have none."""
    square: float = 0.0
    """Mean of the squared lengths of sequences: attention's work goes by it."""
    shared: int = 1
    """How many cards share each step, a row whole on one of them."""
    unlike: bool = False
    """Whether these are unlike: one may have nearly all of a step."""
    spared: float = 0.0
    """The part of it that attention does not compute: of prompts that are read once for two answers."""

    @property
    def even(self) -> bool:
        """Whether all sequences are equally long; unknown ones count as full."""
        return not self.known or self.square == self.longest**2

    def of_step(self, rows: int) -> int:
        """Of a step's rows those that the fullest card computes."""
        return rows if self.unlike else math.ceil(rows / self.shared)

    @property
    def mean(self) -> float:
        """Tokens of a sequence that is trained on."""
        return self.tokens_per_epoch / (self.train * self.sides) if self.train else float(self.longest)

    @property
    def seen(self) -> float:
        """Mean length of the sequence that a token is in, which attention's work a token follows; a token counts more
        where it sees a prompt that was read before."""
        known = self.known and self.square and self.mean
        return (self.square - self.spared) / self.mean if known else float(self.longest)


def train_rows(config: RunConfig, facts: DataFacts) -> int:
    """The rows that a run takes, without those held out."""
    learned = learned_rows(config, facts)
    return learned - held_out_rows(learned, config.data)


def learned_rows(config: RunConfig, facts: DataFacts) -> int:
    """Usable rows, without those that have nothing trained within the limit."""
    if not facts.lengths:
        return facts.rows
    return round(facts.rows * len(learned_lengths(facts, config.train.max_length)) / len(facts.lengths))


def steps_per_epoch(config: RunConfig, train_rows: int) -> int:
    """Optimiser steps that see every row once; the last, smaller one counts."""
    return math.ceil(train_rows / config.rows_per_step)


def total_steps(config: RunConfig, train_rows: int) -> int:
    """Optimiser steps of a run: optimizer batches an epoch times epochs, rounded up. ``max_steps`` ends it earlier."""
    steps = math.ceil(steps_per_epoch(config, train_rows) * config.train.num_train_epochs - 1e-9)
    return min(steps, config.train.max_steps) if config.train.max_steps else steps


def rows_of(config: RunConfig, facts: DataFacts | None) -> Rows:
    """The data's numbers for this config."""
    limit, sides = config.train.max_length, config.learning.answers
    if facts is None or not facts.lengths:
        full = sides * limit
        return Rows(
            train=0, longest=limit, tokens_per_epoch=0, trained_per_epoch=0, cut=0, known=False, sides=sides, most=full,
            fullest=full * config.rows_per_step,
        )  # fmt: skip
    table = table_of(facts)
    lengths = table.learned if limit == facts.max_length else table.whole
    train = train_rows(config, facts)
    scale = train / len(lengths)
    computed, most = computed_lengths(config, facts)
    parts = _sides(facts, limit) if sides > 1 else (lengths,)
    packed = (_pairs(facts, limit, packed=True) if sides > 1 else computed).tokens(most)
    trained: float = table.trained
    if limit != facts.max_length:  # by the share of the tokens: nearly right, until they are counted again
        trained *= lengths.tokens(limit) / max(1, table.whole.tokens(facts.max_length))
    batch = min(config.train.per_device_train_batch_size, max(1, train))
    return Rows(
        train=train,
        longest=lengths.longest(limit),
        tokens_per_epoch=round(computed.tokens(most) * scale),
        sides=sides,
        most=computed.longest(most),
        trained_per_epoch=round(trained * scale),
        cut=round(table.whole.cut(limit) * facts.rows / len(table.whole)),
        known=True,
        fullest=_fullest(config, facts, computed, most),
        lost=round(lengths.lost(limit) * scale),
        packed=round(packed * scale),
        padding=round((sides * (lengths.tokens(limit) + lengths.padding(batch, limit)) - packed) * scale),
        labels=facts.labels,
        square=sum(part.tokens(limit, 2) for part in parts) / (len(lengths) * sides),
        spared=_spared(facts, limit) / sides if sides > 1 and config.train.packing else 0.0,
    )


def computed_lengths(config: RunConfig, facts: DataFacts) -> tuple[Lengths, int]:
    """What is computed of each row that a run takes, in tokens without padding, and the limit at which these are cut:
    of a pair its sides together, a prompt that is read once for both counted once."""
    limit = config.train.max_length
    if config.learning.answers > 1:
        return _pairs(facts, limit, config.train.packing), MANY
    table = table_of(facts)
    return (table.learned if limit == facts.max_length else table.whole), limit


@lru_cache(maxsize=16)
def _pairs(facts: DataFacts, limit: int, packed: bool) -> Lengths:
    def cut(lengths: Sequence[int]) -> list[int]:
        return [length if length < limit else limit for length in lengths]

    one, other = _sides(facts, limit)
    both = map(add, cut(one.given), cut(other.given))
    if not packed:
        return Lengths(list(both))
    prompts = cut(_prompts(facts, len(one)).given)
    return Lengths([sides - prompt + 1 for sides, prompt in zip(both, prompts, strict=True)])


def _spared(facts: DataFacts, limit: int) -> float:
    """The mean of the squared tokens that a pair's answers share: all of the prompt but its last one."""
    rows = len(_sides(facts, limit)[0])
    prompts = _prompts(facts, rows)
    return (prompts.tokens(limit, 2) - 2 * prompts.tokens(limit) + rows) / rows


@lru_cache(maxsize=8)
def _prompts(facts: DataFacts, rows: int) -> Lengths:
    """Tokens of each pair's prompt, of all pairs or of the ``rows`` that have something trained. What of both sides
    within the limit of counting is not trained are two prompts."""
    counted, others = facts.max_length, facts.others or facts.lengths
    prompts = [
        max(1, min(one, other, (min(one, counted) + min(other, counted) - trained) // 2)) if trained else 1
        for one, other, trained in zip(facts.lengths, others, facts.trained, strict=True)
    ]
    return Lengths(prompts if rows == len(prompts) else list(compress(prompts, facts.trained)))


def _sides(facts: DataFacts, limit: int) -> tuple[Lengths, Lengths]:
    """Both sides of the pairs that a run takes."""
    table = table_of(facts)
    if limit == facts.max_length:
        return table.learned, table.learned_others or table.learned
    return table.whole, table.others or table.whole


def dealt_steps(config: RunConfig, facts: DataFacts, most_rows: int) -> tuple[tuple[int, ...], ...]:
    """The rows of each step as the run will deal them, whose order follows from the seed; about ``most_rows`` of them.

    They are places among the rows that the run takes. Where nobody has looked for rows that stay on one side of the
    split (``facts.split_groups``) none do here, and the run may deal others.
    """
    rows, data = len(learned_lengths(facts, config.train.max_length)), config.data
    groups = facts.split_groups if facts.split_groups and rows == len(facts.lengths) else ()
    train = _trained_on(rows, data.eval_fraction, data.eval_rows_max, groups, config.train.seed)
    steps = min(total_steps(config, len(train)), max(1, most_rows // config.rows_per_step))
    return _dealt(train, config.train.seed, config.rows_per_step, steps)


@lru_cache(maxsize=4)
def _trained_on(
    rows: int, eval_fraction: float, eval_rows_max: int, groups: tuple[tuple[int, ...], ...], seed: int
) -> tuple[int, ...]:
    choice = DataChoice(eval_fraction=eval_fraction, eval_rows_max=eval_rows_max)
    return tuple(split_rows(rows, choice, seed, groups)[0])


@lru_cache(maxsize=4)
def _dealt(train: tuple[int, ...], seed: int, rows_per_step: int, steps: int) -> tuple[tuple[int, ...], ...]:
    batches: list[tuple[int, ...]] = []
    epoch = 0
    while train and len(batches) < steps:
        dealt = epoch_batches(len(train), rows_per_step, epoch, seed)[: steps - len(batches)]
        batches += [tuple(train[place] for place in batch) for batch in dealt]
        epoch += 1
    return tuple(batches)


def _fullest(config: RunConfig, facts: DataFacts, computed: Lengths, most: int) -> int:
    """Tokens of the step that has most, of ``computed_lengths``. It is looked up where all is certain: every row's
    length, which of them are taken at this limit, and which are held out of those; else reckoned."""
    train, rows = train_rows(config, facts), len(computed)
    steps = total_steps(config, train)
    whole = not facts.sampled and facts.rows == len(facts.lengths) and facts.max_length == config.train.max_length
    split = not held_out_rows(rows, config.data) or (facts.split_groups is not None and rows == len(facts.lengths))
    if whole and split and max(rows, steps * config.rows_per_step) <= DEALT_ROWS:
        dealt = dealt_steps(config, facts, 2 * DEALT_ROWS)  # a few more where groups left fewer to hold out
        return max(sum(min(computed.given[row], most) for row in step) for step in dealt)
    return computed.fullest(min(config.rows_per_step, max(1, train)), steps, most)
