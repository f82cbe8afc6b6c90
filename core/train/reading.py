"""The run's data file, tokenised by the code that the preview shows rows with: what is seen there is trained here.

The file itself is read by the reader, behind its memory wall (``core.data.service.checked``), as before the run was
started. Done before a model is loaded: data that trains nothing must not cost a download or a minute of loading. What
was tokenised before (by the studio, or by an earlier run) is taken from the token cache; what is tokenised here is left
there.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice, RunConfig
from core.contract.data import DataFacts, DataReport, Example, RowProblem, TokenRow
from core.contract.errors import DataError, MachineError
from core.data.deal.split import held_out_rows, places_of, split_rows
from core.data.files.example_file import examples_in
from core.data.render.renderer import renderer
from core.data.render.rendering import cut_pair, cut_rows, tokenise
from core.data.service.checked import checked
from core.data.service.doctor import Doctor
from core.data.service.reader import ReadFile
from core.data.tokens.cache import Entry, Source, entry_of, settled, slices
from core.data.tokens.table import TokenTable
from core.machine.locations import Locations
from core.train.channel.command_queue import CommandQueue
from core.train.channel.disk_full import Room
from core.train.channel.reporter import EventReporter
from core.train.keep.kept_rows import KeptRows
from core.train.safety.guard import require_targets
from core.train.step.rows import PairRows, TextRows, rows_for

__all__ = ["RunData", "read_data"]

_SHOWN = 3
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


def read_data(
    config: RunConfig, tokenizer: Any, tell: EventReporter, orders: CommandQueue, kept: KeptRows | None = None
) -> RunData:
    """Reads, tokenises and splits the run's file; split as it was at first, where that is ``kept``. A full disk is
    waited out.

    Raises:
        DataError: the file cannot be read, or nothing in it can be trained on.
        RunError: its rows are not those that the run began with.
        Leave: somebody asked to pause or stop.
    """
    room = kept.room if kept else Room(tell, orders)
    found = room.until(lambda: _found(config, tell, orders))
    tables = _Tables(found, config, tokenizer, tell, orders)
    rows = rows_for(config.learning)
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
    kin = places_of(numbers, room.until(lambda: _kin(found, config, tell, orders)))
    drawn = split_rows(len(rows), config.data, config.train.seed, kin)
    train, held_out = kept.agree(rows, numbers, drawn) if kept else drawn
    facts = _facts(rows, config.train.max_length, kin)
    return RunData(rows.take(train), rows.take(held_out), facts, array("q", (numbers[row] for row in train)))


def _found(config: RunConfig, tell: EventReporter, orders: CommandQueue) -> ReadFile:
    """What the reader says of the file, and where it left its Examples."""
    tell.stage("preparing", "Reading the data")

    def told(done: int, total: int, _rows: int) -> None:
        tell.stage("preparing", "Reading the data", done, total, "bytes")

    with _heard(orders):
        return checked(Path(config.data.path), config.data, Locations.find(), told, lambda: orders.leaving)


@contextmanager
def _heard(orders: CommandQueue) -> Iterator[None]:
    """A child that was ended since somebody asked to leave is no fault; one that found the disk full tells of the
    machine, not of the data."""
    try:
        yield
    except DataError as error:
        if error.code == "data.stopped":
            orders.check()
        if error.code == "disk.full":
            raise MachineError(error.code, error.message, "Make room on this disk.") from error
        raise


def _kin(found: ReadFile, config: RunConfig, tell: EventReporter, orders: CommandQueue) -> tuple[tuple[int, ...], ...]:
    """Rows of the file that belong on one side of the split, as the window found them, else found now."""
    if not held_out_rows(found[0].usable, config.data):
        return ()
    doctor = Doctor(Locations.find())

    def told(rows: int) -> None:
        tell.stage("preparing", "Looking for repeated rows", rows)

    try:
        with _heard(orders):
            return doctor.groups(found, config.data, told, lambda: orders.leaving).rows
    finally:
        doctor.child.close()


class _Tables:
    """The file's rows as token tables, from the cache or made here; what is made here is kept there."""

    def __init__(
        self,
        found: ReadFile,
        config: RunConfig,
        tokenizer: Any,
        tell: EventReporter,
        orders: CommandQueue,
    ) -> None:
        self._report, self._place = found
        self._pairs = config.learning.answers > 1
        choice = settled(config.data, self._report.layout, self._report.mapping)
        self._source, self._entry = _kept(self._report, choice, tokenizer, self._pairs)
        self._using = renderer(tokenizer, choice)
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
        starts: list[int] = []
        counts = {"rows": 0, "tokens": 0, "refused": 0}
        start = 0
        for part in slices(self._examples()):
            table = tokenise(self._using, part, self._pairs)
            self._keep(start, table)
            starts.append(start)
            start += len(part)
            for name, more in (("rows", len(table)), ("tokens", len(table.ids)), ("refused", len(table.refused))):
                counts[name] += more
            yield table
        self._tell.stage("preparing", "Tokenising rows", start, start, "rows")
        if self._entry and self._source:
            with suppress(OSError):
                self._entry.finish(starts, {**self._source.about(), **counts})

    def _examples(self) -> Iterator[Example]:
        """The usable rows, looking up now and then."""
        for number, example in enumerate(examples_in(Path(self._place))):
            if number % 64 == 0:
                self._orders.check()
                self._tell.stage("preparing", "Tokenising rows", number, self._report.usable, "rows")
            yield example

    def _keep(self, start: int, table: TokenTable) -> None:
        """A cache that cannot be written (a full disk) costs the next run time, and this one nothing."""
        if self._entry:
            with suppress(OSError):
                table.save(self._entry.open().part(start))


def _kept(report: DataReport, choice: DataChoice, tokenizer: Any, pairs: bool) -> tuple[Source | None, Entry | None]:
    """The source of these rows and its entry; none for a tokenizer that was not read from a folder."""
    named = str(getattr(tokenizer, "name_or_path", "") or "")
    folder = Path(named)
    if not named or not folder.is_dir():
        return None, None
    source = Source(report.sha256, Path(report.path).name, choice, folder.resolve(), pairs)
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
        others=tuple(rows.tokens(row) - lengths[row] for row in numbers) if pair == 2 else (),
        kin=tuple(map(tuple, kin)),
    )
