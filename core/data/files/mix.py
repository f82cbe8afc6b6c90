"""Several files as one data set: each row as often as its part's weight says, in an order drawn from a seed.

A weight is how often a part's rows are seen in one epoch: 2 means twice each, 0.5 a drawn half of them once, 2.5 twice
each and a drawn half a third time. Each part was read under its own choice before; here its Examples are taken as they
are, and a column ``source`` tells a person from which part a row comes. Training does not read it.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.contract.config import Layout
from core.contract.data import DataReport, Example
from core.contract.errors import DataError
from core.data.files.made import as_row
from core.data.read.delimited import apart

__all__ = ["MOST", "Part", "deal", "from_json", "mixed_rows", "origin_of_mixture", "parts_of", "to_json"]

MOST = 100.0
"""The largest weight: a row seen a hundred times in one epoch is learned by heart."""
_KINDS: dict[Layout, str] = {"preference": "pairs of answers", "text": "raw text"}


@dataclass(frozen=True)
class Part:
    """One file of a mixture, read: its name as ``source`` shows it, its Examples in the cache, and its weight."""

    source: str
    examples: Path
    weight: float
    layout: Layout
    sha256: str
    usable: int


def parts_of(found: Sequence[tuple[DataReport, str, float]]) -> list[Part]:
    """Parts from reports, their Examples and their weights.

    Raises:
        DataError: nothing to mix, a weight that is none, or parts that cannot stand in one data set.
    """
    if not found:
        raise DataError("data.mix", "Expected files to mix, found none.", "Choose two files or more.")
    names = apart([Path(report.path).name for report, _, _ in found])
    parts = [
        Part(source, Path(examples), weight, report.layout, report.sha256, report.usable)
        for source, (report, examples, weight) in zip(names, found, strict=True)
    ]
    for part in parts:
        if not (math.isfinite(part.weight) and 0 < part.weight <= MOST):
            raise DataError(
                "data.mix",
                f"Expected a weight above 0 and at most {MOST:g} for {part.source}, found {part.weight:g}.",
                "Choose how often its rows are to be seen in one epoch: 1 is once, 0.5 is every second row.",
            )
        if not round(part.weight * part.usable):
            raise DataError(
                "data.mix",
                f"Expected rows of {part.source} in the mixture, found that {part.weight:g} of its {part.usable:,} are "
                "none.",
                "Choose a larger weight for it, or leave it out.",
            )
        first, kind = (_KINDS.get(one.layout, "conversations") for one in (parts[0], part))
        if first != kind:
            raise DataError(
                "data.mix",
                f"Expected parts of one kind, found {first} in {parts[0].source} and {kind} in {part.source}.",
                "Mix pairs with pairs, conversations with conversations, and raw text with raw text.",
            )
    return parts


def deal(usable: Sequence[int], weights: Sequence[float], seed: int) -> list[tuple[int, int]]:
    """(part, row) of every row of the mixture in its order; rows are counted from 0 among a part's usable ones."""
    dealt: list[tuple[int, int]] = []
    for part, (rows, weight) in enumerate(zip(usable, weights, strict=True)):
        whole = math.floor(weight)
        drawn = random.Random(f"mix:{seed}:{part}")  # noqa: S311 - no secret
        dealt += [(part, row) for row in range(rows)] * whole
        dealt += [(part, row) for row in sorted(drawn.sample(range(rows), round((weight - whole) * rows)))]
    random.Random(f"mix:{seed}").shuffle(dealt)  # noqa: S311 - no secret
    return dealt


def mixed_rows(parts: Sequence[Part], seed: int) -> Iterator[dict[str, Any]]:
    """The rows of the mixture, each read from its part when its turn comes: memory holds places, not rows."""
    lines = [_Lines(part.examples) for part in parts]
    try:
        for part, row in deal([len(one.starts) for one in lines], [part.weight for part in parts], seed):
            example = Example.model_validate_json(lines[part].at(row))
            yield {**as_row(example), "source": parts[part].source}
    finally:
        for one in lines:
            one.stream.close()


def origin_of_mixture(parts: Sequence[Part], seed: int) -> dict[str, Any]:
    """What ORIGIN.json says of a mixture."""
    told = [
        {
            "name": part.source,
            "sha256": part.sha256,
            "layout": part.layout,
            "weight": part.weight,
            "rows": part.usable,
        }
        for part in parts
    ]
    return {"made": "mixture", "seed": seed, "parts": told}


class _Lines:
    """A file's lines by number."""

    def __init__(self, path: Path) -> None:
        self.stream = path.open("rb")
        self.starts = array("q")
        place = 0
        for line in self.stream:
            self.starts.append(place)
            place += len(line)

    def at(self, number: int) -> bytes:
        self.stream.seek(self.starts[number])
        return self.stream.readline()


def to_json(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Parts as they cross the pipe."""
    return [{**part.__dict__, "examples": str(part.examples)} for part in parts]


def from_json(raw: Sequence[dict[str, Any]]) -> list[Part]:
    """Parts as they came over the pipe."""
    return [Part(**{**one, "examples": Path(one["examples"])}) for one in raw]
