"""Findings in words: counts as people say them, and a Finding cut to what crosses to the window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from core.contract.findings import Finding, Fix

__all__ = ["Remedy", "finding", "how_many", "is_often", "rows_are", "share"]

_ROWS_SHOWN = 500
_GROUPS_SHOWN = 100
_MEMBERS_SHOWN = 50


@dataclass(frozen=True)
class Remedy:
    """A safe fix, and the words on its button."""

    fix: Fix = ""
    text: str = ""


def finding(
    code: str,
    level: Literal["fault", "warning", "note"],
    text: str,
    rows: Sequence[int],
    groups: Iterable[Sequence[int]] = (),
    remedy: Remedy = Remedy(),
) -> Finding:
    """The finding; ``rows`` are all of them, of which the first cross."""
    return Finding(
        code=code,
        level=level,
        count=len(rows),
        text=text,
        rows=tuple(rows[:_ROWS_SHOWN]),
        groups=tuple(tuple(group[:_MEMBERS_SHOWN]) for group in islice(groups, _GROUPS_SHOWN)),
        fix=remedy.fix,
        fix_text=remedy.text,
    )


def how_many(count: int, one: str, many: str = "") -> str:
    """``1 row``, ``1,200 rows``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def rows_are(count: int, one: str = "is", many: str = "are") -> str:
    """``1 row is``, ``1,200 rows are``; or with other verbs."""
    return f"{count:,} {f'row {one}' if count == 1 else f'rows {many}'}"


def share(part: float, whole: float) -> str:
    """``4 %``, ``0.3 %``, ``less than 0.1 %``; no line breaks between number and sign."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.1:
        return "less than 0.1\u00a0%"
    return f"{percent:.1f}\u00a0%" if percent < 3 else f"{percent:.0f}\u00a0%"


def is_often(rows: Sequence[int], whole: int) -> bool:
    """Whether more than a hundredth of the rows (and more than three) is concerned: below, a finding is a note."""
    return len(rows) > max(3, whole // 100)
