"""Which rows are held out, by the number of rows, the choice, the seed and the groups of rows that belong together.

Rows that say nearly the same (``core.data.doctor.split_groups``) stay on one side, so that nothing held out was trained
on in other words.
"""

import random
from collections.abc import Iterable, Sequence

from core.contract.config import DataChoice

FEW = 5
"""Below this many rows none is held out."""
_SHARE = 10
"""A group larger than this part of what is held out would dominate it: it is trained on, if others are left."""

Groups = Sequence[Sequence[int]]


def held_out_rows(n_rows: int, choice: DataChoice) -> int:
    """How many rows are held out: ``eval_fraction`` of them, between one and ``eval_rows_max``; none where that is 0,
    or of fewer than ``FEW``."""
    if n_rows < FEW or choice.eval_fraction == 0:
        return 0
    return min(max(1, round(n_rows * choice.eval_fraction)), choice.eval_rows_max)


def split_rows(n_rows: int, choice: DataChoice, seed: int, groups: Groups = ()) -> tuple[list[int], list[int]]:
    """Indices of training and held-out rows, both ascending, together every row exactly once.

    ``groups`` are indices of rows that stay on one side, each index in one group at most. Fewer than ``held_out_rows``
    are held out where only larger groups are left; where no group is small enough, groups are ignored.
    """
    held = held_out_rows(n_rows, choice)
    if not held:
        return list(range(n_rows)), []
    dice = random.Random(f"split:{seed}")  # noqa: S311 - no secret
    drawn = dice.sample(range(n_rows), held)
    held_out = set(drawn)
    if groups:
        rest = [row for row in range(n_rows) if row not in held_out]
        dice.shuffle(rest)
        held_out = _whole_groups([*drawn, *rest], held, groups) or held_out
    return [row for row in range(n_rows) if row not in held_out], sorted(held_out)


def places_of(rows: Iterable[int], groups: Groups) -> list[list[int]]:
    """Groups of row numbers as groups of indices into ``rows``, which may lack rows and hold others several times."""
    number_of = {row: number for number, group in enumerate(groups) for row in group}
    places: list[list[int]] = [[] for _ in groups]
    for index, row in enumerate(rows):
        number = number_of.get(row)
        if number is not None:
            places[number].append(index)
    return [group for group in places if len(group) > 1]


def _whole_groups(order: Sequence[int], held: int, groups: Groups) -> set[int]:
    """The first groups of the order that fill ``held`` rows, small groups first. A group stands where its first member
    does; a row of no group is a group of one."""
    group_of = {row: group for group in groups for row in group}
    taken: set[int] = set()
    for largest in (max(2, held // _SHARE), held):
        for row in order:
            group = group_of.get(row, (row,))
            if len(group) <= min(largest, held - len(taken)) and row not in taken:
                taken.update(group)
                if len(taken) == held:
                    return taken
    return taken
