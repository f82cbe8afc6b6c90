"""Rows that say nearly the same: MinHash over shingles of three words, in bands.

Broder, "On the resemblance and containment of documents" (1997): for sets A and B of shingles and a random order of all
shingles, P(min A = min B) = |A ∩ B| / |A ∪ B| = J. ``BANDS`` × ``DEPTH`` orders are drawn. Rows are candidates where
all minima of one band agree, with probability 1 − (1 − J^DEPTH)^BANDS: 99.9 % at J = 0.8, 40 % at 0.5, 4 % at 0.3;
candidates are then compared shingle by shingle and kept where J ≥ ``ALIKE``.

* An instruction shared by hundreds of rows makes no copies of them: shingles in more than ``_common`` rows are left
  out, and a row with too few left is compared by all its words.
* Of a row with more than ``SKETCH`` shingles the smallest hashes are kept (Broder's sample); two rows are compared
  below the smaller of their last hashes, where both samples are complete.

Sketches lie in an unnamed temporary file; memory grows by about 90 bytes a row.
"""

import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIKE = 0.8
BANDS, DEPTH = 16, 5
SKETCH = 512
_WIDTH = 3
_OWN = 4
"""A row with fewer shingles that are not common is compared by all its words."""
_BATCH_WORDS = 1 << 17
_COUNTERS = 1 << 22
_MOST_REPRESENTATIVES = 8
_MOST_COMPARED = 8
"""Failed comparisons a row, on average; beyond that, rows are left uncompared."""
_MOST_CACHED = 4096
_END = np.uint64(1 << 32)
_U64 = NDArray[np.uint64]


class MinHash:
    """Takes rows as word numbers and groups those that are alike. Rows are counted from 0 in the order added."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file: Any = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - lives as long as this does
        self._counts = np.zeros(_COUNTERS, np.uint32)
        self._words = array("Q")
        self._sizes: list[int] = []
        self._starts = array("Q", [0])
        self._limits = array("Q")
        self._row_hashes = array("Q")
        self._common = 0
        self._unlike: set[tuple[int, int]] = set()
        self._own_cache: dict[int, NDArray[np.uint32]] = {}

    def __len__(self) -> int:
        return len(self._limits) + len(self._sizes)

    def add(self, numbers: Sequence[int]) -> None:
        """One row, as the numbers of its words."""
        self._words.extend(numbers)
        short = max(0, _WIDTH - len(numbers))
        self._words.extend((0,) * short)
        self._sizes.append(len(numbers) + short)
        if len(self._words) >= _BATCH_WORDS:
            self._flush()

    def steps(self) -> Iterator[float]:
        """Compares the rows, after which ``groups`` is ready; yields the share that is done."""
        self._flush()
        self._file.flush()
        rows = len(self)
        if not rows:
            return
        self._common = max(30, rows // 200)
        self._shingles = np.memmap(self._file, np.uint32, "r") if self._starts[-1] else np.zeros(0, np.uint32)
        self._unions = UnionFind(rows)
        bands = np.zeros((rows, BANDS), np.uint32)
        for start in range(0, rows, 1024):
            stop = min(rows, start + 1024)
            bands[start:stop] = self._banded(start, stop)
            yield 0.5 * stop / rows
        for band in range(BANDS):
            for _ in self._compare(bands[:, band]):
                yield 0.5 + 0.5 * band / BANDS
            yield 0.5 + 0.5 * (band + 1) / BANDS

    def groups(self) -> list[list[int]]:
        """Groups of rows that are alike, directly or through others: ascending, two rows at least."""
        return self._unions.groups()

    def alike(self, one: int, other: int) -> float:
        """The Jaccard index of two rows' shingles without the common ones; with too few of these, 1 or 0."""
        mine, whole = self._own(one), self._own(other)
        if len(mine) < _OWN or len(whole) < _OWN:
            return float(self._row_hashes[one] == self._row_hashes[other])
        limit = min(self._limits[one], self._limits[other])
        mine, whole = mine[: np.searchsorted(mine, limit)], whole[: np.searchsorted(whole, limit)]
        shared = len(np.intersect1d(mine, whole, assume_unique=True))
        return shared / max(1, len(mine) + len(whole) - shared)

    def _flush(self) -> None:
        """Writes the gathered rows as sorted shingle hashes without repeats, at most SKETCH a row."""
        if not self._sizes:
            return
        sizes = np.array(self._sizes, np.int64)
        words = np.frombuffer(self._words, np.uint64)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        self._row_hashes.extend(_row_hashes(words, starts, sizes).tolist())
        hashes = _mixed(words[:-2] + _rotated(words[1:-1], 21) + _rotated(words[2:], 42)) >> np.uint64(32)
        owner = np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes)[:-2]
        within = np.arange(len(words) - 2) - np.repeat(starts, sizes)[:-2] <= np.repeat(sizes, sizes)[:-2] - _WIDTH
        numbered = (owner[within] << np.uint64(32)) | hashes[within]
        numbered.sort()
        numbered = numbered[np.concatenate(([True], numbered[1:] != numbered[:-1]))]
        owner, hashes = (numbered >> np.uint64(32)).astype(np.int64), numbered.astype(np.uint32)
        ends = np.searchsorted(owner, np.arange(len(sizes)), side="right")
        begins = np.concatenate(([0], ends[:-1]))
        kept = np.arange(len(owner)) - begins[owner] < SKETCH
        cut = ends - begins > SKETCH
        last = np.where(cut, hashes[np.minimum(begins + SKETCH, ends) - 1].astype(np.uint64) + np.uint64(1), _END)
        self._limits.extend(last.tolist())
        hashes = hashes[kept]
        self._count(hashes)
        self._file.write(hashes.tobytes())
        self._starts.extend((np.cumsum(np.minimum(ends - begins, SKETCH)) + self._starts[-1]).tolist())
        del words
        self._words, self._sizes = array("Q"), []

    def _count(self, hashes: NDArray[np.uint32]) -> None:
        """Counts the rows of each shingle; two that share a counter both get the sum."""
        counters = np.sort(hashes & np.uint32(_COUNTERS - 1))
        starts = np.flatnonzero(np.concatenate(([True], counters[1:] != counters[:-1])))
        self._counts[counters[starts]] += np.diff(np.append(starts, len(counters))).astype(np.uint32)

    def _own(self, row: int) -> NDArray[np.uint32]:
        own = self._own_cache.get(row)
        if own is None:
            hashes = np.asarray(self._shingles[self._starts[row] : self._starts[row + 1]])
            own = hashes[self._counts[hashes & np.uint32(_COUNTERS - 1)] <= self._common]
            if len(self._own_cache) >= _MOST_CACHED:
                self._own_cache.clear()
            self._own_cache[row] = own
        return own

    def _banded(self, start: int, stop: int) -> NDArray[np.uint32]:
        """The band hashes of rows: uint32 ``[rows, BANDS]``."""
        edges = np.array(self._starts[start : stop + 1], np.int64)
        hashes = np.asarray(self._shingles[edges[0] : edges[-1]])
        own = self._counts[hashes & np.uint32(_COUNTERS - 1)] <= self._common
        owner = np.repeat(np.arange(stop - start), np.diff(edges))
        many = np.bincount(owner[own], minlength=stop - start)
        own &= (many >= _OWN)[owner]
        wholes = np.flatnonzero(many < _OWN)
        values = np.concatenate(
            (hashes[own], np.array(self._row_hashes[start:stop], np.uint64)[wholes].astype(np.uint32))
        )
        owner = np.concatenate((owner[own], wholes))
        order = np.argsort(owner, kind="stable")
        values, owner = values[order].astype(np.uint64), owner[order]
        firsts = np.searchsorted(owner, np.arange(stop - start))
        return _minima(values, firsts)

    def _compare(self, column: NDArray[np.uint32]) -> Iterator[None]:
        """Compares each row with the first few unlike rows of the same value in a band."""
        order = np.argsort(column, kind="stable")
        edges = np.flatnonzero(np.diff(column[order])) + 1
        starts, stops = np.concatenate(([0], edges)), np.concatenate((edges, [len(order)]))
        unions = self._unions
        for place in np.flatnonzero(stops - starts > 1):
            first: list[int] = []
            for row in order[starts[place] : stops[place]].tolist():
                if any(unions.root(row) == unions.root(other) for other in first):
                    continue
                same = next((other for other in first if self._are_alike(row, other)), None)
                if same is not None:
                    unions.join(row, same)
                elif len(first) < _MOST_REPRESENTATIVES:
                    first.append(row)
            yield

    def _are_alike(self, row: int, other: int) -> bool:
        pair = (row, other)
        if pair in self._unlike or len(self._unlike) > max(100_000, _MOST_COMPARED * len(self)):
            return False
        alike = self.alike(row, other) >= ALIKE
        if not alike:
            self._unlike.add(pair)
        return alike


class UnionFind:
    """``size`` rows, each alone until joined (union-find with path halving: Tarjan 1975)."""

    def __init__(self, size: int) -> None:
        self._above = array("q", range(size))

    def root(self, row: int) -> int:
        """The first row of a row's group."""
        above = self._above
        while above[row] != row:
            above[row] = above[above[row]]
            row = above[row]
        return row

    def join(self, one: int, other: int) -> None:
        """Joins the groups of two rows."""
        first, second = self.root(one), self.root(other)
        self._above[max(first, second)] = min(first, second)

    def join_all(self, groups: Iterable[Iterable[int]]) -> None:
        """Joins the rows of each group."""
        for group in groups:
            first, *rest = group
            for row in rest:
                self.join(first, row)

    def groups(self) -> list[list[int]]:
        """All groups of at least two rows, members ascending, in the order of their first rows."""
        members: dict[int, list[int]] = {}
        for row in range(len(self._above)):
            root = self.root(row)
            if root != row:
                members.setdefault(root, [root]).append(row)
        return [members[root] for root in sorted(members)]


def _minima(values: _U64, firsts: NDArray[np.int64]) -> NDArray[np.uint32]:
    """For each row (its values begin at ``firsts``) one number a band, mixed from the band's DEPTH minima."""
    bands = np.zeros((len(firsts), BANDS), np.uint32)
    dice = np.random.Generator(np.random.PCG64(1997))
    factors = dice.integers(1, 1 << 63, (BANDS, DEPTH), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    addends = dice.integers(0, 1 << 63, (BANDS, DEPTH), dtype=np.uint64)
    for band in range(BANDS):
        joined = np.zeros(len(firsts), np.uint64)
        for factor, addend in zip(factors[band], addends[band], strict=True):
            orders = (values * factor + addend) >> np.uint64(32)  # multiply-shift: Dietzfelbinger et al. 1997
            joined = _mixed(joined + np.minimum.reduceat(orders, firsts))
        bands[:, band] = (joined >> np.uint64(32)).astype(np.uint32)
    return bands


def _row_hashes(words: _U64, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> _U64:
    places = np.arange(len(words), dtype=np.uint64) - np.repeat(starts, sizes).astype(np.uint64)
    summed: _U64 = np.add.reduceat(_mixed(words + _rotated(places, 32)), starts)
    return _mixed(summed)


def _rotated(values: _U64, bits: int) -> _U64:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _mixed(values: _U64) -> _U64:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
