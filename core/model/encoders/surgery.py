"""Swaps an encoder's layers for their packed forms: a plan that can be printed, applied and undone.

    plan = surgery.plan(model)           # nothing is changed
    plan.lines()                         # ("12 of 12 layers packed without padding", ...)
    applied = surgery.apply(model, plan)
    undo(applied)                        # core.model.layers.surgery: the original objects are back

Only instances are exchanged; weights and their names stay. With a plan that says ``refusal`` rows are padded.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from core.kernels import dispatch
from core.model.attention.backends import situation
from core.model.attention.choice import AttentionKind, backend_line
from core.model.attention.packed import NAME
from core.model.encoders.layer import is_packed, packed_layer, part
from core.model.layers.peft_bnb import base_causal_model
from core.model.layers.surgery import Applied
from core.models.encoders import EncoderFamily, encoder_of


@dataclass(frozen=True)
class EncoderPlan:
    """What will be swapped; ``refusal`` says why rows stay padded."""

    layers: int = 0
    fused: bool = False
    """Whether a residual add and the norm after it are one op."""
    family: EncoderFamily | None = None
    attention: str = ""
    refusal: str = ""

    @property
    def fast(self) -> bool:
        """Whether layers will be packed."""
        return self.family is not None

    def lines(self) -> tuple[str, ...]:
        """The plan for people."""
        if self.family is None:
            return (f"rows are padded: {self.refusal}",)
        norms = "layer norm and residual in one" if self.fused else "torch's layer norm"
        return (f"{self.layers} of {self.layers} layers packed without padding, {norms}", self.attention)


def plan(
    model: nn.Module, fused: bool | None = None, dtype: torch.dtype | None = None, packed: bool = True
) -> EncoderPlan:
    """What can be packed; changes nothing.

    Args:
        model: a sequence classifier of transformers, with or without peft's wrapper.
        fused: whether our layer norm is taken; None: where its Triton kernel runs.
        dtype: what products will be computed in, for the line on attention; None: the weights'.
        packed: whether packing was asked for.
    """
    base = base_causal_model(model)
    family = encoder_of(base.config)
    if family is None:
        return EncoderPlan(refusal=f"no packed form for model type {base.config.model_type}")
    if not packed:
        return EncoderPlan(refusal="packing is off")
    layers = part(body_of(model), family.layers)
    if refusal := _refusal(base, family, layers):
        return EncoderPlan(refusal=refusal)
    weight = next(base.parameters())
    if fused is None:
        fused = dispatch.use_triton(torch.empty(0, device=weight.device))
    line = _attention_line(base.config, family, weight.device, dtype or weight.dtype)
    return EncoderPlan(len(layers), fused, family, line)


def _attention_line(config: Any, family: EncoderFamily, device: torch.device, dtype: torch.dtype) -> str:
    if family.relative:
        return "attention: the model's own, in blocks of rows of like length (it adds embeddings of distances)"
    head_dim = int(config.hidden_size) // int(config.num_attention_heads)
    windows = (None, getattr(config, "sliding_window", None))
    kinds = (AttentionKind(1.0, window, causal=False) for window in dict.fromkeys(windows))
    lines = dict.fromkeys(backend_line(situation(device, dtype, head_dim, kind)) for kind in kinds)
    return "attention: " + "; in windows: ".join(lines)


def apply(model: nn.Module, plan: EncoderPlan) -> Applied:
    """Swaps what the plan names."""
    if plan.family is None:
        return Applied(())
    layers = part(body_of(model), plan.family.layers)
    swapped = [(str(index), old, packed_layer(old, plan.family, plan.fused)) for index, old in enumerate(layers)]
    for name, _, new in swapped:
        layers._modules[name] = new
    return Applied(tuple((layers, *each) for each in swapped))


def body_of(model: nn.Module) -> Any:
    """The encoder inside a classifier."""
    base = base_causal_model(model)
    return getattr(base, base.base_model_prefix)


def _refusal(base: Any, family: EncoderFamily, layers: Any) -> str:
    if is_packed(layers[0]):
        return "swapped already"
    if getattr(base.config, "is_decoder", False):
        return "it is set up as a decoder"
    if getattr(part(body_of(base), family.relative) if family.relative else None, "conv", None) is not None:
        return "it has a convolution over its rows"
    if not family.relative and base.config._attn_implementation != NAME:
        return f"its attention is {base.config._attn_implementation}, not {NAME}"
    return ""
