"""The run's data file, tokenised by the code that the preview shows rows with: what is seen there is trained here.

Done before a model is loaded: data that trains nothing must not cost a download or a minute of loading. What was
tokenised before (by the studio, or by an earlier run) is taken from the token cache; what is tokenised here is left
there.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice, RunConfig
from core.contract.data import DataFacts, Example, RowProblem, TokenRow
from core.data.doctor.kinship import kinship_of_file
from core.data.examples import Reading, Tally, open_reading
from core.data.render import cut_pair, cut_rows, tokenise
from core.data.renderer import renderer
from core.data.split import places_of, split_rows
from core.data.token_cache import Entry, Source, entry_of, settled, slices
from core.data.token_table import TokenTable
from core.disk import file_sha256
from core.locations import Locations
from core.train.guard import require_targets
from core.train.kept_rows import KeptRows
from core.train.orders import Orders
from core.train.rows import PairRows, TextRows
from core.train.tell import Teller

__all__ = ["RunData", "read_data"]

_SHOWN = 3
_TOLD = 2_048
AnyRows = TextRows | PairRows


@dataclass(frozen=True)
class RunData:
    """What is trained on and what is held out."""

    train: AnyRows
    held_out: AnyRows
    facts: DataFacts
    numbers: Sequence[int] = ()
    """Of each row to train on, its number in the user's file."""

    @property
    def tokens(self) -> int:
        """Real tokens of one epoch."""
        return sum(self.train.tokens(row) for row in range(len(self.train)))

    @property
    def trained_tokens(self) -> int:
        """Targets of one epoch."""
        return sum(self.train.trained(row) for row in range(len(self.train)))


def read_data(config: RunConfig, tokenizer: Any, tell: Teller, orders: Orders, kept: KeptRows | None = None) -> RunData:
    """Reads, tokenises and splits the run's file; split as it was at first, where that is ``kept``.

    Raises:
        DataError: the file cannot be read, or nothing in it can be trained on.
        RunError: its rows are not those that the run began with.
        Leave: somebody asked to pause or stop.
    """
    tables = _Tables(config, tokenizer, tell, orders)
    rows: AnyRows = PairRows() if config.method == "dpo" else TextRows()
    numbers = array("q")
    refused: list[RowProblem] = []
    for table in tables:
        orders.check()
        refused += table.refused
        add = _add_pairs if isinstance(rows, PairRows) else _add_texts
        refused += add(rows, numbers, table, config.train.max_length)  # type: ignore[arg-type]
    if refused:
        refused.sort(key=lambda problem: problem.row)
        shown = "; ".join(f"row {problem.row}: {problem.text}" for problem in refused[:_SHOWN])
        tell.note("data.refused", f"{len(refused)} rows are left out ({shown}{' …' if len(refused) > _SHOWN else ''}).")
    trained = sum(rows.trained(row) for row in range(len(rows)))
    require_targets(trained, len(rows) + len(refused), config.train.max_length)
    kin = places_of(numbers, _kin(config, tell, orders))
    drawn = split_rows(len(rows), config.data, config.train.seed, kin)
    train, held_out = kept.agree(rows.sha256(), drawn) if kept else drawn
    facts = _facts(rows, config.train.max_length, kin)
    return RunData(rows.take(train), rows.take(held_out), facts, array("q", (numbers[row] for row in train)))


def _kin(config: RunConfig, tell: Teller, orders: Orders) -> tuple[tuple[int, ...], ...]:
    """Rows of the file that belong on one side of the split, as the window found them, else found now."""

    told = 0

    def seam(rows: int) -> None:
        nonlocal told
        orders.check()
        if rows >= told + _TOLD:
            told = rows
            tell.stage("preparing", "Looking for repeated rows", rows)

    return kinship_of_file(Path(config.data.path), config.data, Locations.find(), seam).rows


class _Tables:
    """The file's rows as token tables, from the cache or made here; what is made here is kept there."""

    def __init__(self, config: RunConfig, tokenizer: Any, tell: Teller, orders: Orders) -> None:
        tell.stage("preparing", "Reading the data")
        self._pairs = config.method == "dpo"
        self._reading = open_reading(Path(config.data.path), config.data)
        found = self._reading.found
        self._choice = settled(config.data, found.layout, found.mapping)
        self._source, self._entry = _kept(self._reading, self._choice, tokenizer, self._pairs)
        self._using = renderer(tokenizer, self._choice)
        self._tell, self._orders = tell, orders

    def __iter__(self) -> Iterator[TokenTable]:
        kept = self._entry.tables() if self._entry else None
        if kept is None:
            yield from self._made()
            return
        rows = sum(len(table) for table in kept)
        self._tell.stage("preparing", "Rows tokenised before", rows, rows, "rows")
        yield from kept

    def _made(self) -> Iterator[TokenTable]:
        tally = Tally(self._reading)
        starts: list[int] = []
        counts = {"rows": 0, "tokens": 0, "refused": 0}
        start = 0
        for part in slices(self._examples(tally)):
            table = tokenise(self._using, part, self._pairs)
            self._keep(start, table)
            starts.append(start)
            start += len(part)
            for name, more in (("rows", len(table)), ("tokens", len(table.ids)), ("refused", len(table.refused))):
                counts[name] += more
            yield table
        if not tally.usable:
            tally.report("")  # says in one line why there is nothing
        self._tell.stage("preparing", "Tokenising rows", start, start, "rows")
        if self._entry and self._source:
            with suppress(OSError):
                self._entry.finish(starts, {**self._source.about(), **counts})

    def _examples(self, tally: Tally) -> Iterator[Example]:
        """The usable rows, looking up now and then; progress in the file's bytes, whose number is known."""
        size = self._reading.source.path.stat().st_size
        for row in self._reading.rows():
            tally.add(row)
            if tally.rows % 64 == 0:
                self._orders.check()
                read = min(self._reading.source.place.bytes, size)
                self._tell.stage("preparing", "Tokenising rows", read, size, "bytes")
            if isinstance(row, Example):
                yield row

    def _keep(self, start: int, table: TokenTable) -> None:
        """A cache that cannot be written (a full disk) costs the next run time, and this one nothing."""
        if self._entry:
            with suppress(OSError):
                table.save(self._entry.open().part(start))


def _kept(reading: Reading, choice: DataChoice, tokenizer: Any, pairs: bool) -> tuple[Source | None, Entry | None]:
    """The source of these rows and its entry; none for a tokenizer that was not read from a folder."""
    named = str(getattr(tokenizer, "name_or_path", "") or "")
    folder = Path(named)
    if not named or not folder.is_dir():
        return None, None
    path = reading.source.path
    source = Source(file_sha256(path), path.name, choice, folder.resolve(), pairs)
    return source, entry_of(Locations.find(), source)


def _add_texts(rows: TextRows, numbers: array[int], table: TokenTable, max_length: int) -> Iterable[RowProblem]:
    def add(row: TokenRow) -> None:
        rows.append(row.input_ids, row.labels)
        numbers.append(row.row)

    return cut_rows(table, max_length, add)


def _add_pairs(rows: PairRows, numbers: array[int], table: TokenTable, max_length: int) -> Iterable[RowProblem]:
    sides = table.items()
    for chosen, rejected in zip(sides, sides, strict=True):
        prompt, good, bad = cut_pair(chosen, rejected, max_length)
        if prompt and good and bad:
            rows.append(prompt, good, bad)
            numbers.append(chosen.row)
        else:
            text = f"no answer is left of it within {max_length:,} tokens"
            yield RowProblem(row=chosen.row, code="row.cut_away", text=text)


def _facts(rows: AnyRows, max_length: int, kin: list[list[int]]) -> DataFacts:
    numbers = range(len(rows))
    pair = 2 if isinstance(rows, PairRows) else 1
    lengths = tuple(rows.length(row) // pair for row in numbers)
    return DataFacts(
        rows=len(rows),
        lengths=lengths,
        trained=tuple(rows.trained(row) for row in numbers),
        max_length=max_length,
        longest=max(lengths),
        mean=sum(lengths) / len(lengths),
        kin=tuple(map(tuple, kin)),
    )
