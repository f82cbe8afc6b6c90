"""Findings about rows that say nearly the same: as repetition, and across the line to the held-out rows."""

from collections.abc import Sequence

from core.contract.config import DataChoice
from core.contract.findings import Finding
from core.data.deal.split import held_out_rows, split_rows
from core.data.doctor.findings.wording import finding, how_many, share


def near_finding(groups: Sequence[Sequence[int]], rows: int) -> Finding | None:
    """Groups of row numbers that share at least four fifths of their wording."""
    if not groups:
        return None
    members = sorted(row for group in groups for row in group)
    text = (
        f"{how_many(len(members), 'row')} ({share(len(members), rows)}) in {how_many(len(groups), 'group')} say nearly "
        "the same (four fifths of their wording): they weigh more than others, and less is learned than the number of "
        "rows promises."
    )
    return finding("near_duplicates", "warning" if 20 * len(members) > rows else "note", text, members, groups)


def leaks(held_out: Sequence[int], groups: Sequence[Sequence[int]]) -> list[tuple[int, tuple[int, ...]]]:
    """Held-out positions with the positions of their group that are trained on."""
    held = set(held_out)
    found = []
    for group in groups:
        trained = tuple(row for row in group if row not in held)
        found += [(row, trained) for row in group if row in held and trained]
    return sorted(found)


def leak_finding(rows: Sequence[int], groups: Sequence[Sequence[int]], choice: DataChoice, seed: int) -> Finding | None:
    """What the split does with rows that belong together; ``groups`` are positions in ``rows`` (row numbers)."""
    if not groups or not held_out_rows(len(rows), choice):
        return None
    held = split_rows(len(rows), choice, seed, groups)[1]
    if leaking := leaks(held, groups):
        shown = [rows[row] for row, _ in leaking]
        pairs = [[rows[row], *(rows[other] for other in others)] for row, others in leaking]
        text = (
            f"{how_many(len(shown), 'held-out row says', 'held-out rows say')} nearly the same as rows that are "
            "trained on, and no other row is left to hold out: the held-out loss will look better than it is."
        )
        return finding("leakage", "warning", text, shown, pairs)
    singly = leaks(split_rows(len(rows), choice, seed)[1], groups)
    if not singly:
        return None
    shown = sorted({rows[row] for row, _ in singly})
    text = (
        f"{how_many(len(groups), 'group')} of rows that say nearly the same, or ask the same, stay on one side of the "
        f"split. Dealt singly, {how_many(len(shown), 'held-out row')} would have been trained on in other words, and "
        "the held-out loss would look better than it is."
    )
    pairs = [[rows[row], *(rows[other] for other in others)] for row, others in singly]
    return finding("leakage", "note", text, shown, pairs)
