"""Findings on pairs, marks and labels: pairs that contradict each other, marks of nearly one kind, spellings of one
label, and labels that few rows have."""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Mapping, Sequence
from typing import Literal

from core.contract.data import Example, Finding
from core.data.doctor.findings.wording import finding, how_many, share
from core.data.read.labels import number_of
from core.machine.textfile import one_line

FEW_ROWS = 10
"""A label of fewer rows is rare."""
_MOST_LABELS = 5_000
_ONE_SIDED = 0.9
_NAMED = 6


class LabelRows:
    """The rows of each label, while they are at most 5,000 different ones; numbers are no labels."""

    def __init__(self) -> None:
        self._rows: dict[str, array[int]] = {}
        self._many = False

    def add(self, example: Example) -> None:
        """Takes the labels of a row."""
        for label in () if self._many else example.labels:
            self._rows.setdefault(label, array("Q")).append(example.row)
        self._many = self._many or len(self._rows) > _MOST_LABELS

    def rows(self) -> dict[str, array[int]]:
        """Labels to row numbers; empty for columns of numbers or of very many labels."""
        if self._many:
            return {}
        numbers = [number_of(label) for label in self._rows]
        measured = None not in numbers and any(number is not None and not number.is_integer() for number in numbers)
        return {} if measured else self._rows


def swapped_finding(groups: Sequence[Sequence[int]]) -> Finding | None:
    """Pairs that stand elsewhere the other way round; ``groups`` hold row numbers."""
    if not groups:
        return None
    rows = sorted(row for group in groups for row in group)
    text = (
        f"{how_many(len(rows), 'pair stands', 'pairs stand')} twice, once the other way round: the same prompt and "
        "the same two answers, with better and worse exchanged. What one teaches the other takes back; correct one of "
        "them by hand."
    )
    return finding("swapped_pairs", "warning", text, rows, groups)


def marks_finding(good: int, bad: int) -> Finding | None:
    """Marks of nearly one kind."""
    whole = good + bad
    if not good or not bad or max(good, bad) <= _ONE_SIDED * whole:
        return None
    usual, rare = ("good", "bad") if good > bad else ("bad", "good")
    text = (
        f"{share(max(good, bad), whole)} of the answers are marked {usual}, {how_many(min(good, bad), 'row')} {rare}: "
        "where the weights of the two kinds do not make up for it, the many decide alone."
    )
    return finding("one_sided_marks", "note", text, range(0)).model_copy(update={"count": min(good, bad)})


def label_findings(rows_of: Mapping[str, Sequence[int]]) -> list[Finding]:
    """Labels of several spellings, and labels that few rows have."""
    found = []
    if groups := spellings({label: len(rows) for label, rows in rows_of.items()}):
        rarer = sorted({row for group in groups for label in group[1:] for row in rows_of[label]})
        named = "; ".join(" and ".join(_counted(label, rows_of) for label in group) for group in groups[:_NAMED])
        text = (
            f"{how_many(len(groups), 'label is', 'labels are')} written in ways that differ only in case or blanks: "
            f"{named}. Each spelling would be a label of its own."
        )
        how = f"Write {how_many(len(rarer), 'row')} like the others"
        found.append(finding("label_spellings", "warning", text, rarer, fix=("one_spelling", how)))
    few = {label: rows for label, rows in rows_of.items() if len(rows) < FEW_ROWS}
    if not few:
        return found
    rows = sorted({row for rows in few.values() for row in rows})
    named = ", ".join(_counted(label, rows_of) for label in sorted(few, key=lambda label: len(few[label]))[:_NAMED])
    more = f" and {len(few) - _NAMED:,} more" if len(few) > _NAMED else ""
    text = (
        f"{how_many(len(few), 'label has', 'labels have')} fewer than {FEW_ROWS} rows: {named}{more}. That few are "
        "hardly learned, and their share of the held-out rows measures nothing."
    )
    once = sum(len(rows) == 1 for rows in few.values())
    fix: tuple[Literal["drop_rows", ""], str] = ("", "")
    if once:
        fix = ("drop_rows", f"Leave out {how_many(once, 'row')} whose label is seen once")
    found.append(finding("rare_labels", "warning" if once else "note", text, rows, fix=fix))
    return found


def spellings(counts: Mapping[str, int]) -> list[list[str]]:
    """Groups of labels that differ only in case or blanks, in each the most frequent spelling first."""
    groups: dict[str, list[str]] = {}
    for label in counts:
        groups.setdefault(unicodedata.normalize("NFC", "".join(label.split())).casefold(), []).append(label)
    ordered = (sorted(group, key=lambda label: (-counts[label], label)) for group in groups.values())
    return [group for group in ordered if len(group) > 1]


def _counted(label: str, rows_of: Mapping[str, Sequence[int]]) -> str:
    shown = label if label == " ".join(label.split()) else label.replace(" ", "␣")
    return f"“{one_line(shown, 40)}” ({len(rows_of[label]):,})"
