"""A few steps of a run that never was: the real model and trainer on its longest window, and what they took.

Everything is as in a run (``core.train.setup.make_trainer``: passes, layers, checkpointing, optimiser), but for the
rows, which are random tokens of the right lengths, and the learning rate, which is so small that no weight of the
adapter moves; adapter and gradients are thrown away with the process. Where the model is not on this machine yet,
random weights of its shape take as much memory and time.

The first long step is not timed: memory is taken from the card there, and kernels are compiled.
"""

from __future__ import annotations

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
from core.contract.data import DataFacts
from core.contract.errors import MachineError, ModelError, first_line
from core.contract.events import Event
from core.data.render.rendering import load_tokenizer
from core.machine.locations import Locations
from core.model.adapters import add_adapter
from core.model.loading.load import LoadedModel, ensure_padding, load_base
from core.model.loading.random_weights import random_model
from core.models.catalog import STARTER
from core.models.checks.folder import check_folder
from core.probe.batches import InTurn, made_rows
from core.runs.folder.job_folder import JobFolder
from core.train.channel.command_queue import CommandQueue
from core.train.channel.meter import context_bytes, peak_bytes
from core.train.channel.reporter import EventReporter
from core.train.loop import Loop
from core.train.reading import RunData
from core.train.setup import make_trainer
from core.train.unsteered import NoMailbox, NoSaver

__all__ = ["Lap", "Rehearsal", "rehearse"]

STILL = 1e-12
"""A learning rate that changes no float32 weight."""
SLOWER = 3
NOTHING_FREE = 128 * 2**20
Say = Callable[[str, str], None]


@dataclass(frozen=True)
class Lap:
    """One step: real tokens, seconds, and what was free on the card at its end (None on the CPU)."""

    tokens: int
    seconds: float
    free_bytes: int | None
    long: bool


@dataclass
class Rehearsal:
    """What was seen. Peaks are the training steps' own (``loading_peak_bytes`` apart); on the CPU the resident size."""

    lines: list[str] = field(default_factory=list)
    load_seconds: float = 0.0
    loading_peak_bytes: int = 0
    laps: list[Lap] = field(default_factory=list)
    peak_allocated_bytes: int = 0
    peak_reserved_bytes: int = 0
    context_bytes: int | None = None
    total_bytes: int | None = None

    @property
    def timed(self) -> list[Lap]:
        """The long steps that count: all but the first, where there are others."""
        long = [lap for lap in self.laps if lap.long]
        return long[1:] or long

    @property
    def seconds_a_step(self) -> float:
        """Median of the timed steps."""
        return statistics.median(lap.seconds for lap in self.timed)

    @property
    def tokens_per_second(self) -> float:
        """Real tokens of the timed steps over their seconds, of each the median: so both figures agree."""
        return statistics.median(lap.tokens for lap in self.timed) / self.seconds_a_step

    @property
    def spilled(self) -> bool:
        """Whether the card's memory reached into the machine's, as Windows lets it.

        The allocator holds more than the card has; or nothing is free, and a token takes three times as long as in the
        last short step.
        """
        if self.total_bytes is None:
            return False
        if self.peak_reserved_bytes > self.total_bytes:
            return True
        free = min((lap.free_bytes for lap in self.timed if lap.free_bytes is not None), default=NOTHING_FREE)
        short = [lap for lap in self.laps if not lap.long][1:]
        return free < NOTHING_FREE and any(
            self.tokens_per_second * SLOWER < lap.tokens / lap.seconds for lap in short[-1:]
        )


def rehearse(
    config: RunConfig,
    spec: ModelSpec,
    lengths: Sequence[int],
    device: torch.device,
    steps: tuple[int, int, float],
    say: Say = lambda _stage, _text: None,
) -> Rehearsal:
    """Loads, trains a few steps, and lets everything go.

    Args:
        config: with no automatic value left.
        lengths: of the longest window's rows (``window.longest_window``).
        steps: short steps, long steps at most (two at least), and for how many seconds those after the first may go on.
        say: told each stage (``loading``, ``stepping``) with a line for people.

    Raises:
        MachineError: the card was too small; ``probe.memory`` in the steps, ``model.memory`` while loading.
        StudioError: the model cannot be used.
    """
    seen = Rehearsal()
    try:
        with tempfile.TemporaryDirectory(prefix="luthier-probe-") as place:
            _steps(_still(config, steps), spec, lengths, device, (seen, steps, say, Path(place)))
    except torch.OutOfMemoryError as error:
        raise MachineError(
            "probe.memory",
            f"Expected room for a step of {sum(lengths):,} tokens, found the card full.",
            "Choose one of the changes that make it fit.",
        ) from error
    return seen


def _still(config: RunConfig, steps: tuple[int, int, float]) -> RunConfig:
    train = {"learning_rate": STILL, "weight_decay": 0.0, "max_steps": steps[0] + steps[1], "num_train_epochs": 1000.0,
             "eval_steps": 0, "save_steps": 0, "save_minutes": 0.0, "sample_rows": 0}  # fmt: skip
    return config.model_copy(update={"train": config.train.model_copy(update=train), "resume_from": ""})


def _steps(
    config: RunConfig, spec: ModelSpec, lengths: Sequence[int], device: torch.device, parts: tuple[Any, ...]
) -> None:
    seen, (short, long, most_seconds), say, place = parts
    _reset(device)
    begun = time.perf_counter()
    say("loading", spec.title)
    loaded = _load(config, spec, device)
    peft_model = add_adapter(loaded.model, config.lora, config.train.seed)
    _synchronize(device)
    seen.load_seconds, seen.loading_peak_bytes = time.perf_counter() - begun, peak_bytes(device)[0]
    _reset(device)
    rows = made_rows(config, lengths, int(loaded.model.config.vocab_size))
    nobody = EventReporter(_Unheard())
    data = RunData(train=rows, held_out=rows.take([]), facts=_no_facts(config))
    tokenizer = loaded.tokenizer or ensure_padding(load_tokenizer(STARTER))
    trainer, lines, _ = make_trainer(config, JobFolder(place), peft_model, (loaded, tokenizer), data)
    seen.lines = [loaded.line, *lines]
    loop = Loop(config, trainer, rows, data.held_out, (nobody, CommandQueue(NoMailbox(), nobody)), NoSaver())  # type: ignore[arg-type]
    every = range(len(rows))
    windows = (*[tuple(every[: len(lengths)])] * short, *[tuple(every[len(lengths) :])] * long)
    loop.feed = InTurn(windows, lambda: loop.step)  # type: ignore[assignment]
    trainer.loop = loop
    trainer.add_callback(_Clock(seen, (rows, windows, short), device, most_seconds))
    say("stepping", f"{sum(lengths):,} tokens a step")
    try:
        trainer.train()
    finally:
        seen.peak_allocated_bytes, reserved = peak_bytes(device)
        seen.peak_reserved_bytes = seen.peak_allocated_bytes if reserved is None else reserved
        seen.context_bytes = context_bytes(device)
        seen.total_bytes = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else None


def _load(config: RunConfig, spec: ModelSpec, device: torch.device) -> LoadedModel:
    chosen = config.model
    if spec.folder:
        check_folder(Path(spec.folder))
        return load_base(Path(spec.folder), chosen, device, cache=Locations.find().cache)
    try:
        return random_model(spec, device, quantization=chosen.quantization, dtype=chosen.dtype, seed=config.train.seed)
    except (ValueError, TypeError) as error:  # its kind is not known to this transformers, or wants more than a shape
        why = first_line(error)
        raise ModelError(
            "probe.shape",
            f"Expected to make a model of {spec.title}'s shape, found: {why}"[:300],
            "Download the model first; the probe then takes it as it is.",
        ) from error


def _no_facts(config: RunConfig) -> DataFacts:
    return DataFacts(rows=0, lengths=(), trained=(), max_length=config.train.max_length, longest=0, mean=0.0)


class _Clock(TrainerCallback):
    """Times each step between two waits for the card, and ends the rehearsal when its seconds are over."""

    def __init__(
        self, seen: Rehearsal, dealt: tuple[Any, Sequence[Sequence[int]], int], device: torch.device, most: float
    ) -> None:
        self._seen, self._device, self._most = seen, device, most
        rows, windows, self._short = dealt
        self._tokens = [sum(rows.tokens(row) for row in window) for window in windows]
        self._last = self._begun = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The first step's time begins here."""
        _synchronize(self._device)
        self._last = time.perf_counter()

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        """After the optimiser's step."""
        _synchronize(self._device)
        now, step = time.perf_counter(), int(state.global_step)
        long = step > self._short
        free = torch.cuda.mem_get_info(self._device)[0] if self._device.type == "cuda" else None
        self._seen.laps.append(Lap(self._tokens[step - 1], now - self._last, free, long))
        if step == self._short + 1:
            self._begun = now  # the first long step makes kernels and takes memory; seconds count from here
        elif step > self._short + 1 and now - self._begun + (now - self._last) > self._most:
            control.should_training_stop = True
        self._last = time.perf_counter()


class _Unheard:
    """Takes events for nobody."""

    def write(self, event: Event) -> Event:
        return event


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _reset(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
