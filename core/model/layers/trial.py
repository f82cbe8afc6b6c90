"""A trial of arithmetics: the frozen products of one of a model's own layers, timed forward and backward.

The first pass of each is not timed: it compiles kernels and finds the extent of the weights. After that they take
turns, since a card that gets warm slows down, and the median counts. On a card a turn is several passes of which none
is waited for but the last, as in a step: there the host launches ahead of the card, and eight bits need more launches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from core.kernels.eightbit.arithmetics import ARITHMETICS
from core.kernels.lora import Stack
from core.model.layers.decoder_layer import projections_of
from core.model.layers.peft_bnb import base_causal_model, read_projection
from core.model.layers.surgery import plan
from core.model.streaming.layers import ready_of
from core.models.families import Family

SECONDS = 2.5
"""For the timed passes of all together."""
LEAST_ROUNDS, MOST_ROUNDS, QUEUED = 2, 30, 8
SEED = 3407


def milliseconds_a_layer(
    peft_model: Any, tokens: int, arithmetics: Sequence[str], dtype: torch.dtype, force: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:  # fmt: skip
    """Milliseconds of a layer's four stacks, by arithmetic; one that fails here, or for which there is no room, is left
    out. Nothing of the model is changed.

    Args:
        peft_model: its layers are not swapped yet.
        tokens: of a micro-batch.
        dtype: of activations.
        force: on the CPU too, with the products' definitions (for tests).
    """
    swaps = plan(peft_model, force=force)
    if not swaps.swaps:
        return {}
    body: Any = base_causal_model(peft_model).base_model
    layer = body.layers[swaps.swaps[len(swaps.swaps) // 2]]
    if (ready := ready_of(layer)) is not None:  # the extents that are found here are kept for the run
        ready(False, True)
    stacks = _stacks_of(layer, swaps.family)
    device = next(peft_model.parameters()).device
    able, total = list(arithmetics), dict.fromkeys(arithmetics, 0.0)
    for stack in stacks:
        times = _timed(_Passes(stack, tokens, dtype, device), able, SECONDS / len(stacks), clock)
        able = list(times)
        total = {name: total[name] + times[name] for name in able}
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return total


def _timed(passes: _Passes, names: Sequence[str], seconds: float, clock: Callable[[], float]) -> dict[str, float]:
    """Milliseconds of each that works here."""
    times: dict[str, list[float]] = {name: [] for name in names if passes.may_be(name)}
    begun, rounds = clock(), 0
    while times and rounds < MOST_ROUNDS and (rounds < LEAST_ROUNDS or clock() - begun < seconds):
        for name, taken in times.items():
            before = clock()
            for _ in range(passes.queued):
                passes.run(name)
            passes.wait()
            taken.append(1e3 * (clock() - before) / passes.queued)
        rounds += 1
    return {name: statistics.median(taken) for name, taken in times.items()}


def _stacks_of(layer: Any, family: Family) -> list[Stack]:
    read = {name: read_projection(module) for name, module in projections_of(layer, family).items()}
    groups = (family.qkv, ("o_proj",), family.gate_up, ("down_proj",))
    parts = [[projection for name in names if (projection := read[name]) is not None] for names in groups]
    return [Stack(tuple(some)) for some in parts if some]


class _Passes:
    """Forward and backward of a stack, over one micro-batch of random numbers."""

    def __init__(self, stack: Stack, tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        self._stack, self._tokens, self._dtype, self._device = stack, tokens, dtype, device
        self._stacks: dict[str, Stack] = {}
        self._drawn: list[torch.Tensor] = []

    def may_be(self, name: str) -> bool:
        """Runs once, untimed; False where it fails, or does not serve this stack."""
        if name not in ARITHMETICS or not ARITHMETICS[name].serves(self._stack):
            return False
        try:
            self.run(name)
            self.wait()
        except Exception:  # noqa: BLE001 - of a compiler, a driver or the allocator: then it is not taken
            return False
        return True

    @torch.no_grad()
    def run(self, name: str) -> None:
        """All products once, as a layer computes them whose activations are kept."""
        if name not in self._stacks:  # one for all passes, as in a run: it keeps its kernels' table
            self._stacks[name] = self._stack.computed_in(ARITHMETICS[name])
        stack = self._stacks[name]
        if not self._drawn:
            self._drawn = [self._rows(width) for width in (stack.width, stack.rows)]
        x, dy = self._drawn
        m, g = stack.matrix(x)
        rows = stack.bordered(x)
        stack.project(rows, m)
        low = stack.kept(rows)
        m, _ = stack.matrix(x, g)
        back = stack.bordered(dy)
        stack.pull_low(back, m)
        m.pull(back)
        stack.gradients(x, low, back)

    @property
    def queued(self) -> int:
        """Passes of a turn."""
        return QUEUED if self._device.type == "cuda" else 1

    def wait(self) -> None:
        """For the card."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _rows(self, width: int) -> torch.Tensor:
        draw = torch.Generator(self._device).manual_seed(SEED)
        return torch.randn(self._tokens, width, generator=draw, dtype=self._dtype, device=self._device)
