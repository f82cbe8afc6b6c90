"""Columns of labels: what a cell holds, whether it joins several, and how often each label stands in a file."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from core.contract.config import RunConfig
from core.contract.data import DataReport, Example, LabelKind, Labels
from core.contract.errors import DataError
from core.contract.tasks import REWARD, Outputs, Problem
from core.data.read.cells import RowError, kind_of, parsed, text_of
from core.machine.textfile import one_line

LABELS_KEPT = 1_000
"""So many labels can be learned, and are counted in a report, the most frequent ones."""
NO_LABEL = "none"
"""The answer that stands for an empty list of labels."""
LIST = "list"
PROBLEMS: dict[LabelKind, Problem] = {
    "one label": "single_label_classification",
    "several labels": "multi_label_classification",
    "number": "regression",
}
"""What a column of labels is, where nobody says otherwise."""
FITTING: dict[LabelKind, tuple[Problem, ...]] = {
    "one label": ("single_label_classification", "multi_label_classification", "regression"),
    "several labels": ("multi_label_classification",),
    "number": ("regression", "single_label_classification", "multi_label_classification"),
}
"""What it can be; see ``fitting``."""
_SEPARATORS = ("|", ";", ",")
_COUNTED = 20_000
_FEW_NUMBERS, _ONCE = 20, 0.2
"""More whole numbers than these, of which such a share is seen once, are measured ones, such as prices, and no names of
classes."""
_LONGEST = 40
"""Characters of a label that may be joined with others by a sign."""
_SHARE = 0.8


def separator_of(cells: Iterable[Any]) -> str:
    """How the cells of a column join several labels: ``LIST`` for JSON lists, a sign, or "" where each holds one.

    A sign counts where it is plain: nearly every label between signs is short and also stands in another cell's
    company, or alone. So "Paris, France" stays one label.
    """
    values = [cell for cell in cells if cell is not None]
    if any(isinstance(_listed(cell), list) for cell in values):
        return LIST
    texts = {cell.strip() for cell in values if isinstance(cell, str) and cell.strip()}
    for sign in _SEPARATORS:
        joined = [_parts(text, sign) for text in texts if sign in text]
        if len(joined) < 2:
            continue
        company = Counter(part for text in texts for part in set(_parts(text, sign)))
        found = {part for parts in joined for part in parts}
        if max(map(len, found)) <= _LONGEST and sum(company[part] > 1 for part in found) >= _SHARE * len(found):
            return sign
    return ""


def read_label(cell: Any, where: str, separator: str) -> tuple[str, tuple[str, ...]]:
    """A cell as one text, as an answer is written, and as its labels. Raises RowError where it holds none."""
    found = _listed(cell) if separator == LIST else cell
    if isinstance(found, list):
        labels = tuple(dict.fromkeys(label for one in found if (label := _written(one, where))))
        return ", ".join(labels) or NO_LABEL, labels
    text = _written(found, where)
    if not text:
        raise RowError("row.empty", f"{where} is empty")
    return text, tuple(_parts(text, separator)) if separator in _SEPARATORS else (text,)


class LabelCounts:
    """Counts labels as rows are read; memory grows by 8 bytes a label."""

    def __init__(self, separator: str) -> None:
        self._several = bool(separator)
        self._counts: Counter[str] = Counter()
        self._hashes = array("q")
        self._numbers, self._fractions = True, False

    def add(self, example: Example) -> None:
        """Counts the labels of a row."""
        for label in example.labels:
            self._hashes.append(hash(label))
            if label in self._counts or len(self._counts) < _COUNTED:
                self._counts[label] += 1
            if self._numbers:
                number = number_of(label)
                self._numbers = number is not None
                self._fractions |= number is not None and not number.is_integer()

    def labels(self) -> Labels:
        """What was counted."""
        once = sum(rows == 1 for rows in self._counts.values())
        measured = len(self._counts) > _FEW_NUMBERS and once >= _ONCE * len(self._counts)
        numbers = self._numbers and (self._fractions or measured) and not self._several
        kind: LabelKind = "several labels" if self._several else "number" if numbers else "one label"
        distinct = len(np.unique(np.frombuffer(self._hashes, np.int64))) if self._hashes else 0
        kept = {} if numbers and self._fractions else dict(self._counts.most_common(LABELS_KEPT))
        return Labels(kind=kind, counts=kept, distinct=distinct)


def outputs_of(config: RunConfig, report: DataReport) -> Outputs | None:
    """The scores that the method's model gives of such rows, in their order; None where it gives none. Labels that are
    numbers are ordered by value, others by the alphabet.

    Raises:
        DataError: the problem that was asked for cannot be one of these labels, or they cannot be learned as classes.
    """
    learning, labels = config.learning, report.labels
    if not learning.task.scores:
        return None
    if not learning.labelled or labels is None:
        return REWARD
    problem: Problem = PROBLEMS[labels.kind] if config.train.problem_type == "auto" else config.train.problem_type
    name = Path(report.path).name
    if problem not in fitting(labels):
        raise DataError("data.labels/problem", asked=problem, kind=labels.kind, name=name)
    if problem == "regression":
        return Outputs((report.mapping.get("label") or "value",), problem)
    if labels.distinct > LABELS_KEPT:
        raise DataError("data.labels/too_many", name=name, most=LABELS_KEPT, count=labels.distinct)
    if labels.distinct < 2:
        raise DataError("data.labels/only_one", name=name, label=one_line(next(iter(labels.counts), ""), 60))
    if once := [label for label, rows in labels.counts.items() if rows == 1]:
        shown = ", ".join(repr(one_line(label, 40)) for label in once[:5]) + (" …" if len(once) > 5 else "")
        raise DataError("data.labels/once", name=name, count=len(once), labels=shown)
    by_value = all(number_of(label) is not None for label in labels.counts)
    names = sorted(labels.counts, key=lambda label: (number_of(label) or 0.0, label) if by_value else (0.0, label))
    return Outputs(tuple(names), problem)


def fitting(labels: Labels) -> tuple[Problem, ...]:
    """What these labels can be learned as: as a number where all are, as classes unless some have fractions."""
    numbers = all(number_of(label) is not None for label in labels.counts)
    classes = labels.kind != "number" or bool(labels.counts)
    return tuple(one for one in FITTING[labels.kind] if (numbers if one == "regression" else classes))


def number_of(label: str) -> float | None:
    """A label as a number; None where it is none."""
    try:
        number = float(label)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _listed(cell: Any) -> Any:
    """A JSON list in a text as that list."""
    found = parsed(cell) if isinstance(cell, str) and cell.lstrip().startswith("[") else cell
    return found if isinstance(found, list) else cell


def _written(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return text_of(value, where).strip()
    raise RowError("row.type", f"{where} is {kind_of(value)}, expected a label")


def _parts(text: str, sign: str) -> Sequence[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(sign) if part.strip()))
