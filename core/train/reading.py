"""The run's data file, read by the reader's child, tokenised by the preview's code or taken from the token cache.

Done before a model is loaded, so that unusable data costs no download.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from core.contract.config import RunConfig
from core.contract.data import DataFacts, Example, RowProblem, TokenRow
from core.contract.errors import DataError, MachineError
from core.contract.tasks import Outputs
from core.data.deal.split import held_out_rows, places_of, split_rows
from core.data.read.labels import outputs_of
from core.data.render.chat_tokens import cut_pair, cut_rows, tokenise
from core.data.render.renderer import renderer
from core.data.service.checked import checked
from core.data.service.doctor import Doctor
from core.data.service.reader import ReadFile
from core.data.tokens.cache import Source, entry_of, settled, slices
from core.data.tokens.table import TokenTable
from core.machine.locations import Locations
from core.machine.textfile import one_line
from core.train.channel.channel import Channel
from core.train.keep.depends import Split
from core.train.safety.guard import require_targets
from core.train.step.rows import LabelRows, MarkedRows, PairRows, Rows, TextRows, rows_for

_SHOWN = 3


@dataclass(frozen=True)
class RunData:
    """What is trained on and what is held out."""

    train: Rows
    held_out: Rows
    facts: DataFacts
    numbers: Sequence[int] = ()
    """Number in the user's file of each row to train on."""
    outputs: Outputs | None = None
    """The scores that a model of them gives, where it gives scores."""

    def scaled(self, start: Outputs | None) -> RunData:
        """The same with numbers near 0 as scores: by what was trained before, or by the rows to train on."""
        if not isinstance(self.train, LabelRows):
            return self
        outputs = self.train.standardised()
        if start is not None:
            outputs = replace(outputs, mean=start.mean, scale=start.scale)
        for rows in (self.train, self.held_out):
            assert isinstance(rows, LabelRows)
            rows.outputs = outputs
        return replace(self, outputs=outputs)

    @property
    def trained_tokens(self) -> int:
        """Targets of one epoch."""
        return sum(map(self.train.trained, range(len(self.train))))


class KeepsRows(Protocol):
    """The split of a run's first attempt: ``core.train.keep.depends.KeptRows``."""

    def agree(self, rows: Rows, numbers: Sequence[int], drawn: Split) -> Split:
        """Rows to train on and rows held out."""


def read_data(config: RunConfig, tokenizer: Any, channel: Channel, kept: KeepsRows | None = None) -> RunData:
    """Reads, tokenises and splits the run's file, as at the first attempt where that is ``kept``. A full disk is
    waited out.

    Raises:
        DataError: the file cannot be read, or nothing in it can be trained on.
        RunError: its rows are not those that the run began with.
        Leave: pause or stop.
    """
    read = channel.until_disk_takes(lambda: _read(config, channel))
    outputs = outputs_of(config, read.report)
    rows = rows_for(config.learning, outputs)
    numbers = array("q")
    refused: list[RowProblem] = []
    for table in _tables(read, config, tokenizer, channel):
        channel.commands.check()
        refused += table.refused
        refused += _ADDED[type(rows)](rows, numbers, table, config.train.max_length)
    if refused:
        refused.sort(key=lambda problem: problem.row)
        shown = "; ".join(f"row {problem.row}: {problem.text}" for problem in refused[:_SHOWN])
        more = " …" if len(refused) > _SHOWN else ""
        channel.reporter.note("data.refused", f"{len(refused)} rows are left out ({shown}{more}).")
    trained = sum(rows.trained(row) for row in range(len(rows)))
    require_targets(trained, len(rows) + len(refused), config.train.max_length)
    groups = places_of(numbers, channel.until_disk_takes(lambda: _split_groups(read, config, channel)))
    drawn = split_rows(len(rows), config.data, config.train.seed, groups)
    train, held_out = kept.agree(rows, numbers, drawn) if kept else drawn
    _tell_missing_labels(rows, train, held_out, channel)
    facts = _facts(rows, config.train.max_length, groups).giving(outputs)
    taken = array("q", (numbers[row] for row in train))
    return RunData(rows.take(train), rows.take(held_out), facts, taken, outputs)


def _tell_missing_labels(rows: Rows, train: Sequence[int], held_out: Sequence[int], channel: Channel) -> None:
    """Says which labels no held-out row has, so that nothing is measured of them, or no row that is trained on."""
    if not isinstance(rows, LabelRows) or not held_out or rows.outputs.problem == "regression":
        return
    for part, lacks in ((held_out, "held-out row (nothing is measured of that)"), (train, "row to learn from")):
        counts = rows.take(part).counts().tolist()
        missing = [name for name, count in zip(rows.outputs.names, counts, strict=True) if not count]
        if missing:
            shown = ", ".join(repr(one_line(name, 40)) for name in missing[:_SHOWN])
            labels = "1 label has" if len(missing) == 1 else f"{len(missing):,} labels have"
            more = " …" if len(missing) > _SHOWN else ""
            channel.reporter.note("data.labels_apart", f"{labels} no {lacks}: {shown}{more}.")


def _read(config: RunConfig, channel: Channel) -> ReadFile:
    """The reader's report on the file, and the path of its Examples."""

    def progress(done: int, total: int, _rows: int = 0) -> None:
        channel.reporter.stage("preparing", "Reading the data", done, total, "bytes")

    channel.reporter.stage("preparing", "Reading the data")
    with _faults_told_apart(channel):
        leaving = lambda: channel.commands.leaving  # noqa: E731
        return checked(
            Path(config.data.path), config.data, Locations.find(), progress, leaving, config.trained_method
        )  # fmt: skip


@contextmanager
def _faults_told_apart(channel: Channel) -> Iterator[None]:
    """Turns a child's ``DataError`` into ``Leave`` where that ended it, and into a MachineError for a full disk."""
    try:
        yield
    except DataError as error:
        if error.code == "data.stopped":
            channel.commands.check()
        if error.code == "disk.full":
            raise MachineError.told_by(error.told(), hint="Make room on this disk.") from error
        raise


def _split_groups(read: ReadFile, config: RunConfig, channel: Channel) -> tuple[tuple[int, ...], ...]:
    """Rows of the file that belong on one side of the split, from the doctor's cache or computed now."""
    if not held_out_rows(read[0].usable, config.data):
        return ()
    doctor = Doctor(Locations.find())

    def progress(rows: int) -> None:
        channel.reporter.stage("preparing", "Looking for repeated rows", rows)

    try:
        with _faults_told_apart(channel):
            return doctor.groups(read, config.data, progress, lambda: channel.commands.leaving).rows
    finally:
        doctor.child.close()


def _tables(read: ReadFile, config: RunConfig, tokenizer: Any, channel: Channel) -> Iterator[TokenTable]:
    """The file's rows as token tables, from the token cache or made and cached now."""
    report = read.report
    reads = config.learning.reads(report.layout)
    choice = settled(config.data, report.layout, report.mapping, reads)
    folder = Path(named) if (named := str(getattr(tokenizer, "name_or_path", "") or "")) else None
    source = None  # a tokenizer that was not read from a folder has no entry in the cache
    if folder is not None and folder.is_dir():
        source = Source(report.sha256, Path(report.path).name, choice, folder.resolve(), reads, report.left_out)
    entry = entry_of(Locations.find(), source) if source else None
    if entry and (cached := entry.tables()) is not None:
        count = sum(map(len, cached))
        channel.reporter.stage("preparing", "Rows tokenised before", count, count, "rows")
        yield from cached
        return
    using, starts, start = renderer(tokenizer, choice), [], 0
    counts = {"rows": 0, "tokens": 0, "refused": 0}
    for part in slices(_examples(read, channel)):
        table = tokenise(using, part, reads)
        if entry:
            with suppress(OSError):  # without a cache the run goes on as well
                table.save(entry.open().part(start))
        starts.append(start)
        start += len(part)
        for name, more in (("rows", len(table)), ("tokens", len(table.ids)), ("refused", len(table.refused))):
            counts[name] += more
        yield table
    channel.reporter.stage("preparing", "Tokenising rows", start, start, "rows")
    if entry and source:
        with suppress(OSError):
            entry.finish(starts, {**source.about(), **counts})


def _examples(read: ReadFile, channel: Channel) -> Iterator[Example]:
    """The usable rows, with a safe point at every 64th."""
    for number, example in enumerate(read.rows()):
        if number % 64 == 0:
            channel.commands.check()
            channel.reporter.stage("preparing", "Tokenising rows", number, read.report.usable, "rows")
        yield example


def _add_texts(rows: TextRows, numbers: array[int], table: TokenTable, max_length: int) -> Iterable[RowProblem]:
    def add(row: TokenRow) -> None:
        rows.append(row.input_ids, row.labels)
        numbers.append(row.row)

    return cut_rows(table, max_length, add)


def _add_marked(rows: MarkedRows, numbers: array[int], table: TokenTable, max_length: int) -> Iterable[RowProblem]:
    for item in table.items():
        prompt, answer, _ = cut_pair(item, item, max_length)
        if prompt and answer and item.mark is not None:
            rows.append(prompt, answer, item.mark)
            numbers.append(item.row)
        else:
            yield _cut_away(item.row, max_length)


def _add_pairs(rows: PairRows, numbers: array[int], table: TokenTable, max_length: int) -> Iterable[RowProblem]:
    sides = table.items()
    for chosen, rejected in zip(sides, sides, strict=True):
        prompt, good, bad = cut_pair(chosen, rejected, max_length)
        if prompt and good and bad:
            rows.append(prompt, good, bad, chosen.margin)
            numbers.append(chosen.row)
        else:
            yield _cut_away(chosen.row, max_length)


def _cut_away(row: int, max_length: int) -> RowProblem:
    return RowProblem(row=row, code="row.cut_away", text=f"no answer is left of it within {max_length:,} tokens")


def _add_labelled(rows: LabelRows, numbers: array[int], table: TokenTable, max_length: int) -> Iterable[RowProblem]:
    for item in table.items():
        ((row, _, _),) = item.cut(max_length)
        try:
            rows.append(row.input_ids, item.labels)
            numbers.append(item.row)
        except (KeyError, ValueError, IndexError):
            wanted = "a number" if rows.outputs.problem == "regression" else "a known label"
            text = f"expected {wanted}, found {', '.join(map(repr, item.labels)) or 'none'}"
            yield RowProblem(row=item.row, code="row.type", text=text)


_ADDED: dict[type[Rows], Callable[[Any, array[int], TokenTable, int], Iterable[RowProblem]]] = {
    TextRows: _add_texts,
    PairRows: _add_pairs,
    MarkedRows: _add_marked,
    LabelRows: _add_labelled,
}
"""How a table's rows are added to those of a method."""


def _facts(rows: Rows, max_length: int, groups: list[list[int]]) -> DataFacts:
    numbers = range(len(rows))
    sides = [rows.side_lengths(row) for row in numbers]
    lengths = tuple(map(max, sides))
    return DataFacts(
        rows=len(rows),
        lengths=lengths,
        trained=tuple(rows.trained(row) for row in numbers),
        max_length=max_length,
        longest=max(lengths),
        mean=sum(lengths) / len(lengths),
        others=tuple(map(min, sides)) if rows.sides > 1 else (),
        split_groups=tuple(map(tuple, groups)),
    )
