"""Corrections of speed and memory from earlier runs on this machine, whose lines come from
``core.runs.record.learned``.

A run counts only where card, kernels, arithmetic, method and quantisation are the same, and of those only the nearest
group:

    nearest   the same model, way of keeping activations, and rows about as long      ± 10 %
    near      the same model                                                          ± 15 %
    far       any model on this card                                                  ± 30 %

Speed is corrected by the median of measured over predicted; where nothing could be predicted (no published rates), it
follows from operations a second. Memory is corrected by the largest ratio of runs that are the same in everything that
memory follows from, within the bounds below, and downwards only where two runs agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.estimate import LayerTrial, LearnedRun, ProvenHere
from core.estimate.inputs.cards import COPY_RATE, shared_copy_rate
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
class Memory:
    """Factors on what is predicted, from ``runs`` earlier runs."""

    allocated: float = 1.0
    reserved: float = 1.0
    runs: int = 0


@dataclass(frozen=True)
class Learned:
    """Finished runs, trials of arithmetics and proofs of them, each oldest first."""

    runs: tuple[LearnedRun, ...] = ()
    trials: tuple[LayerTrial, ...] = ()
    proofs: tuple[ProvenHere, ...] = ()

    def plus(self, line: LearnedRun | LayerTrial) -> Learned:
        """With one more."""
        if isinstance(line, LayerTrial):
            return replace(self, trials=(*self.trials, line))
        return replace(self, runs=(*self.runs, line))

    def trial(self, like: LayerTrial) -> LayerTrial | None:
        """The newest trial of the same layer on the same card, with micro-batches about as long; None without one."""
        same = [trial for trial in self.trials if _for_what(trial) == _for_what(like)]
        same = [trial for trial in same if _within(trial.tokens, like.tokens, LENGTHS_ALIKE)]
        return same[-1] if same else None

    def proof(self, card: str, arithmetic: str) -> ProvenHere | None:
        """The newest proof of an arithmetic on this card; None without one."""
        found = [proof for proof in self.proofs if (proof.card, proof.arithmetic) == (card, arithmetic)]
        return found[-1] if found else None

    def rates(self, like: LearnedRun) -> tuple[tuple[float, float], str] | None:
        """Tokens a second (low, high) by the nearest runs, and on what that rests; None where none is like this one."""
        able = [run for run in self.runs if _same_kind(run, like) and run.cards == like.cards]
        able = [run for run in able if run.measured_tokens_per_second > 0]
        able = [
            run for run in able if run.steps >= LEAST_STEPS and run.predicted_tokens_per_second + run.operations > 0
        ]
        same = [run for run in able if run.shape == like.shape]
        alike = like.checkpointing, like.streamed
        nearest = [run for run in same if (run.checkpointing, run.streamed) == alike]
        nearest = [run for run in nearest if _within(run.mean_row, like.mean_row, LENGTHS_ALIKE)]
        for runs, spread, words in (
            (nearest, 0.10, "like this one"), (same, 0.15, "of this model"), (able, 0.30, "of other models"),
        ):  # fmt: skip
            rates = [rate for run in runs[-NEWEST:] if (rate := _rate(run, like)) > 0]
            if rates:
                count = f"{len(rates)} earlier run{'s' if len(rates) > 1 else ''} {words}"
                middle = median(rates)
                return (middle * (1 - spread), middle * (1 + spread)), f"estimated, from {count} on this machine"
        return None

    def memory(self, like: LearnedRun) -> Memory:
        """How far the prediction was off for runs that are the same in everything that memory follows from."""
        settings = like.shape, like.checkpointing, like.rank, like.streamed
        runs = [run for run in self.runs if (run.shape, run.checkpointing, run.rank, run.streamed) == settings]
        runs = [run for run in runs if _same_kind(run, like) and _within(run.longest, like.longest, PASSES_ALIKE)]
        runs = runs[-NEWEST:]
        allocated = _factor((run.measured_bytes, run.predicted_bytes) for run in runs)
        reserved = _factor((run.measured_reserved_bytes, run.predicted_reserved_bytes) for run in runs)
        told = sum(run.measured_bytes > 0 < run.predicted_bytes for run in runs)
        return Memory(allocated, max(reserved, allocated), told) if told else Memory()

    def start_seconds(self, like: LearnedRun) -> float | None:
        """What starting took for this model on this card, the median of the newest runs; None where unknown."""
        runs = [run for run in self.runs if run.start_seconds > 0 and run.card == like.card]
        taken = [run.start_seconds for run in runs if run.shape == like.shape][-NEWEST:]
        return median(taken) if taken else None

    def copy_rate(self, card: str, cards: int) -> float:
        """Bytes a second from the machine's memory to each of so many such cards while all copy; 0 where no run
        measured it. Of another number of cards: what they read of that memory together, which these share; fewer than
        were measured may be faster than those, as far as is assumed of a card alone."""
        seen = [run for run in self.runs if run.copy_bytes_a_second > 0]
        memory = max((run.cards * run.copy_bytes_a_second for run in seen if run.cards > 1), default=0.0)
        rates = {
            count: median(run.copy_bytes_a_second for run in same[-NEWEST:])
            for count in {run.cards for run in seen}
            if (same := [run for run in seen if (run.card, run.cards) == (card, count)])
        }
        if cards in rates or not (rates or memory):
            return rates.get(cards, 0.0)
        fewer = max((rate for count, rate in rates.items() if count < cards), default=0.0)
        more = max((rate for count, rate in rates.items() if count > cards), default=0.0)
        alone = fewer or (min(COPY_RATE, memory) if more else 0.0)
        return max(more, shared_copy_rate(alone, cards, memory))

    def watts(self, card: str) -> float | None:
        """What one such card drew in earlier runs; None where unknown."""
        drawn = [run.watts / max(1, run.cards) for run in self.runs if run.card == card and run.watts > 0][-NEWEST:]
        return median(drawn) if drawn else None


def likeness(config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine, work: Work) -> LearnedRun:
    """What makes the run of a resolved config like another; ``work``: its largest micro-batch."""
    shape = spec.shape
    sizes = f"{shape.num_hidden_layers}x{shape.hidden_size}x{shape.intermediate_size}-{shape.vocab_size}"
    return LearnedRun(
        card=machine.gpu.name if machine.gpu else "cpu",
        cards=machine.cards.ranks,
        shape=f"{spec.model_type}-{sizes}",
        method=config.trained_method,
        quantization=config.model.quantization,
        checkpointing=work.policy,
        kernels="fast" if work.model.swapped else "plain",
        arithmetic=work.model.arithmetic.name,
        streamed=work.model.streamed,
        rank=config.lora.r if config.learns.adapter else 0,
        learns=config.train.learns,
        longest=work.tokens,
        mean_row=rows.mean,
    )


def _same_kind(run: LearnedRun, like: LearnedRun) -> bool:
    return (run.card, run.method, run.quantization, run.kernels, run.arithmetic, run.learns) == (
        like.card, like.method, like.quantization, like.kernels, like.arithmetic, like.learns,
    )  # fmt: skip


def _for_what(trial: LayerTrial) -> tuple[object, ...]:
    """What a trial holds for, but for the tokens."""
    return trial.card, trial.driver, trial.versions, trial.shape, trial.quantization, trial.dtype, trial.rank


def _within(one: float, other: float, factor: float) -> bool:
    low, high = sorted((max(one, 1.0), max(other, 1.0)))
    return high <= factor * low


def _rate(run: LearnedRun, like: LearnedRun) -> float:
    low, high = SPEED_BOUNDS
    if like.predicted_tokens_per_second > 0 and run.predicted_tokens_per_second > 0:
        off = run.measured_tokens_per_second / run.predicted_tokens_per_second
        return like.predicted_tokens_per_second * min(high, max(low, off))
    if run.operations > 0 < like.operations:
        return run.measured_tokens_per_second * run.operations / like.operations
    return 0.0


def _factor(pairs: Iterable[tuple[int, int]]) -> float:
    ratios = [measured / predicted for measured, predicted in pairs if measured > 0 < predicted]
    if not ratios:
        return 1.0
    low, high = MEMORY_BOUNDS
    bounded = min(high, max(low, max(ratios)))
    return bounded if bounded >= 1 or len(ratios) > 1 else 1.0
