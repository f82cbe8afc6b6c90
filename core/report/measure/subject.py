"""What a report is on: the run's rows, and its model as the base and as finetuned, measured in turns."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import torch

from core.chat.client import checkpoint_folder
from core.contract.config import RunConfig
from core.contract.errors import Fault, ModelError, RunError
from core.data.render.chat_tokens import apply_template_to, load_tokenizer
from core.machine.hardware import read_machine
from core.machine.locations import Locations
from core.model.adapters import Trained
from core.model.attention.packed import keeps_apart
from core.model.faults import is_out_of_memory
from core.model.layers import surgery
from core.model.layers.checkpointing import set_checkpointing
from core.model.layers.loss import LossModel
from core.model.layers.peft_bnb import base_causal_model
from core.model.learners import Onto, opened
from core.model.loading.load import ensure_padding
from core.model.scores import ScoreHead, load_model, products_dtype
from core.models.catalog import find_model
from core.models.checks.adapter import check_adapter
from core.models.checks.folder import check_folder
from core.models.encoders import encoder_of
from core.models.outputs import read_outputs
from core.report.measure.budget import Slot
from core.runs.control.gpu_lease import GiveWay
from core.runs.folder.held_out_rows import draw_path, kept_draw
from core.runs.folder.job_folder import JobFolder
from core.runs.record.job_record import RunRecord, effective_config, folded
from core.train.channel.channel import Channel
from core.train.channel.command_queue import CommandQueue, Leave, NoCommands
from core.train.channel.reporter import EventReporter
from core.train.keep.checkpoint import verify
from core.train.keep.depends import KeptRows
from core.train.reading import RunData, read_data
from core.train.run import device_for
from core.train.safety.memory import cap_allocator, let_go_of
from core.train.step.batches import pack, pad
from core.train.step.rows import IGNORED, Rows, Tokens

Item = TypeVar("Item")
Found = TypeVar("Found")
_TOGETHER = 32
"""Items measured before the sides change where every weight was trained: the base's weights are then copied over."""


@dataclass(frozen=True)
class Paired:
    """One item, measured after training and, where there is something to compare with, before it."""

    item: Any
    after: Any
    before: Any = None


@dataclass(frozen=True)
class Subject:
    """A run's model and rows. ``no_data`` says why there are no rows, where there are none."""

    run: JobFolder
    config: RunConfig
    record: RunRecord
    checkpoint: Path
    trained: Trained
    tokenizer: Any
    dtype: torch.dtype | None
    data: RunData | None
    no_data: str
    untrained: Callable[[], Any]
    safe_point: Callable[[], object]
    """Raises where the job is to leave."""
    tell: Any
    """An ``EventReporter``."""
    too_large: list[object] = field(default_factory=list)
    """Items of the present part for which memory did not suffice."""
    _loss: list[LossModel] = field(default_factory=list)
    _swapped: list[surgery.Applied] = field(default_factory=list)
    """Layers of ours that stand for the model's, for now."""

    @property
    def model(self) -> Any:
        """With its adapter, in evaluation mode."""
        return self.trained.model

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        found: torch.device = next(self.model.parameters()).device
        return found

    @property
    def scores(self) -> bool:
        """Whether it gives scores, so that there is nothing before."""
        return self.trained.outputs is not None

    @cached_property
    def numbers(self) -> list[int]:
        """The number in the data file of each held-out row."""
        draw = kept_draw(self.run.path)
        known = draw.numbers if draw else []
        count = len(self.data.held_out) if self.data else 0
        return list(known) if len(known) == count else list(range(1, count + 1))

    def drawn(self, count: int, most: int = 0) -> list[int]:
        """Places of ``count`` rows in an order that follows from the run's seed, so that a part of them tells of all;
        the first ``most`` of them."""
        order = list(range(count))
        random.Random(f"report:{self.config.train.seed}").shuffle(order)  # noqa: S311 - no secret
        return order[: most or count]

    def paired(
        self,
        groups: Sequence[Sequence[Item]],
        measure: Callable[[Sequence[Item]], Sequence[Found | None]],
        slot: Slot,
        together: int = _TOGETHER,
    ) -> Iterator[Paired]:
        """Groups of items in order while the slot has time, both sides of each; an item of which ``measure`` finds
        nothing, or that does not fit in memory, is left out.

        Args:
            measure: what it finds of each item of a group.
            together: about as many items are measured before the sides change where every weight was trained.
        """
        for items in self._between_changes(groups, together):
            if not slot.fits():
                return
            after = [found for group in items for found in self.tried_all(measure, group)]
            before: list[Found | None] = [None for _ in after]
            if not self.scores:
                with self.trained.reference() if self._swapped else self.trained.base():
                    before = [found for group in items for found in self.tried_all(measure, group)]
            for item, one, other in zip(chain(*items), after, before, strict=True):
                if one is not None and (self.scores or other is not None):
                    yield Paired(item, one, other)

    @contextmanager
    def in_tiles(self, rows: Rows, chosen: Sequence[int]) -> Iterator[None]:
        """While these rows are measured: where one is longer than the run's tiles, layers of ours go through it in
        tiles, as they did in training. The base is then the model with its adapter's scale at 0, on the same layers."""
        tile, learns = max(0, self.config.train.tile_tokens), self.config.learns
        try:
            if tile and learns.adapter and not learns.ends and any(rows.length(row) > tile for row in chosen):
                plan = surgery.plan(self.model, self.config.train.kernels)
                if plan.fast:
                    self._swapped.append(surgery.apply(self.model, plan))
                    set_checkpointing(self.model, "none", tile_tokens=tile)
            yield
        finally:
            while self._swapped:
                surgery.undo(self._swapped.pop())

    def _between_changes(self, groups: Sequence[Sequence[Item]], together: int) -> Iterator[list[Sequence[Item]]]:
        held: list[Sequence[Item]] = []
        for group in groups:
            held.append(group)
            if not self.config.learns.base or sum(map(len, held)) >= together:
                yield held
                held = []
        if held:
            yield held

    def tried_all(
        self, measure: Callable[[Sequence[Item]], Sequence[Found | None]], group: Sequence[Item]
    ) -> list[Found | None]:
        """What ``measure`` finds of each, in halves where memory runs out; None where one alone does not fit."""
        self.safe_point()
        try:
            with torch.no_grad():
                return list(measure(group))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            let_go_of(error)
        if len(group) == 1:
            self.too_large.append(group[0])
            return [None]
        half = len(group) // 2
        return [*self.tried_all(measure, group[:half]), *self.tried_all(measure, group[half:])]

    def tried(self, measure: Callable[[Item], Found | None], item: Item) -> Found | None:
        """The same of one item."""
        return self.tried_all(lambda group: [measure(group[0])], [item])[0]

    def batch(self, sequences: Sequence[Tokens]) -> dict[str, Any]:
        """What the model reads of these."""
        config = base_causal_model(self.model).config
        if encoder_of(config) is not None or keeps_apart(config):
            return pack(sequences, self.device)
        return pad(sequences, self.tokenizer.pad_token_id, self.device)

    def losses(self, sequences: Sequence[Tokens]) -> list[tuple[float, int]]:
        """Of each sequence the sum of its targets' losses and their number, by the loss of the run."""
        if not self._loss:
            self._loss.append(LossModel(self.model))
        losses = self._loss[0](**self.batch(sequences)).float()
        parts = losses.split([one.own for one in sequences], 1) if len(losses) == 1 else losses.split(1)
        return [
            (float(part.sum()), int((one.labels[1:] != IGNORED).sum()))
            for part, one in zip(parts, sequences, strict=True)
        ]


class _Steered(CommandQueue):
    """Commands of which every safe point is the report's own, which looks at the card too."""

    def __init__(self, orders: CommandQueue, reporter: EventReporter, safe_point: Callable[[], object]) -> None:
        super().__init__(NoCommands(), reporter)
        self._orders, self._safe_point = orders, safe_point

    @property
    def leaving(self) -> bool:
        try:
            self._safe_point()
        except (Leave, GiveWay):
            return True
        return self._orders.leaving

    def check(self) -> None:
        self._safe_point()
        self._orders.check()


def open_subject(
    run: JobFolder, checkpoint: str, told: tuple[EventReporter, CommandQueue], safe_point: Callable[[], object]
) -> Subject:
    """Reads the run's rows and loads its model.

    Raises:
        Fault: checkpoint, base model or machine cannot be used.
        Leave, GiveWay: as ``safe_point`` does.
    """
    channel = Channel(told[0], _Steered(told[1], told[0], safe_point))
    record = folded(run)
    config = effective_config(run.config(), record.corrections)
    chosen = checkpoint_folder(run, checkpoint)
    if problem := verify(chosen):
        raise RunError("checkpoint.damaged", name=chosen.name, problem=problem)
    spec = find_model(config.model.source, config.model.name, config.model.revision)
    if not spec.folder:
        raise ModelError("model.not_here/report", title=spec.title)
    place, trained_folder = Path(spec.folder), chosen / config.learns.folder
    check_folder(place)
    if config.learns.adapter:
        check_adapter(trained_folder)
    else:
        check_folder(trained_folder, tokenizer=False)
    outputs = read_outputs(trained_folder) if config.learning.task.scores else None
    device = device_for(config.train.seed)
    cap_allocator(config.train.memory_gib, device, read_machine().wsl)
    tokenizer = ensure_padding(load_tokenizer(place))
    apply_template_to(tokenizer, config.data)
    data, no_data = _rows(run, config, tokenizer, channel)

    def loading(done: int, total: int) -> None:
        channel.reporter.stage("loading", spec.title, done, total, "bytes")
        safe_point()

    head = ScoreHead(outputs) if outputs else None
    cache_folder = Locations.find().cache
    loaded = load_model(place, config.model, device, head, on_progress=loading, cache=cache_folder)
    again = config.model.model_copy(update={"dtype": loaded.dtype_name})

    @cache
    def untrained() -> Any:
        return load_model(place, again, torch.device("cpu"), head).model

    trained = opened(config.train.learns, Onto(loaded.model, untrained, trained_folder, outputs=outputs))
    trained.model.eval()
    dtype = products_dtype(config.model.dtype, device) if outputs else None
    if data and outputs:
        data = data.scaled(outputs)
    parts = (run, config, record, chosen, trained, tokenizer, dtype, data, no_data, untrained, safe_point)
    return Subject(*parts, channel.reporter)


def _rows(run: JobFolder, config: RunConfig, tokenizer: Any, channel: Channel) -> tuple[RunData | None, str]:
    """The run's rows, split as they were; without them a report says less. Another draw than the run's is never taken,
    also not for a run that went on anyway: rows that it learned from would count as held out."""
    try:
        return read_data(config, tokenizer, channel, KeptRows(draw_path(run.path), config, channel)), ""
    except Fault as fault:
        return None, fault.message
