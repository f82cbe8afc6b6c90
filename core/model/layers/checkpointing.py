"""What each layer keeps for its backward pass: everything, its input, or its input in host memory.

A fast layer asks for its activation store (``core.model.layers.recompute``). Other layers recompute through the
attributes ``gradient_checkpointing`` and ``_gradient_checkpointing_func`` of transformers (5.17 reads them in
``GradientCheckpointingLayer.__call__``, 5.23 in a wrapper around ``forward``). Checkpoints are non-reentrant: reentrant
ones need an input that requires a gradient, and frozen embeddings give none.

``auto`` keeps the last k layers and recomputes the others, their inputs in host memory. k depends only on the tokens T
of the micro-batch (``core.estimate.inputs.layer``, as in the plan)::

    k · c · T  +  inputs being copied  +  max(work of one layer, end of the model)   <=   room
    room = budget - memory allocated before the first activation - the allocator's gaps

The *last* layers are kept because the backward pass frees them first, before a recomputed layer needs memory. Where
there is room, matrices dequantised in a recomputation are kept for the backward pass after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from core.contract.tasks import TASKS
from core.estimate.inputs.layer import (
    FastLayer,
    ModelEnd,
    kept_layers,
    longest_kept,
    recomputed_bytes,
    rounded_rank,
)
from core.estimate.terms import CUBLAS_BYTES, gaps_bytes
from core.kernels.eightbit.arithmetics import SIXTEEN
from core.model.adapters import Trained
from core.model.layers.decoder_layer import projections_of
from core.model.layers.peft_bnb import base_causal_model, read_projection
from core.model.layers.recompute import ActivationStore, HostActivationStore
from core.model.streaming.head import host_head_of

Policy = Literal["none", "recompute", "offload", "auto"]
GRADIENT_BYTES = 4


@dataclass(frozen=True)
class Budget:
    """``bytes`` on the card for activations, the work on one layer, the end of the model, and the gaps between them.

    ``limit`` and ``adapter`` (bytes) are what ``gaps_bytes`` asks for.
    """

    bytes: int
    layer: FastLayer
    end: ModelEnd
    limit: int
    adapter: int

    def room(self, tokens: int) -> int:
        """What a micro-batch of so many tokens may take."""
        return max(0, self.bytes - gaps_bytes(self.limit, self.adapter, tokens * self.layer.input))

    def kept(self, tokens: int, layers: int) -> int:
        """How many layers can be kept in a micro-batch of so many tokens."""
        return kept_layers(self.layer, self.end, tokens, layers, self.room(tokens))

    def keeps_matrices(self, tokens: int) -> bool:
        """Whether a recomputed layer's matrices may be kept for its backward pass (kept layers are free by then)."""
        return recomputed_bytes(self.layer, tokens) + self.layer.matrices <= self.room(tokens)


class Chooser:
    """Decides for each layer and micro-batch where its input is stored; None: the layer keeps everything."""

    def __init__(
        self, stores: Sequence[ActivationStore | None], budget: Budget | None = None, tile_tokens: int = 0
    ) -> None:
        self._stores = stores
        self._budget, self._tile_tokens = budget, tile_tokens
        self._last = (0, len(stores))

    def store(self, index: int, tokens: int) -> ActivationStore | None:
        """The store of layer ``index`` in a micro-batch of ``tokens``."""
        layers = len(self._stores)
        if self._budget is not None:
            if self._last[0] != tokens:
                self._last = (tokens, self._budget.kept(tokens, layers))
            if index >= layers - self._last[1]:
                return None
        return self._stores[index]

    @property
    def recomputes(self) -> bool:
        """Whether every layer keeps its input alone, however few tokens there are."""
        return self._budget is None and None not in self._stores

    def tile(self, tokens: int) -> int:
        """Tokens of the tiles in which a layer that keeps nothing is computed; 0: all at once."""
        return self._tile_tokens if self._tile_tokens < tokens else 0

    def keeps_matrices(self, tokens: int) -> bool:
        """Whether a recomputation may keep its dequantised matrices for the backward pass."""
        return self._budget is not None and self._budget.keeps_matrices(tokens)

    def let_go(self) -> None:
        """Releases inputs of an abandoned micro-batch."""
        for store in self._stores:
            if store is not None:
                store.let_go()


def checkpointing_layers(model: nn.Module) -> list[Any]:
    """The layers that can be recomputed, first to last."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def set_checkpointing(
    model: nn.Module, policy: Policy, budget_bytes: int = 0, state_bytes: int = 0, tile_tokens: int = 0
) -> tuple[str, ...]:
    """Sets what every decoder layer keeps in training mode; returns lines for people.

    Args:
        policy: ``offload`` is ``recompute`` with inputs in host memory; without a card they are the same.
        budget_bytes: for ``auto``: what this process may allocate on the card in all.
        state_bytes: for ``auto``: what the first step will allocate for the optimiser.
        tile_tokens: a recomputed layer over more tokens is computed in tiles of so many
            (``core.model.layers.tiles``), and so is one without a backward pass; 0: never.
    """
    layers = checkpointing_layers(model)
    fast = [layer for layer in layers if hasattr(layer, "replaced")]
    device = next(model.parameters()).device
    budget = None
    if policy == "auto":
        if fast and device.type == "cuda":
            budget = _budget(model, fast[0], budget_bytes, state_bytes)
        policy = "offload" if budget is not None else "recompute" if device.type == "cuda" else "none"
    for layer in layers:
        plain = layer.replaced[0] if hasattr(layer, "replaced") else layer
        # The random state is kept, so that a recomputation draws the same dropout mask.
        plain._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False, preserve_rng_state=True)
        plain.gradient_checkpointing = policy != "none"
    stores: list[ActivationStore | None] = [None] * len(fast)
    if policy != "none":
        host = policy == "offload" and device.type == "cuda"
        stores = list(HostActivationStore.row(len(fast), device)) if host else [ActivationStore() for _ in fast]
    chooser = Chooser(stores, budget, tile_tokens)
    for index, layer in enumerate(fast):
        layer.choice = (chooser, index)
    tiles = (f"activations: long passes in tiles of {tile_tokens:,} tokens",) if tile_tokens and fast else ()
    return (*_lines(policy, budget, len(fast), len(layers) - len(fast)), *tiles)


def recomputes_in_tiles(model: nn.Module) -> bool:
    """Whether smaller tiles would take less: there are layers of ours, and each is recomputed."""
    choices = [getattr(layer, "choice", None) for layer in checkpointing_layers(model)]
    fast = [choice[0] for choice in choices if choice is not None]
    return bool(fast) and all(chooser.recomputes for chooser in fast)


def let_go_of_inputs(model: nn.Module) -> None:
    """Releases card memory of inputs that an abandoned micro-batch left on their way to host memory."""
    for layer in checkpointing_layers(model):
        if choice := getattr(layer, "choice", None):
            choice[0].let_go()


def fast_layer_sizes(layer: Any) -> FastLayer:
    """A fast layer's sizes, read from its projections."""
    family, module = layer.family, layer.self_attn
    parts = {name: read_projection(linear) for name, linear in projections_of(layer, family).items()}

    def rows(*names: str) -> int:
        return sum(part.shape[0] for name in names if (part := parts[name]) is not None)

    def rank(*names: str) -> int:
        return rounded_rank(sum(part.rank for name in names if (part := parts[name]) is not None))

    def scaled(*names: str) -> bool:
        return any((part := parts[name]) is not None and part.magnitude is not None for name in names)

    hidden, heads = rows("o_proj"), rows(*family.qkv)
    queries = int(module.config.num_attention_heads) * int(module.head_dim)
    keys = (heads - queries) // 2
    dtype = layer.input_layernorm.weight.dtype
    capped = getattr(module, "attn_logit_softcapping", None) is not None
    return FastLayer(
        hidden=hidden,
        queries=queries,
        keys=keys,
        inner=rows(*family.gate_up) // 2,
        head_dim=int(module.head_dim),
        ranks=(rank(*family.qkv), rank("o_proj"), rank(*family.gate_up), rank("down_proj")),
        itemsize=dtype.itemsize,
        attention=queries if capped else 0,
        flash=dtype == torch.bfloat16,
        head_norms=family.head_norms,
        four_norms=len(family.norms) == 4,
        scaled=(scaled(*family.qkv), scaled("o_proj"), scaled(*family.gate_up), scaled("down_proj")),
        eight=layer.arithmetic is not SIXTEEN,
    )


def _budget(model: nn.Module, layer: Any, budget_bytes: int, state_bytes: int) -> Budget:
    """What is left for activations after what is allocated now and what the first step will allocate for good."""
    device = next(model.parameters()).device
    trained = Trained(model).count
    exact = 4 * sum(p.numel() for p in Trained(model).parameters if p.dtype != torch.float32)  # the optimiser's own
    there = torch.cuda.memory_allocated(device) + trained * GRADIENT_BYTES + state_bytes + exact + CUBLAS_BYTES
    sizes = fast_layer_sizes(layer)
    base = base_causal_model(model)
    scored = any(task.head and hasattr(base, task.head) for task in TASKS.values())
    tiled = host_head_of(base.get_output_embeddings()) is not None
    end = ModelEnd(sizes.hidden, 0 if scored else int(base.config.vocab_size), sizes.itemsize, tiled=tiled)
    return Budget(budget_bytes - there, sizes, end, limit=budget_bytes, adapter=GRADIENT_BYTES * trained)


def _lines(policy: str, budget: Budget | None, fast: int, plain: int) -> tuple[str, ...]:
    if budget is not None:
        longest = longest_kept(budget.layer, budget.end, fast, budget.room(0))
        also = (f"activations: recomputed in {plain} plain layers",) if plain else ()
        long = "recomputed in part in longer ones, their inputs in host memory"
        return (f"activations: kept in passes of up to {longest:,} tokens, {long}", *also)
    if policy == "none":
        return ("activations: kept",)
    where = ", their inputs in host memory" if policy == "offload" else ""
    lines = [f"activations: recomputed in {fast} layers{where}"] if fast else []
    return (*lines, *([f"activations: recomputed in {plain} plain layers"] if plain else []))
