"""Measures a few steps of a run's own model and trainer on its longest step.

All is as in a run (``core.train.setup.make_trainer``), except the rows, which are random tokens of the right lengths,
and the learning rate, which is too small to change a weight. A model that is not on this machine yet is replaced by
random weights of its shape.

The first long step is not timed: it allocates memory and compiles kernels.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.errors import MachineError, ModelError, first_line
from core.contract.events import Event
from core.contract.tasks import REWARD, Outputs
from core.data.render.chat_tokens import load_tokenizer
from core.machine.locations import Locations
from core.model.adapters import Trained
from core.model.learners import LEARNERS, Onto
from core.model.loading.load import LoadedModel, ensure_padding
from core.model.scores import ScoreHead, load_model, random_for
from core.models.catalog import STARTER
from core.models.checks.folder import check_folder
from core.train.attempt import Attempt, Subject
from core.train.channel.meter import context_bytes, peak_bytes
from core.train.channel.reporter import EventReporter
from core.train.safety.memory import Taken, spill_factor
from core.train.setup import make_trainer
from core.train.step.rows import Rows, rows_for

SHORT = 4
"""Rows of a short step are so many times shorter."""
LOWEST_ID = 3
"""Many vocabularies have special tokens below it."""
LEAST_TOKENS = 4
STILL = 1e-12
"""A learning rate that changes no float32 weight."""
_LABELS = Outputs(("a", "b"))
"""Of made-up rows: a score more takes no memory to speak of."""
Say = Callable[[str, str], None]


@dataclass(frozen=True)
class InTurn:
    """A ``Sampler`` of one epoch with these batches, one a step."""

    batches: tuple[Sequence[int], ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(map(len, self.batches))

    def __len__(self) -> int:
        return len(self.batches)

    def after(self, step: int) -> list[int] | None:
        """The rows of the next step after ``step`` steps; None after the last."""
        return list(self.batches[step]) if step < len(self.batches) else None


@dataclass(frozen=True)
class Steps:
    """Number of short steps, greatest number of long ones (at least 2), and seconds for those after the first."""

    short: int
    long: int
    seconds: float


@dataclass
class Measured:
    """What was measured. Peaks are those of the training steps; on the CPU the resident size."""

    lines: list[str] = field(default_factory=list)
    load_seconds: float = 0.0
    loading_peak_bytes: int = 0
    short: list[Taken] = field(default_factory=list)
    long: list[Taken] = field(default_factory=list)
    peak_allocated_bytes: int = 0
    peak_reserved_bytes: int = 0
    context_bytes: int | None = None
    total_bytes: int | None = None

    @property
    def timed(self) -> list[Taken]:
        """The long steps without the first, if there are several."""
        return self.long[1:] or self.long

    @property
    def seconds_a_step(self) -> float:
        """Median of the timed steps."""
        return statistics.median(step.seconds for step in self.timed)

    @property
    def tokens_per_second(self) -> float:
        """Median of the timed steps' real tokens over ``seconds_a_step``, so that both figures agree."""
        return statistics.median(step.tokens for step in self.timed) / self.seconds_a_step

    @property
    def spilled(self) -> bool:
        """Whether the card's memory spilled into the machine's (Windows): tokens take longer than in a short step."""
        tokens, held = round(self.tokens_per_second * self.seconds_a_step), self.peak_reserved_bytes
        free = min((step.free_bytes for step in self.timed if step.free_bytes is not None), default=None)
        usual = tokens * self.short[-1].seconds / self.short[-1].tokens if len(self.short) > 1 else None
        return spill_factor(Taken(tokens, self.seconds_a_step, free, held, self.total_bytes), usual) > 0


def measure_steps(
    config: RunConfig,
    spec: ModelSpec,
    lengths: Sequence[int],
    device: torch.device,
    steps: Steps,
    say: Say = lambda _stage, _text: None,
) -> Measured:
    """Loads the model and trains a few steps.

    Args:
        config: without automatic values.
        lengths: of the longest step's rows (``core.proof.probe.longest``).
        say: gets each stage (``loading``, ``stepping``) with a line for people.

    Raises:
        MachineError: the card was too small; ``probe.memory`` in the steps, ``model.memory`` while loading.
        Fault: the model cannot be used.
    """
    still = {"learning_rate": STILL, "weight_decay": 0.0, "eval_steps": 0, "save_steps": 0, "save_minutes": 0.0}
    train = {**still, "sample_rows": 0, "max_steps": steps.short + steps.long, "num_train_epochs": 1000.0}
    config = config.model_copy(update={"train": config.train.model_copy(update=train), "resume_from": ""})
    seen = Measured()
    try:
        _reset(device)
        begun = time.perf_counter()
        say("loading", spec.title)
        loaded = _load(config, spec, device)
        trained = LEARNERS[config.train.learns](Onto(loaded.model, lambda: loaded.model), config)
        _synchronize(device)
        seen.load_seconds, seen.loading_peak_bytes = time.perf_counter() - begun, peak_bytes(device)[0]
        _reset(device)
        say("stepping", f"{sum(lengths):,} tokens a step")
        _train(config, (loaded, trained), lengths, steps, seen)
    except torch.OutOfMemoryError as error:
        raise MachineError("probe.memory", tokens=sum(lengths)) from error
    return seen


def _train(
    config: RunConfig, models: tuple[LoadedModel, Trained], lengths: Sequence[int], steps: Steps, seen: Measured
) -> None:
    loaded, trained = models
    device = next(trained.model.parameters()).device
    rows = made_rows(config, lengths, int(loaded.model.config.vocab_size))
    every = range(len(rows))
    sampler = InTurn((*[every[: len(lengths)]] * steps.short, *[every[len(lengths) :]] * steps.long))
    tokenizer = loaded.tokenizer or ensure_padding(load_tokenizer(STARTER))
    with tempfile.TemporaryDirectory(prefix="luthier-probe-") as place:
        made = make_trainer(config, Path(place), trained, (loaded, tokenizer), rows, sampler)
        seen.lines = [loaded.line, *made.lines]
        subject = Subject(config, made.trainer, tokenizer, rows.take([]))
        attempt = Attempt.unsteered(subject, EventReporter(_Unheard()))
        made.trainer.add_callback(
            _Clock(
                seen,
                [sum(rows.tokens(row, made.trainer.packed) for row in batch) for batch in sampler.batches],
                steps,
                device,
            )
        )
        try:
            attempt.train()
        finally:
            seen.peak_allocated_bytes, reserved = peak_bytes(device)
            seen.peak_reserved_bytes = seen.peak_allocated_bytes if reserved is None else reserved
            seen.context_bytes = context_bytes(device)
            seen.total_bytes = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else None


def _load(config: RunConfig, spec: ModelSpec, device: torch.device) -> LoadedModel:
    chosen, labels = config.model, _LABELS if config.learning.labelled else REWARD
    head = ScoreHead(labels) if config.learning.task.scores else None
    if spec.folder:
        check_folder(Path(spec.folder))
        return load_model(Path(spec.folder), chosen, device, head, cache=Locations.find().cache)
    try:
        return random_for(spec, chosen, device, head, config.train.seed)
    except (ValueError, TypeError) as error:  # transformers does not know the type, or needs more than a shape
        raise ModelError("probe.shape", title=spec.title, reason=first_line(error)) from error


class _Clock(TrainerCallback):
    """Times each step with a synchronised card, and ends training when the seconds are over."""

    def __init__(self, seen: Measured, tokens: Sequence[int], steps: Steps, device: torch.device) -> None:
        self._seen, self._tokens, self._steps, self._device = seen, tokens, steps, device
        self._last = self._begun = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Starts the clock."""
        _synchronize(self._device)
        self._last = time.perf_counter()

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        """Notes the step's time."""
        _synchronize(self._device)
        now, step = time.perf_counter(), int(state.global_step)
        free = torch.cuda.mem_get_info(self._device)[0] if self._device.type == "cuda" else None
        taken, long = Taken(self._tokens[step - 1], now - self._last, free), step - self._steps.short
        (self._seen.long if long > 0 else self._seen.short).append(taken)
        if long == 1:
            self._begun = now  # seconds count from the end of the first long step
        elif long > 1 and now - self._begun + taken.seconds > self._steps.seconds:
            control.should_training_stop = True
        self._last = time.perf_counter()


class _Unheard:
    """An event writer that drops its events."""

    def write(self, event: Event) -> Event:
        return event


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _reset(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def made_rows(config: RunConfig, lengths: Sequence[int], vocabulary: int) -> Rows:
    """Rows of random tokens: those of a short step, then those of a long one; every token is trained."""
    draw = random.Random(config.train.seed)  # noqa: S311 - no secret
    rows: Rows = rows_for(config.learning, _LABELS)
    for length in [*(max(LEAST_TOKENS, length // SHORT) for length in lengths), *lengths]:
        ids = draw.choices(range(min(LOWEST_ID, vocabulary - 1), vocabulary), k=max(LEAST_TOKENS, length))
        rows.append_made(ids, config.train.packing)
    return rows
