"""The plan: every automatic value made definite, so that a run fits the machine and wastes none of it.

The order matters: arithmetic and optimiser follow from the card, then the largest pass is sought that stays under nine
tenths of what is free. Keeping activations is about a third faster than recomputing them, so it is taken whenever a
pass of a useful size fits with it; a larger pass than that gains little.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.estimate import Resolved
from core.estimate.peak import peak_bytes
from core.estimate.rows import Rows, rows_of, total_steps
from core.estimate.work import work_of
from core.hardware import Machine

__all__ = ["SPARE", "free_bytes", "pass_tokens", "plan", "resolve", "row_tokens"]

SPARE = 0.9
"""The share of free memory that a plan may use: the allocator rounds up and leaves gaps."""
USEFUL_TOKENS = 2048
"""From about here on a gaming card's matrix units are busy."""
MOST_TOKENS = 16_384
CPU_TOKENS = 2048
DEFAULT_EVERY = 50
MOST_EVERY = 200
Choice = tuple[str, Any, str]
"""Dotted key, value, reason."""


def resolve(
    config: RunConfig, spec: ModelSpec, facts: DataFacts | None, machine: Machine
) -> tuple[RunConfig, list[Resolved]]:
    """Fills in dtype, optimiser, checkpointing, tokens a pass, and how often to measure and save.

    What was chosen by hand stays as it is and is not in the list.

    Returns:
        the complete config, and one line for every value that was chosen here.
    """
    return plan(config, spec, rows_of(config, facts), machine)


def plan(config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine) -> tuple[RunConfig, list[Resolved]]:
    """``resolve`` where the data's numbers are known already."""
    chosen: list[Resolved] = []

    def take(config: RunConfig, choices: Iterator[Choice]) -> RunConfig:
        for key, value, reason in choices:
            config = _put(config, key, value)
            chosen.append(Resolved(key=key, value=str(value), reason=reason))
        return config

    config = take(config, _dtype(config, spec, machine))
    config = take(config, _optimiser(config, machine))
    config = take(config, _pass(config, spec, rows, machine))
    config = take(config, _intervals(config, rows))
    return config, chosen


def free_bytes(machine: Machine) -> int | None:
    """What a run can have: the card's free memory, or the machine's on a CPU; None where it is not told."""
    return machine.gpu.free_bytes if machine.gpu else machine.ram_free_bytes


def row_tokens(config: RunConfig, rows: Rows) -> int:
    """Tokens that one row brings into a pass at most: a preference brings both its endings."""
    return rows.longest * (2 if config.method == "dpo" else 1)


def pass_tokens(config: RunConfig, rows: Rows) -> int:
    """Tokens of the largest pass: as chosen, never less than the longest row, never more than one step's rows."""
    row = row_tokens(config, rows)
    return max(row, min(config.train.tokens_per_pass, row * config.rows_per_step))


def _dtype(config: RunConfig, spec: ModelSpec, machine: Machine) -> Iterator[Choice]:
    if config.model.dtype != "auto":
        return
    if machine.gpu is None:
        yield "model.dtype", "float32", "the CPU computes fastest and most exactly in 32 bits"
    elif machine.gpu.bf16:
        yield "model.dtype", "bfloat16", f"{machine.gpu.name} has it"
    elif spec.model_type.startswith("gemma"):
        yield "model.dtype", "float32", f"{machine.gpu.name} has no bfloat16, and Gemma overflows in float16"
    else:
        yield "model.dtype", "float16", f"{machine.gpu.name} has no bfloat16"


def _optimiser(config: RunConfig, machine: Machine) -> Iterator[Choice]:
    if config.train.optim != "auto":
        return
    if machine.gpu is None:
        yield "train.optim", "adamw_torch", "on the CPU memory is no worry"
    else:
        yield "train.optim", "adamw_8bit", "a quarter of the memory for the same result"


def _pass(config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine) -> Iterator[Choice]:
    """Checkpointing and tokens a pass are one decision: each decides what is left for the other."""
    free = free_bytes(machine)
    policy, tokens, fits = _search(config, spec, rows, machine, free)
    if config.train.checkpointing == "auto":
        if policy == "none":
            reason = "everything fits as it is, which is faster"
        else:
            reason = "the card does not say what is free" if free is None else "else a pass would not fit"
        yield "train.checkpointing", policy, reason
    if config.train.tokens_per_pass == 0:
        yield "train.tokens_per_pass", tokens, "the largest pass that fits" if fits else "the longest row, alone"


def _search(
    config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine, free: int | None
) -> tuple[Literal["none", "recompute"], int, bool]:
    sizes = _sizes(config, rows, gpu=machine.gpu is not None)
    enough = min(sizes[0], max(sizes[-1], USEFUL_TOKENS))
    if free is None:
        policy: Literal["none", "recompute"] = "none" if config.train.checkpointing == "none" else "recompute"
        return policy, enough, True
    if config.train.checkpointing != "recompute":
        least = enough if config.train.checkpointing == "auto" else 0
        for tokens in sizes:
            if tokens >= least and _peak(config, spec, (tokens, rows.longest), "none", machine) <= SPARE * free:
                return "none", tokens, True
    if config.train.checkpointing != "none":
        for tokens in sizes:
            if _peak(config, spec, (tokens, rows.longest), "recompute", machine) <= SPARE * free:
                return "recompute", tokens, True
    return "none" if config.train.checkpointing == "none" else "recompute", sizes[-1], False


def _sizes(config: RunConfig, rows: Rows, gpu: bool) -> list[int]:
    """Passes worth trying, largest first: a whole step, then powers of two, down to the longest row."""
    row = row_tokens(config, rows)
    if config.train.tokens_per_pass:
        return [pass_tokens(config, rows)]
    most = max(row, min(row * config.rows_per_step, MOST_TOKENS if gpu else CPU_TOKENS))
    powers = [2**power for power in range(23, 4, -1)]
    return [most, *(size for size in powers if row < size < most), *([row] if row < most else [])]


def _peak(
    config: RunConfig, spec: ModelSpec, size: tuple[int, int], policy: Literal["none", "recompute"], machine: Machine
) -> int:
    tried = config.model_copy(update={"train": config.train.model_copy(update={"checkpointing": policy})})
    return peak_bytes(work_of(tried, spec, size[0], machine.gpu is not None, size[1]))


def _intervals(config: RunConfig, rows: Rows) -> Iterator[Choice]:
    steps = total_steps(config, rows.train) if rows.known else config.train.max_steps
    every = max(1, min(steps // 10, MOST_EVERY)) if steps else DEFAULT_EVERY
    reason = f"about ten times over {steps} steps" if steps else "the number of steps is not known yet"
    if config.train.eval_steps == 0:
        yield "train.eval_steps", every, reason
    if config.train.save_steps == 0:
        yield "train.save_steps", config.train.eval_steps or every, "with each measurement, so that the best is kept"


def _put(config: RunConfig, key: str, value: Any) -> RunConfig:
    part, _, field = key.partition(".")
    return config.model_copy(update={part: getattr(config, part).model_copy(update={field: value})})
