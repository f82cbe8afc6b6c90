"""A window of a file's rows: which of them fit a wish, in its order, as a person sees them."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.contract.config import DataChoice
from core.contract.errors import DataError
from core.contract.methods import METHODS, Method, RowKind, method_for
from core.contract.rows import CELL_CHARACTERS, RowTable, RowWish, TableRow
from core.data.doctor.found_rows import rows_found
from core.data.read.cells import Record, RowError, cell_at
from core.data.read.examples import COLUMNS_LIMIT, aside_text, look_at, reading_of
from core.data.read.layouts import Recognised
from core.data.read.roles import flattened
from core.data.read.turns import to_example
from core.data.table import sieve
from core.data.table.changes import Changes
from core.data.table.index import text_index
from core.data.table.shown import beginning, whole_text
from core.data.table.sieve import Sieve
from core.data.table.spool import ParquetIndex
from core.data.tokens.table import TokenTable
from core.machine.textfile import one_line

SLICE_SECONDS = 0.15
_LATER_SECONDS = 0.3
"""For what is asked again since the file was not read whole."""
_LONGEST = np.int32(np.iinfo(np.int32).max)
_NAME_CHARACTERS = 200
"""A column of a longer name is none that a person chooses."""
_WINDOW_CHARACTERS = 6 << 20
_LEAST_CHARACTERS = 20
_PROBLEM_CHARACTERS = 300
_SIEVES = 6
_CHANGED_AT_ONCE = 2_000
"""Of more rows that changed a sieve is made anew."""
_WEIGHTS = {"fault": 1_000_000, "warning": 1_000, "note": 1}
_NO_MAPPING = ("data.columns", "data.column_twice", "data.tree")
_Places = NDArray[np.int64] | range
_Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Asked:
    """What a window is asked of: how columns are read (for ``method``, None: the one that suits), which rows, the
    changes, files of token tables, and the findings: code to level, row numbers and the file with all of them."""

    choice: DataChoice
    method: Method | None
    wish: RowWish
    changes: Changes
    tokens: tuple[str, ...]
    findings: Mapping[str, tuple[str, Sequence[int], str]]
    examples: str = ""
    """The untouched file's Examples, where it was read before."""


class OpenTable:
    """A file whose rows are shown; it is read further with every window that is asked for."""

    def __init__(self, path: Path, named: Path, folder: Path) -> None:
        """``named``: the path whose name and suffix it goes by; ``folder``: for what is kept while it is open.

        Raises:
            DataError: no rows can be read.
        """
        self._look = look_at(path, named)
        self._source = self._look.source
        names = flattened(self._look.columns, self._look.sample)
        self.columns = tuple(name for name in names if len(name) <= _NAME_CHARACTERS)
        parquet = self._source.parquet
        self.index = ParquetIndex(path, self._source.columns, folder) if parquet else text_index(self._source)
        self._changes = Changes()
        self._sieves: OrderedDict[tuple[Any, ...], Sieve] = OrderedDict()
        self._recognised: OrderedDict[str, Recognised | None] = OrderedDict()
        self._lengths: tuple[tuple[Any, ...], NDArray[np.int32] | None] = ((), None)
        self._last: tuple[tuple[Any, ...], _Places] = ((), range(0))

    def window(self, asked: Asked) -> RowTable:
        """The rows that fit, as far as the file is read. Raises DataError where its first rows cannot be."""
        self.index.advance(_LATER_SECONDS if len(self.index) else SLICE_SECONDS)
        self._follow(asked.changes)
        wish, recognised = asked.wish, self._reading(asked.choice)
        sieves = dict(self._needed(asked, recognised))
        for one in sieves.values():
            one.advance((_LATER_SECONDS if len(one) else SLICE_SECONDS) / len(sieves), asked.changes)
        places = self._fitting(asked, sieves)
        shown = [int(place) for place in places[wish.first : wish.first + wish.count]]
        return RowTable(
            columns=self.columns,
            rows=tuple(self._rows(shown, asked, recognised)),
            matching=len(places),
            rows_in_file=len(self.index),
            complete=self.index.complete and all(len(one) == len(self.index) for one in sieves.values()),
            changes=asked.changes.count,
            undone=asked.changes.undone,
        )

    def row(self, number: int, changes: Changes, mapped: Sequence[str] = ()) -> dict[str, str] | None:
        """All cells of a row, and those at the paths that are ``mapped``; None where no such row is known."""
        for record in self.index.at(self.index.places_of([number]).tolist()).values():
            values = changes.applied(record).values
            roots = {name.partition(".")[0] for name in self.columns} | {*self.columns}
            others = [name for name in values if name not in roots][:COLUMNS_LIMIT]
            return {name: whole_text(cell_at(values, name)) for name in (*self.columns, *mapped, *others)}
        return None

    def _follow(self, changes: Changes) -> None:
        """Looks once more at the rows that were changed since the last window."""
        before, self._changes = self._changes.edits, changes
        if before is changes.edits:
            return
        rows = [row for row in {*before, *changes.edits} if before.get(row) != changes.edits.get(row)]
        if len(rows) > _CHANGED_AT_ONCE:
            self._sieves.clear()
        for one in self._sieves.values():
            one.again(self.index.places_of(rows).tolist(), changes)

    def _reading(self, choice: DataChoice) -> Recognised | None:
        """How rows are read under a choice; None where no layout fits yet."""
        key = choice.model_dump_json(include={"layout", "columns"})
        if key not in self._recognised:
            try:
                self._recognised[key] = reading_of(self._look, choice).recognised
            except DataError as error:
                if error.code not in _NO_MAPPING:
                    raise
                self._recognised[key] = None
            while len(self._recognised) > _SIEVES:
                self._recognised.popitem(last=False)
        return self._recognised[key]

    def _needed(self, asked: Asked, recognised: Recognised | None) -> Iterator[tuple[str, Sieve]]:
        """The sieves that a wish needs."""
        wish = asked.wish
        if wish.search:
            yield "search", self._sieve(("search", wish.search), sieve.holds(wish.search), wish.search)
        if recognised is None:
            return
        key = (recognised.layout, *sorted(recognised.mapping.items()))
        if wish.state in ("used", "left_out"):
            cannot = _left_out(asked.method, recognised)
            used = sieve.of_example(recognised, lambda example: example.kind not in cannot)
            yield "used", self._sieve(("used", cannot, *key), used, told=sieve.kinds_of(asked.examples, cannot))
        for name, wanted, value in (("language", wish.language, sieve.language), ("label", wish.label, sieve.labels)):
            if wanted:
                told = sieve.of_examples(asked.examples, value)
                yield name, self._sieve((name, *key), sieve.of_example(recognised, value), told=told)

    def _sieve(
        self, key: tuple[Any, ...], value: sieve.Value, needle: str = "", told: sieve.Told | None = None
    ) -> Sieve:
        made = self._sieves.pop(key, None)
        made = Sieve(self.index, value, needle, told) if made is None else made
        self._sieves[key] = made
        while len(self._sieves) > _SIEVES:
            self._sieves.popitem(last=False)
        return made

    def _fitting(self, asked: Asked, sieves: Mapping[str, Sieve]) -> _Places:
        """The places of the rows that fit, in their order."""
        wish = asked.wish.model_copy(update={"first": 0, "count": 1})
        if wish == RowWish(first=0, count=1):
            return range(len(self.index))
        looked = min((len(one) for one in sieves.values()), default=len(self.index))
        findings = tuple((code, len(rows), kept) for code, (_, rows, kept) in asked.findings.items())
        key = (wish, looked, len(self.index), asked.changes, asked.tokens, findings, *map(id, sieves.values()))
        if self._last[0] != key:
            mask = np.zeros(len(self.index), np.bool_)
            mask[:looked] = True
            for fits in self._masks(asked, sieves):
                mask[: len(fits)] &= fits
                mask[len(fits) :] = False
            order = self._ordered(asked)
            self._last = key, order[mask[order]]
        return self._last[1]

    def _masks(self, asked: Asked, sieves: Mapping[str, Sieve]) -> Iterator[_Mask]:
        wish, changes = asked.wish, asked.changes
        if "search" in sieves:
            yield sieves["search"].fitting(bool)
        for name, wanted in (("language", wish.language), ("label", wish.label)):
            if wanted:
                yield sieves[name].fitting(partial(_is, wanted)) if name in sieves else _NONE
        if wish.finding:
            _, listed, kept = asked.findings.get(wish.finding, ("", (), ""))
            yield self._among(rows_found(listed, kept))
        if wish.state == "edited":
            yield self._among(changes.edits)
        elif wish.state:
            out = self._among(changes.excluded)
            used = sieves["used"].fitting(lambda value: value is True) if "used" in sieves else _NONE
            yield {"excluded": out, "used": used & ~out[: len(used)], "left_out": ~used}[wish.state]
        if wish.tokens_from or wish.tokens_to:
            lengths = self._tokens(asked)
            least, most = max(0, wish.tokens_from), wish.tokens_to or _LONGEST
            yield _NONE if lengths is None else (lengths >= least) & (lengths <= most)

    def _among(self, numbers: NDArray[np.uint32] | Mapping[int, Any] | frozenset[int]) -> _Mask:
        mask = np.zeros(len(self.index), np.bool_)
        mask[self.index.places_of(numbers)] = True
        return mask

    def _ordered(self, asked: Asked) -> NDArray[np.int64]:
        """All places in the order of a wish; rows whose tokens were not counted come last."""
        order = asked.wish.order
        if order == "findings":
            weights = np.zeros(len(self.index), np.int32)
            for level, listed, kept in asked.findings.values():
                weights[self.index.places_of(rows_found(listed, kept))] += _WEIGHTS[level]
            return np.argsort(-weights, kind="stable")
        if order == "file":
            return np.arange(len(self.index))
        lengths = self._tokens(asked)
        if lengths is None:
            lengths = np.frombuffer(self.index.sizes, np.int32) if len(self.index) else np.zeros(0, np.int32)
        keys = np.where(lengths < 0, _LONGEST, lengths if order == "shortest" else -lengths)
        return np.argsort(keys, kind="stable")

    def _tokens(self, asked: Asked) -> NDArray[np.int32] | None:
        """The token length of each row, -1 where it was not counted; None where none was."""
        key = (asked.tokens, len(self.index))
        if asked.tokens and self._lengths[0] != key:
            lengths = np.full(len(self.index), -1, np.int32)
            known = np.frombuffer(self.index.numbers, np.uint32)
            for part in asked.tokens:
                rows, counted = TokenTable.lengths_in(Path(part))
                places = np.searchsorted(known, rows)
                sound = places < len(known)
                sound[sound] &= known[places[sound]] == rows[sound]
                np.maximum.at(lengths, places[sound], counted[sound].astype(np.int32))
            self._lengths = key, lengths
        return self._lengths[1] if asked.tokens else None

    def _rows(self, places: list[int], asked: Asked, recognised: Recognised | None) -> Iterator[TableRow]:
        records, lengths = self.index.at(places), self._tokens(asked)
        room = _WINDOW_CHARACTERS // max(1, len(places) * len(self.columns))
        most = max(_LEAST_CHARACTERS, min(CELL_CHARACTERS, room))
        findings = {code: _holding(rows_found(*told[1:])) for code, told in asked.findings.items()}
        for place in places:
            if place not in records:  # the file ends before its index
                continue
            record = asked.changes.applied(records[place])
            edited = tuple(asked.changes.edits.get(record.row, ()))
            cells = {name: beginning(cell_at(record.values, name), most) for name in self.columns}
            tokens = -1 if lengths is None or edited else int(lengths[place])
            yield TableRow(
                row=record.row,
                cells={name: text for name, (text, _) in cells.items()},
                cut=tuple(name for name, (_, more) in cells.items() if more),
                edited=edited,
                excluded=record.row in asked.changes.excluded,
                problem=one_line(_problem(record, recognised, asked.method), _PROBLEM_CHARACTERS),
                findings=tuple(code for code, holds in findings.items() if holds(record.row)),
                tokens=None if tokens < 0 else tokens,
            )


_NONE: _Mask = np.zeros(0, np.bool_)


def _holding(numbers: NDArray[np.uint32]) -> Callable[[int], bool]:
    """Whether a row is among these, which ascend; a file of them is read at a few places."""

    def holds(row: int) -> bool:
        place = int(np.searchsorted(numbers, np.uint32(row)))
        return place < len(numbers) and int(numbers[place]) == row

    return holds


def _is(wanted: str, value: Any) -> bool:
    """Whether a language, or one of several labels, is the one that is wanted."""
    return wanted in value if isinstance(value, tuple) else bool(value == wanted)


def _left_out(method: Method | None, recognised: Recognised) -> tuple[RowKind, ...]:
    return METHODS[method or method_for(recognised.layout)].leaves_out


def _problem(record: Record, recognised: Recognised | None, method: Method | None) -> str:
    """Why a row cannot be trained on, in the words of the report."""
    if record.fault or recognised is None:
        return record.fault
    try:
        example = to_example(recognised, record)
    except RowError as fault:
        return fault.text
    kind = example.kind
    return aside_text(recognised, example, kind) if kind in _left_out(method, recognised) and kind else ""
