"""What earlier runs on this machine taught: speed and memory, predicted and measured, and what follows for the next.

Pure: the lines come from ``core.runs.record.learned``. A run counts only where card, kernels, method and quantisation
are the same. Of those the nearest count, and only they:

    nearest   the same model, way of keeping activations, and rows about as long      ± 10 %
    near      the same model                                                          ± 15 %
    far       any model on this card                                                  ± 30 %

Speed is corrected by the middle (median) of measured over predicted; where nothing could be predicted (no published
rates) by operations a second. Memory is corrected by the largest ratio of runs that are the same in everything that
memory follows from, never by more than the bounds below, and downwards only where two runs agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.estimate import LearnedRun
from core.contract.methods import Method
from core.estimate.inputs.rows import Rows
from core.estimate.inputs.work import Work
from core.machine.hardware import Machine

NEWEST = 5
LEAST_STEPS = 5
SPEED_BOUNDS = (0.1, 4.0)
MEMORY_BOUNDS = (0.95, 1.15)
LENGTHS_ALIKE = 2.0
PASSES_ALIKE = 1.25


@dataclass(frozen=True)
class Likeness:
    """What makes a run like another."""

    card: str
    shape: str
    method: Method
    quantization: str
    checkpointing: str
    kernels: str
    rank: int
    longest: int
    mean_row: float


@dataclass(frozen=True)
class Speed:
    """Tokens a second, how far off it may be, and on what it rests."""

    tokens_per_second: float
    spread: float
    basis: str


@dataclass(frozen=True)
class Memory:
    """Factors on what is predicted, from so many runs."""

    allocated: float = 1.0
    reserved: float = 1.0
    runs: int = 0


@dataclass(frozen=True)
class Learned:
    """The lines of finished runs, oldest first."""

    runs: tuple[LearnedRun, ...] = ()

    def plus(self, run: LearnedRun) -> Learned:
        """With one more: a probe counts like a run."""
        return Learned((*self.runs, run))

    def speed(self, like: Likeness, predicted: float, operations: float) -> Speed | None:
        """What the nearest runs make of a prediction; None where none is like this one.

        Args:
            predicted: tokens a second by counting, 0 where nothing is published of this device.
            operations: counted for one token.
        """
        able = [run for run in self.runs if _same_kind(run, like) and run.measured_tokens_per_second > 0]
        able = [run for run in able if run.steps >= LEAST_STEPS]
        same = [run for run in able if run.shape == like.shape]
        nearest = [run for run in same if run.checkpointing == like.checkpointing]
        nearest = [run for run in nearest if _within(run.mean_row, like.mean_row, LENGTHS_ALIKE)]
        for runs, spread, words in (
            (nearest, 0.10, "like this one"), (same, 0.15, "of this model"), (able, 0.30, "of other models"),
        ):  # fmt: skip
            found = [rate for run in runs[-NEWEST:] if (rate := _rate(run, predicted, operations)) > 0]
            if found:
                count = f"{len(found)} earlier run{'s' if len(found) > 1 else ''} {words}"
                return Speed(median(found), spread, f"estimated, from {count} on this machine")
        return None

    def memory(self, like: Likeness) -> Memory:
        """How far the prediction was off for runs that are the same in everything that memory follows from."""
        settings = like.shape, like.checkpointing, like.rank
        runs = [run for run in self.runs if (run.shape, run.checkpointing, run.rank) == settings]
        runs = [run for run in runs if _same_kind(run, like) and _within(run.longest, like.longest, PASSES_ALIKE)]
        runs = runs[-NEWEST:]
        allocated = _factor((run.measured_bytes, run.predicted_bytes) for run in runs)
        reserved = _factor((run.measured_reserved_bytes, run.predicted_reserved_bytes) for run in runs)
        told = sum(run.measured_bytes > 0 < run.predicted_bytes for run in runs)
        return Memory(allocated, max(reserved, allocated), told) if told else Memory()

    def start_seconds(self, like: Likeness) -> float | None:
        """What starting took for this model on this card, the middle of the newest runs; None where none is known."""
        runs = [run for run in self.runs if run.start_seconds > 0 and run.card == like.card]
        taken = [run.start_seconds for run in runs if run.shape == like.shape][-NEWEST:]
        return median(taken) if taken else None

    def watts(self, card: str) -> float | None:
        """What this card drew in earlier runs; None where nobody asked it."""
        drawn = [run.watts for run in self.runs if run.card == card and run.watts > 0][-NEWEST:]
        return median(drawn) if drawn else None


def likeness(config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine, work: Work) -> Likeness:
    """Of a resolved config's run."""
    return Likeness(
        card=machine.gpu.name if machine.gpu else "cpu",
        shape=shape_name(spec),
        method=config.trained_method,
        quantization=config.model.quantization,
        checkpointing=work.policy,
        kernels="fast" if work.model.fast else "plain",
        rank=config.lora.r,
        longest=work.tokens,
        mean_row=rows.mean,
    )


def shape_name(spec: ModelSpec) -> str:
    """The model by its numbers: ``mistral-32x4096x14336-32768``."""
    shape = spec.shape
    sizes = f"{shape.num_hidden_layers}x{shape.hidden_size}x{shape.intermediate_size}"
    return f"{spec.model_type}-{sizes}-{shape.vocab_size}"


def _same_kind(run: LearnedRun, like: Likeness) -> bool:
    return (run.card, run.method, run.quantization, run.kernels) == (
        like.card, like.method, like.quantization, like.kernels,
    )  # fmt: skip


def _within(one: float, other: float, factor: float) -> bool:
    low, high = sorted((max(one, 1.0), max(other, 1.0)))
    return high <= factor * low


def _rate(run: LearnedRun, predicted: float, operations: float) -> float:
    low, high = SPEED_BOUNDS
    if predicted > 0 and run.predicted_tokens_per_second > 0:
        return predicted * min(high, max(low, run.measured_tokens_per_second / run.predicted_tokens_per_second))
    if run.operations > 0 < operations:
        return run.measured_tokens_per_second * run.operations / operations
    return 0.0


def _factor(pairs: Iterable[tuple[int, int]]) -> float:
    ratios: Sequence[float] = [measured / predicted for measured, predicted in pairs if measured > 0 < predicted]
    if not ratios:
        return 1.0
    low, high = MEMORY_BOUNDS
    bounded = min(high, max(low, max(ratios)))
    return bounded if bounded >= 1 or len(ratios) > 1 else 1.0
