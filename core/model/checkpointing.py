"""What each layer keeps for its backward pass: everything, its input, or its input in host memory.

A fast layer asks for its shelf (``core.model.recompute``). Any other layer recomputes through transformers' own two
attributes, ``gradient_checkpointing`` and ``_gradient_checkpointing_func``. Where those are read has moved (5.17: in
``GradientCheckpointingLayer.__call__``; 5.23: in a wrapper around each class's ``forward``), the attributes have not,
so this file names nothing else. Checkpoints are non-reentrant: they need no input that requires a gradient, which
frozen embeddings never give.

``auto`` is a budget. With c bytes a token that a kept layer holds and T tokens in this pass, the last k layers are kept
and the first ones recomputed, their inputs in host memory::

    k = (budget - what is there before the first activation - one layer's work) / (c · T)

It is asked anew for every pass, so a short pass keeps more. The *last* layers are kept since the backward pass reaches
them first: when the first recomputed layer needs its room, theirs is free again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from core.model.layers import kept_columns
from core.model.recompute import HostShelf, Shelf

__all__ = ["Policy", "checkpointing_layers", "set_checkpointing"]

Policy = Literal["none", "recompute", "offload", "auto"]


@dataclass(frozen=True)
class Budget:
    """Bytes on the card for activations and for the work on one layer.

    ``columns`` is what one kept layer holds, ``work`` what one layer's backward pass needs beside that: values a token.
    """

    bytes: int
    columns: int
    work: int
    itemsize: int

    def kept(self, tokens: int, layers: int) -> int:
        """How many layers can be kept in a pass of so many tokens."""
        room = self.bytes - tokens * self.work * self.itemsize
        return max(0, min(layers, room // max(1, tokens * self.columns * self.itemsize)))


class Chooser:
    """Asked by every fast layer at every pass: where its input goes, or None where everything is kept."""

    def __init__(self, shelves: Sequence[Shelf | None], budget: Budget | None = None) -> None:
        self._shelves = shelves
        self._budget = budget

    def shelf(self, index: int, tokens: int) -> Shelf | None:
        """For the layer ``index`` of a pass of ``tokens``."""
        layers = len(self._shelves)
        if self._budget is not None and index >= layers - self._budget.kept(tokens, layers):
            return None
        return self._shelves[index]


def checkpointing_layers(model: nn.Module) -> list[Any]:
    """The layers that can be recomputed, first to last."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def set_checkpointing(model: nn.Module, policy: Policy, budget_bytes: int = 0) -> tuple[str, ...]:
    """Sets what every decoder layer keeps, and says it to a person.

    It acts on a training model only (``model.train()``), as transformers' layers do.

    Args:
        policy: ``offload`` is ``recompute`` with inputs in host memory; both are the same without a card.
        budget_bytes: for ``auto``: what this process may allocate on the card in all.
    """
    layers = checkpointing_layers(model)
    fast = [layer for layer in layers if hasattr(layer, "replaced")]
    device = next(model.parameters()).device
    budget = None
    if policy == "auto":
        budget = _budget(model, fast, budget_bytes) if fast and device.type == "cuda" else None
        policy = "none" if budget is None else "offload"
    for layer in layers:
        _set_plain(layer.replaced[0] if hasattr(layer, "replaced") else layer, policy != "none")
    shelves: list[Shelf | None] = [None] * len(fast)
    if policy != "none":
        host = policy == "offload" and device.type == "cuda"
        shelves = list(HostShelf.row(len(fast), device)) if host else [Shelf() for _ in fast]
    chooser = Chooser(shelves, budget)
    for index, layer in enumerate(fast):
        layer.choice = (chooser, index)
    return _lines(policy, budget, len(fast), len(layers) - len(fast))


def _set_plain(layer: Any, recompute: bool) -> None:
    # The random state is kept, so that dropout draws the same mask in the second pass as in the first.
    layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False, preserve_rng_state=True)
    layer.gradient_checkpointing = recompute


def _budget(model: nn.Module, fast: Sequence[Any], budget_bytes: int) -> Budget:
    """What is left for activations, from what is allocated now and from what the optimiser will add."""
    device = next(model.parameters()).device
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    kept, work = kept_columns(fast[0])
    hidden = fast[0].replaced[0].input_layernorm.weight
    there = torch.cuda.memory_allocated(device) + trained * (GRADIENT_BYTES + OPTIMIZER_BYTES) + HEAD_BYTES
    return Budget(budget_bytes - there - SLACK_BYTES, kept, work, hidden.element_size())


GRADIENT_BYTES = 4
OPTIMIZER_BYTES = 2
"""8-bit AdamW: two states of one byte a parameter."""
HEAD_BYTES = 2 * 2**26 * 2
"""Two chunks of logits (``linear_cross_entropy.LOGITS_AT_ONCE``) in 16 bits."""
SLACK_BYTES = 256 * 2**20
"""What the allocator rounds up and cannot hand out."""


def _lines(policy: str, budget: Budget | None, fast: int, plain: int) -> tuple[str, ...]:
    if budget is not None:
        longest = max(1, budget.bytes // ((budget.columns * fast + budget.work) * budget.itemsize))
        return (f"activations: kept in passes of up to {max(0, longest):,} tokens, recomputed in part in longer ones",)
    if policy == "none":
        return ("activations: kept",)
    where = ", their inputs in host memory" if policy == "offload" else ""
    lines = [f"activations: recomputed in {fast} layers{where}"] if fast else []
    return (*lines, *([f"activations: recomputed in {plain} plain layers"] if plain else []))
