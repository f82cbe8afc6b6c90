"""Several files as one data set, in an order drawn from a seed.

A weight is how often a part's rows are seen in one epoch: 0.5 means a drawn half of them once, 2.5 twice each and a
drawn half a third time. The column ``source``, which training does not read, names the part.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from core.contract.config import Layout
from core.contract.data import DataReport
from core.contract.errors import DataError
from core.contract.methods import BAD
from core.data.files.example_file import ExampleFile
from core.data.files.made import as_row
from core.data.read.delimited import apart

MOST = 100.0
"""The largest weight."""
_KINDS: dict[Layout, str] = {"preference": "pairs of answers", "text": "raw text"}


@dataclass(frozen=True)
class Part:
    """One file of a mixture: its name in the column ``source``, its Examples in the cache, and its weight."""

    source: str
    examples: Path
    weight: float
    layout: Layout
    sha256: str
    usable: int


PARTS = TypeAdapter(list[Part])
"""For JSON between processes."""


def parts_of(files: Sequence[tuple[DataReport, str, float]]) -> list[Part]:
    """Parts from reports, Examples and weights. Raises DataError where they cannot be mixed."""
    if not files:
        raise DataError("data.mix/none")
    names = apart([Path(report.path).name for report, _, _ in files])
    plain = len({report.layout for report, _, _ in files}) > 1
    parts = []
    for source, (report, examples, weight) in zip(names, files, strict=True):
        left_out = report.asides[BAD].rows if plain and BAD in report.asides else 0
        whole = report.usable + sum(report.asides[kind].rows for kind in report.left_out)
        parts.append(Part(source, Path(examples), weight, report.layout, report.sha256, whole - left_out))
    for part in parts:
        first, kind = (_KINDS.get(one.layout, "conversations") for one in (parts[0], part))
        if not (math.isfinite(part.weight) and 0 < part.weight <= MOST):
            raise DataError("data.mix/weight", most=MOST, source=part.source, weight=part.weight)
        if not round(part.weight * part.usable):
            raise DataError("data.mix/no_rows", source=part.source, weight=part.weight, usable=part.usable)
        if first != kind:
            raise DataError("data.mix/kinds", first=first, one=parts[0].source, second=kind, other=part.source)
    return parts


def deal(usable: Sequence[int], weights: Sequence[float], seed: int) -> list[tuple[int, int]]:
    """(part, row) of every row of the mixture in order; rows are counted from 0 among a part's usable rows."""
    dealt: list[tuple[int, int]] = []
    for part, (rows, weight) in enumerate(zip(usable, weights, strict=True)):
        whole = math.floor(weight)
        drawn = random.Random(f"mix:{seed}:{part}")  # noqa: S311 - no secret
        dealt += [(part, row) for row in range(rows)] * whole
        dealt += [(part, row) for row in sorted(drawn.sample(range(rows), round((weight - whole) * rows)))]
    random.Random(f"mix:{seed}").shuffle(dealt)  # noqa: S311 - no secret
    return dealt


def mixed_rows(parts: Sequence[Part], seed: int) -> tuple[int, Iterator[dict[str, Any]]]:
    """How many rows the mixture has, and the rows, read one by one: memory holds places only."""
    plain = len({part.layout for part in parts}) > 1  # marks and labels say nothing beside rows that have none
    files = [ExampleFile(part.examples, (BAD,) if plain else ()) for part in parts]
    dealt = deal([len(file) for file in files], [part.weight for part in parts], seed)

    def rows() -> Iterator[dict[str, Any]]:
        places = ([row for part, row in dealt if part == number] for number in range(len(parts)))
        readers = [file.at(some) for file, some in zip(files, places, strict=True)]
        for part, _ in dealt:
            yield {**as_row(next(readers[part]), plain), "source": parts[part].source}

    return len(dealt), rows()


def origin_of_mixture(parts: Sequence[Part], seed: int) -> dict[str, Any]:
    """The ORIGIN.json of a mixture."""
    told = [
        {"name": one.source, "sha256": one.sha256, "layout": one.layout, "weight": one.weight, "rows": one.usable}
        for one in parts
    ]
    return {"made": "mixture", "seed": seed, "parts": told}
