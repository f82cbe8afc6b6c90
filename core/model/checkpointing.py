"""Recomputing activations, layer by layer.

transformers' decoder layers read two attributes, ``gradient_checkpointing`` and ``_gradient_checkpointing_func``. Where
they read them has moved (5.17: in ``GradientCheckpointingLayer.__call__``; 5.23: in a wrapper around each class's
``forward``), the attributes have not, so this file names nothing else. Checkpoints are non-reentrant: they need no
input that requires a gradient, which frozen embeddings never give.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

__all__ = ["Policy", "checkpointing_layers", "set_checkpointing"]

Policy = Literal["none", "recompute"]


def checkpointing_layers(model: nn.Module) -> list[GradientCheckpointingLayer]:
    """The layers that can be recomputed, first to last."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def set_checkpointing(model: nn.Module, policy: Policy) -> int:
    """Sets every decoder layer to keep its activations or to recompute them; returns how many recompute.

    It acts on a training model only (``model.train()``), as transformers' layers do.
    """
    layers = checkpointing_layers(model)
    for layer in layers:
        # The random state is kept, so that dropout draws the same mask in the second pass as in the first.
        layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False, preserve_rng_state=True)
        layer.gradient_checkpointing = policy == "recompute"
    return len(layers) if policy == "recompute" else 0
