"""Lengths of all rows under a template, for any length limit, from their uncut lengths and trained token ranges.

    trained(row) = Σ over ranges [a, b) of max(0, min(b, max_length) − max(a, 1))

(the first token of a row is never a target). Raw text is counted as the rows that it becomes; a preference row is two
rows of the table, and is as long as the longer one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.contract.data import DataFacts
from core.contract.errors import DataError
from core.data.deal.packing import text_pieces
from core.data.tokens.table import TokenTable

Array = np.ndarray[Any, Any]
_LONGEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Measures:
    """R rows with S trained ranges.

    Args:
        lengths: int64 ``[R]``, uncut tokens.
        spans: int64 ``[S, 2]``, trained ranges within their row.
        owners: int64 ``[S]``, the place of each range's row.
        flows: bool ``[R]``, raw text.
        bos: int64 ``[R]``, 1 where the tokenizer's BOS stands before the text.
        classed: bool ``[R]``, rows of which a label is learned, which counts as one token.
        pairs: rows come as chosen, rejected, chosen, rejected ...
        refused: how many rows the template refuses.
        why: the first of them, and why.
    """

    lengths: Array
    spans: Array
    owners: Array
    flows: Array
    bos: Array
    classed: Array
    pairs: bool = False
    refused: int = 0
    why: str = ""

    @classmethod
    def of(cls, tables: Iterable[TokenTable], pairs: bool = False) -> Measures:
        """The measures of the rows of tables."""
        all_tables = list(tables)
        counts = [np.diff(table.span_ends, prepend=0) for table in all_tables]
        flags = np.concatenate([np.zeros(0, np.uint8), *(table.flags for table in all_tables)])
        count = np.concatenate([np.zeros(0, np.int64), *counts])
        said = [problem for table in all_tables for problem in table.refused]
        return cls(
            lengths=np.concatenate([np.zeros(0, np.int64), *(np.diff(t.ends, prepend=0) for t in all_tables)]),
            spans=np.concatenate([np.zeros((0, 2), np.int64), *(table.spans for table in all_tables)]),
            owners=np.repeat(np.arange(len(count)), count),
            flows=(flags & TokenTable.FLOWS) > 0,
            bos=((flags & TokenTable.BOS) > 0).astype(np.int64),
            classed=(flags & TokenTable.CLASSED) > 0,
            pairs=pairs,
            refused=len(said),
            why=f"row {said[0].row:,}: {said[0].text}" if said else "",
        )

    def __len__(self) -> int:
        return len(self.lengths) // (2 if self.pairs else 1)

    def rows(self, max_length: int) -> tuple[list[int], list[int]]:
        """Two lists: the uncut length of each row that these become, and its trained tokens within the limit."""
        if self.pairs:
            # Nothing of a pair is trained where one of its answers lies wholly beyond the limit.
            prompts, ends = self.spans[:, 0].reshape(-1, 2), self.spans[:, 1].reshape(-1, 2)
            answers = np.maximum(0, np.minimum(ends, max_length) - prompts)
            both = np.where(answers.min(axis=1, initial=max_length) > 0, answers.sum(axis=1), 0)
            return ends.max(axis=1, initial=0).tolist(), both.tolist()
        low, high = np.maximum(self.spans[:, 0], 1), np.minimum(self.spans[:, 1], max_length)
        targets = np.bincount(self.owners, np.maximum(0, high - low), len(self.lengths)).astype(np.int64)
        targets = np.where(self.classed, 1, targets)
        if not self.flows.any():
            return self.lengths.tolist(), targets.tolist()
        lengths: list[int] = []
        trained: list[int] = []
        for length, target, flows, bos in zip(self.lengths, targets, self.flows, self.bos, strict=True):
            if not flows:
                lengths.append(int(length))
                trained.append(int(target))
                continue
            for start, stop in text_pieces(int(length), max_length, int(bos)):  # all of a raw text is trained
                again = int(bos) if start else 0
                lengths.append(stop - start + again)
                trained.append(stop - start - (0 if again else 1))
        return lengths, trained

    def others(self) -> list[int]:
        """The shorter side's uncut length of each preference row; empty for other rows."""
        return self.spans[:, 1].reshape(-1, 2).min(axis=1, initial=_LONGEST).tolist() if self.pairs else []


def facts_of(measures: Measures, max_length: int, usable: int) -> DataFacts:
    """Facts of a file of ``usable`` rows, of which these were measured. Raises DataError where nothing is trained."""
    lengths, trained = measures.rows(max_length)
    if not any(trained):
        if not len(measures):
            raise DataError("data.nothing/template", why=measures.why)
        if not len(measures.spans):
            raise DataError("data.nothing/no_turn")
        raise DataError("data.nothing/length", max_length=max_length)
    looked_at = len(measures) + measures.refused
    taken = round(usable * len(measures) / looked_at)
    return DataFacts(
        rows=taken if len(measures) == len(lengths) else round(taken * len(lengths) / len(measures)),
        lengths=tuple(lengths),
        trained=tuple(trained),
        max_length=max_length,
        longest=max(lengths),
        mean=sum(lengths) / len(lengths),
        sampled=looked_at < usable,
        refused=measures.refused,
        why=measures.why,
        others=tuple(measures.others()),
    )
