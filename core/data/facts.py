"""Lengths of all rows under a template, from measures that hold for every length limit.

A *measure* is a row's uncut length and the token ranges that are trained in it. It is made once per file, tokenizer and
template; facts for any ``max_length`` follow by arithmetic, so that a slider costs nothing::

    trained(row) = Σ over ranges [a, b) of max(0, min(b, max_length) − max(a, 1))

(the first token of a row is never a target). Raw text goes on in further rows and is counted as these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from core.contract.data import DataFacts
from core.contract.errors import DataError
from core.data.packing import text_pieces

__all__ = ["Measure", "facts_of"]


@dataclass(frozen=True)
class Measure:
    """One row: its length in tokens, its trained ranges; ``flows`` for raw text, which has ``bos`` tokens before it."""

    length: int
    trained: tuple[tuple[int, int], ...]
    flows: bool = False
    bos: int = 0

    def rows(self, max_length: int) -> list[tuple[int, int]]:
        """(uncut length, trained tokens within the limit) of each row that this one becomes."""
        if not self.flows:
            return [(self.length, self._targets(0, max_length, 0))]
        pieces = text_pieces(self.length, max_length, self.bos)
        again = [self.bos if start else 0 for start, _ in pieces]
        return [
            (stop - start + more, self._targets(start, stop, more))
            for (start, stop), more in zip(pieces, again, strict=True)
        ]

    def _targets(self, start: int, stop: int, more: int) -> int:
        first = start if more else start + 1
        return sum(max(0, min(high, stop) - max(low, first)) for low, high in self.trained)


def facts_of(measures: Iterable[Measure], max_length: int, usable: int, measured: int) -> DataFacts:
    """Facts of a file of ``usable`` rows of which ``measured`` were measured.

    Rows that become several (raw text) are counted as several; rows with nothing trained within the limit are counted,
    with 0 trained tokens.

    Raises:
        DataError: nothing at all is trained.
    """
    rows = [row for measure in measures for row in measure.rows(max_length)]
    lengths, trained = tuple(length for length, _ in rows), tuple(targets for _, targets in rows)
    if not any(trained):
        raise DataError(
            "data.nothing",
            f"Expected tokens to train on, found none within {max_length:,} tokens of any row.",
            "Allow longer examples, or choose other columns.",
        )
    whole = usable if measured == len(rows) else round(usable * len(rows) / measured)
    return DataFacts(
        rows=whole,
        lengths=lengths,
        trained=trained,
        max_length=max_length,
        longest=max(lengths),
        mean=sum(lengths) / len(lengths),
        sampled=measured < usable,
    )
