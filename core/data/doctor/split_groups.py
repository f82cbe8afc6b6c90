"""Which rows belong together, gathered from one pass: repeated, alike, one going on where another ends, or asking one
question."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

from core.contract.data import Example
from core.data.doctor.findings.repeats import Repeats
from core.data.doctor.findings.words import WordNumbers
from core.data.doctor.minhash import MinHashSketches
from core.data.doctor.union_find import UnionFind

__all__ = ["SplitGroups"]


class SplitGroups:
    """Takes rows in their order and counts them from 0; ``steps`` then compares them."""

    def __init__(self, folder: Path | None = None) -> None:
        self.rows = array("Q")
        self.repeats = Repeats()
        self._sketches = MinHashSketches(folder)
        self._sketched = array("Q")
        self._numbers = WordNumbers()
        self.alike: list[list[int]] = []

    def add(self, example: Example, words: list[str]) -> None:
        """One row and its words."""
        place = len(self.rows)
        self.rows.append(example.row)
        if self.repeats.add(example):
            self._sketched.append(place)
            self._sketches.add(list(map(self._numbers.__getitem__, words)))

    def steps(self) -> Iterator[float]:
        """Compares; yields the share that is done."""
        if not self._sketched:
            return
        yield from self._sketches.steps()
        self.alike = [[self._sketched[place] for place in group] for group in self._sketches.groups()]

    def groups(self) -> list[list[int]]:
        """Places of rows that must stay on one side of a split."""
        together = UnionFind(len(self.rows))
        together.join_all(self.repeats.exact())
        together.join_all(self.alike)
        together.join_all(self.repeats.openings())
        together.join_all(self.repeats.questions())
        return together.groups()

    def numbered(self, groups: Iterable[Iterable[int]]) -> list[list[int]]:
        """Groups of places as groups of row numbers."""
        return [[self.rows[place] for place in group] for group in groups]
