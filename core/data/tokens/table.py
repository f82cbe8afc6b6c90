"""A row as tokens, and tables of rows as arrays with 4 bytes a token.

Rows are kept uncut with their trained token ranges, so that one table serves every length limit; preview and training
cut them by ``Encoded.cut``. A preference row is two rows of the table, chosen then rejected. A table is written as one
``.npz`` of plain arrays and checked when read.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from core.contract.data import RowProblem, TokenRow
from core.data.deal.packing import text_pieces
from core.machine.disk import drafted

UNTRAINED = -100
"""The label of a token that is read and not trained (torch's ``ignore_index``)."""
_ARRAYS = {
    "ids": "<i4",
    "ends": "<i8",
    "rows": "<i8",
    "spans": "<i4",
    "span_ends": "<i8",
    "flags": "|u1",
    "margins": "<f8",
    "texts": "<i4",
    "said": "|u1",
}
_TORN = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Encoded:
    """One row under a template, uncut.

    Args:
        row: its number in the file.
        text: what was tokenised.
        ids: T token ids, a BOS of the tokenizer's own and an appended end token included.
        trained: token ranges that are trained, ascending and disjoint.
        encoding: the tokenizer's record of which token holds which character; None where it was read from a table.
        bos: 1 where the tokenizer put its BOS before the text.
        flows: raw text, which goes on in further rows instead of being cut.
        ended: the last id is an appended end-of-text token, which is not in the text.
        mark: whether the answer is marked good or bad; None without marks.
        margin: by how much this pair's chosen answer is better; None where nothing says it.
        labels: the row's labels, as written.
        classed: the labels are all that is learned of the row; no token is trained.
        texts: token ranges of such a row's texts, one or two, between the tokenizer's own tokens.
        keeps_end: texts that are too long lose their beginning, as the tokenizer says ("truncation_side").
    """

    row: int
    text: str
    ids: tuple[int, ...]
    trained: tuple[tuple[int, int], ...]
    encoding: Any
    bos: int = 0
    flows: bool = False
    ended: bool = False
    mark: bool | None = None
    margin: float | None = None
    labels: tuple[str, ...] = ()
    classed: bool = False
    texts: tuple[tuple[int, int], ...] = ()
    keeps_end: bool = False

    def targets(self) -> list[int]:
        """T labels: the id where trained, else -100."""
        labels = [UNTRAINED] * len(self.ids)
        for start, stop in self.trained:
            labels[start:stop] = self.ids[start:stop]
        return labels

    def cut(self, max_length: int) -> list[tuple[TokenRow, int, int]]:
        """The row within the limit and its token range; raw text as several rows, each with one BOS. A row with labels
        is what is left of it (``kept``)."""
        labels = self.targets()
        if self.classed:
            ids = tuple(token for start, stop in self.kept(max_length) for token in self.ids[start:stop])
            return [(TokenRow(self.row, ids, tuple(labels[: len(ids)])), 0, len(ids))]
        if not self.flows:
            stop = min(len(self.ids), max_length)
            return [(TokenRow(self.row, self.ids[:stop], tuple(labels[:stop])), 0, stop)]
        rows = []
        for start, stop in text_pieces(len(self.ids), max_length, self.bos):
            again = self.bos if start else 0
            ids, row_labels = self.ids[:again] + self.ids[start:stop], labels[:again] + labels[start:stop]
            rows.append((TokenRow(self.row, ids, tuple(row_labels)), start, stop))
        return rows

    def kept(self, max_length: int) -> tuple[tuple[int, int], ...]:
        """Token ranges of a row with labels that are left within the limit. As ``tokenizer(text, second text,
        truncation=True)`` cuts it: the longer text is cut first ("longest_first"), at the tokenizer's side, and the
        tokenizer's own tokens stay."""
        room = max(0, max_length - len(self.ids) + sum(stop - start for start, stop in self.texts))
        begin, ranges = 0, []
        lefts = _left([stop - start for start, stop in self.texts], room)
        for (start, stop), left in zip(self.texts, lefts, strict=True):
            ranges += [(begin, start), (stop - left, stop)] if self.keeps_end else [(begin, start + left)]
            begin = stop
        cut, total = [], 0
        for start, stop in (*ranges, (begin, len(self.ids))):
            cut.append((start, min(stop, start + max_length - total)))
            total += cut[-1][1] - start
        return tuple(cut)

    def starts(self) -> list[int]:
        """For each token the position in ``text`` where it begins, ascending, and the end: T + 1 numbers."""
        body = len(self.ids) - self.ended
        position = 0
        starts: list[int] = []
        for number in range(body):
            chars = self.encoding.token_to_chars(number)
            position = max(position, chars[0] if chars else position)
            starts.append(position)
        last = self.encoding.token_to_chars(body - 1) if body and body < len(self.encoding.ids) else None
        end = last[1] if last else len(self.text)
        return [*starts, *([end] * self.ended), end]


@dataclass(frozen=True)
class TokenTable:
    """N tokens of R rows with S trained ranges.

    Args:
        ids: int32 ``[N]``, all rows end to end.
        ends: int64 ``[R]``, where each row ends in ``ids``.
        rows: int64 ``[R]``, each row's number in its file.
        spans: int32 ``[S, 2]``, trained token ranges, counted within their row.
        span_ends: int64 ``[R]``, where each row's ranges end in ``spans``.
        flags: uint8 ``[R]``: ``FLOWS``, ``ENDED`` and ``BOS`` as in ``Encoded``; ``MARKED`` where the row has a mark,
            with ``GOOD`` where that is a good one; ``CLASSED`` and ``KEEPS_END`` as in ``Encoded``.
        margins: float64 ``[R]``: each pair's margin, on both of its sides; NaN where it has none.
        texts: int32 ``[R, 4]``: ``Encoded.texts``, start and stop of each; an empty range where there is none.
        refused: the rows that the template refuses.
        labels: each row's labels, as written; empty where no row has any.
    """

    FLOWS, ENDED, BOS, MARKED, GOOD, CLASSED, KEEPS_END = 1, 2, 4, 8, 16, 32, 64

    ids: Array
    ends: Array
    rows: Array
    spans: Array
    span_ends: Array
    flags: Array
    margins: Array
    texts: Array
    refused: tuple[RowProblem, ...] = ()
    labels: tuple[tuple[str, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.ends)

    def items(self) -> Iterator[Encoded]:
        """Every row in order, without its text."""
        for index in range(len(self)):
            yield self.item(index)

    def item(self, index: int) -> Encoded:
        """One row by its place in the table, without its text."""
        start, first = (int(ends[index - 1]) if index else 0 for ends in (self.ends, self.span_ends))
        ids = self.ids[start : int(self.ends[index])].tolist()
        spans = self.spans[first : int(self.span_ends[index])].tolist()
        flags, margin = int(self.flags[index]), float(self.margins[index])
        texts = self.texts[index].reshape(2, 2).tolist()
        return Encoded(
            row=int(self.rows[index]),
            text="",
            ids=tuple(ids),
            trained=tuple((low, high) for low, high in spans),
            encoding=None,
            bos=int(bool(flags & self.BOS)),
            flows=bool(flags & self.FLOWS),
            ended=bool(flags & self.ENDED),
            mark=bool(flags & self.GOOD) if flags & self.MARKED else None,
            margin=None if math.isnan(margin) else margin,
            labels=self.labels[index] if self.labels else (),
            classed=bool(flags & self.CLASSED),
            texts=tuple((low, high) for low, high in texts if low < high),
            keeps_end=bool(flags & self.KEEPS_END),
        )

    def place_of(self, row: int) -> int | None:
        """The place of the row with this number, or None; the rows of a table are ascending."""
        place = int(np.searchsorted(self.rows, row))
        return place if place < len(self) and int(self.rows[place]) == row else None

    def save(self, path: Path) -> None:
        """Writes the table atomically. Raises OSError."""
        refused = [[one.row, one.code, one.text] for one in self.refused]
        said = json.dumps({"refused": refused, "labels": self.labels}).encode()
        arrays = {name: getattr(self, name) for name in _ARRAYS if name != "said"}
        with drafted(path) as draft, draft.open("wb") as stream:
            np.savez(stream, **arrays, said=np.frombuffer(said, np.uint8))

    @staticmethod
    def lengths_in(path: Path) -> tuple[Array, Array]:
        """Row numbers and uncut lengths of a file's rows, without their tokens; none of one that cannot be read."""
        try:
            with np.load(path, allow_pickle=False) as stored:
                rows, ends = stored["rows"], stored["ends"]
        except _TORN:
            rows = ends = np.zeros(0, np.int64)
        lengths = np.diff(ends, prepend=0)
        return (rows, lengths) if len(rows) == len(lengths) else (rows[:0], lengths[:0])

    @classmethod
    def load(cls, path: Path) -> TokenTable | None:
        """The table of a file; None where there is none, or it is damaged or not ours."""
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in _ARRAYS}
            said = json.loads(arrays.pop("said").tobytes())
            refused = tuple(RowProblem(row=r, code=c, text=t) for r, c, t in said["refused"])
            table = cls(**arrays, refused=refused, labels=tuple(tuple(map(str, row)) for row in said["labels"]))
        except (*_TORN, TypeError):
            return None
        return table if table._sound() else None

    def _sound(self) -> bool:
        """Whether the arrays fit each other, so that no index is out of range."""
        rows = len(self.ends)
        if any(getattr(self, name).dtype.str != kind for name, kind in _ARRAYS.items() if name != "said"):
            return False
        if self.ids.ndim != 1 or self.spans.ndim != 2 or self.spans.shape[1] != 2:
            return False
        for ends, size in ((self.ends, len(self.ids)), (self.span_ends, len(self.spans))):
            if ends.ndim != 1 or len(ends) != rows or np.any(np.diff(ends, prepend=0) < 0):
                return False
            if (int(ends[-1]) if rows else 0) != size:
                return False
        lengths = np.repeat(np.diff(self.ends, prepend=0), np.diff(self.span_ends, prepend=0))
        low, high = self.spans[:, 0], self.spans[:, 1]
        if (self.labels and len(self.labels) != rows) or self.texts.shape != (rows, 4):
            return False
        if np.any(self.texts < 0) or np.any(self.texts > np.diff(self.ends, prepend=0)[:, None]):
            return False
        return len(self.rows) == len(self.flags) == len(self.margins) == rows and bool(
            np.all((low >= 0) & (low <= high) & (high <= lengths))
        )


class TableMaker:
    """Collects rows and makes the table of them."""

    def __init__(self) -> None:
        self._ids, self._ends = array("i"), array("q")
        self._spans, self._span_ends = array("i"), array("q")
        self._rows, self._flags, self._margins = array("q"), array("B"), array("d")
        self._texts = array("i")
        self._labels: list[tuple[str, ...]] = []
        self._refused: list[RowProblem] = []

    def add(self, *items: Encoded | RowProblem) -> None:
        """Adds a row, both sides of a pair, or why there is none."""
        for item in items:
            if isinstance(item, RowProblem):
                self._refused.append(item)
                continue
            self._ids.extend(item.ids)
            self._ends.append(len(self._ids))
            for span in item.trained:
                self._spans.extend(span)
            self._span_ends.append(len(self._spans) // 2)
            self._rows.append(item.row)
            made = (
                (TokenTable.FLOWS, item.flows),
                (TokenTable.ENDED, item.ended),
                (TokenTable.BOS, item.bos),
                (TokenTable.MARKED, item.mark is not None),
                (TokenTable.GOOD, item.mark),
                (TokenTable.CLASSED, item.classed),
                (TokenTable.KEEPS_END, item.keeps_end),
            )
            self._flags.append(sum(flag for flag, is_set in made if is_set))
            self._margins.append(math.nan if item.margin is None else item.margin)
            self._texts.extend((*chain.from_iterable(item.texts), 0, 0, 0, 0)[:4])
            self._labels.append(item.labels)

    def table(self) -> TokenTable:
        """The table of the rows added."""
        return TokenTable(
            ids=np.array(self._ids, "<i4"),
            ends=np.array(self._ends, "<i8"),
            rows=np.array(self._rows, "<i8"),
            spans=np.array(self._spans, "<i4").reshape(-1, 2),
            span_ends=np.array(self._span_ends, "<i8"),
            flags=np.array(self._flags, "|u1"),
            margins=np.array(self._margins, "<f8"),
            texts=np.array(self._texts, "<i4").reshape(-1, 4),
            refused=tuple(self._refused),
            labels=tuple(self._labels) if any(self._labels) else (),
        )


def token_range(encoding: Any, characters: tuple[int, int], size: int) -> tuple[int, int]:
    """The range of tokens that hold any of the characters ``[start, stop)`` of a text of ``size`` characters, those
    across its edges included."""
    start, stop = characters
    first = next((token for token in _tokens(encoding, range(start, stop))), None)
    last = next((token for token in _tokens(encoding, range(stop - 1, start - 1, -1))), None)
    if first is None or last is None:
        return 0, 0
    # Several tokens may share one character (bytes of an emoji): the range goes up to the next character's first token.
    behind = next((token for token in _tokens(encoding, range(stop, size))), len(encoding.ids))
    return first, max(last + 1, behind)


def _left(lengths: list[int], room: int) -> list[int]:
    """How much of one or two texts is left in the room: the longer one loses its end, then each has half."""
    if sum(lengths) <= room:
        return lengths
    if len(lengths) < 2:
        return [room]
    shorter = min(*lengths, room // 2)
    return [shorter, room - shorter] if lengths[0] <= lengths[1] else [room - shorter, shorter]


def _tokens(encoding: Any, places: Sequence[int]) -> Any:
    for place in places:
        token = encoding.char_to_token(place)
        if token is not None:
            yield token
