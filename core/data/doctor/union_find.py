"""Rows that belong together, directly or through others (union-find with path halving: Tarjan 1975)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

__all__ = ["UnionFind"]


class UnionFind:
    """``size`` rows, at first each alone."""

    def __init__(self, size: int) -> None:
        self._above = array("q", range(size))

    def join(self, one: int, other: int) -> None:
        """Puts two rows and all that belong to them together."""
        first, second = self._root(one), self._root(other)
        self._above[max(first, second)] = min(first, second)

    def join_all(self, groups: Iterable[Iterable[int]]) -> None:
        """Puts each group's rows together."""
        for group in groups:
            first, *rest = group
            for row in rest:
                self.join(first, row)

    def same(self, one: int, other: int) -> bool:
        """Whether two rows belong together."""
        return self._root(one) == self._root(other)

    def groups(self) -> list[list[int]]:
        """All groups of two rows and more, members ascending, in the order of their first rows."""
        members: dict[int, list[int]] = {}
        for row in range(len(self._above)):
            root = self._root(row)
            if root != row:
                members.setdefault(root, [root]).append(row)
        return [members[root] for root in sorted(members)]

    def _root(self, row: int) -> int:
        above = self._above
        while above[row] != row:
            above[row] = above[above[row]]
            row = above[row]
        return row
