"""Swaps decoder layers for fast ones: a plan that can be printed, applied and undone.

    plan = surgery.plan(peft_model)      # nothing is changed
    plan.lines()                         # ("24 of 24 layers fast",)
    applied = surgery.apply(peft_model, plan)
    surgery.undo(applied)                # the original objects are back

Only instances are exchanged, after peft and before accelerate: no class is patched and no key changes. Layers that
cannot be swapped stay, with a reason in the plan.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import torch
from peft import PeftModel
from torch import nn

from core.contract.weight_forms import ARITHMETICS, DEFAULT_ARITHMETIC
from core.kernels import dispatch
from core.kernels.eightbit import arithmetics as kernels
from core.model.layers.decoder_layer import fast_layer, fast_norm, has_eps, norms_of, projections_of
from core.model.layers.peft_bnb import base_causal_model, is_adapted, read_projection, why_not_static
from core.model.layers.projections import adapted_projections, fast_projection
from core.model.streaming.layers import ready_of
from core.models.families import Family, family_of

Mode = Literal["auto", "plain"]
ACTIVATIONS = {"silu": ("silu", "swish"), "gelu_tanh": ("gelu_pytorch_tanh",)}
"""Our kernels' activations by transformers' names."""


@dataclass(frozen=True)
class SwapPlan:
    """What will be swapped.

    ``swaps`` are the layers that will be fast, by their index; ``skips`` say why each other one stays, and ``refusal``
    why no layer is considered. ``projections`` counts the single projections swapped in a model of an unknown family.
    """

    family: Family
    swaps: tuple[int, ...] = ()
    skips: tuple[str, ...] = ()
    refusal: str = ""
    last_norm: bool = False
    """Whether the norm after the last layer is swapped too."""
    projections: int = 0
    arithmetic: str = DEFAULT_ARITHMETIC
    """Of frozen products in training (``core.contract.weight_forms``)."""
    sixteen: str = ""
    """Why no layer's are computed in it."""

    @property
    def fast(self) -> bool:
        """Whether any layer will be fast."""
        return bool(self.swaps)

    def lines(self) -> tuple[str, ...]:
        """The plan for people."""
        if self.refusal and self.projections:
            return (f"plain layers: {self.refusal}", f"{self.projections} adapted projections fast")
        if self.refusal:
            return (f"plain layers: {self.refusal}",)
        total = len(self.swaps) + len(self.skips)
        return (
            f"{len(self.swaps)} of {total} layers fast",
            *(
                f"{count} {'layer' if count == 1 else 'layers'} plain: {why}"
                for why, count in Counter(self.skips).items()
            ),
            *([self._arithmetic_line()] if self.fast and self.arithmetic != DEFAULT_ARITHMETIC else []),
        )

    def _arithmetic_line(self) -> str:
        if self.sixteen:
            return f"products with frozen weights: {ARITHMETICS[DEFAULT_ARITHMETIC].words} ({self.sixteen})"
        words = ARITHMETICS[self.arithmetic].words
        return f"products with frozen weights: {words}; evaluation and samples in 16 bits"


@dataclass(frozen=True)
class Applied:
    """What was swapped: ``(parent, name, old module, new module)``."""

    swapped: tuple[tuple[nn.Module, str, nn.Module, nn.Module], ...]


def plan(
    peft_model: nn.Module, mode: Mode = "auto", force: bool = False, packed: bool = True,
    arithmetic: str = DEFAULT_ARITHMETIC,
) -> SwapPlan:  # fmt: skip
    """What can be fast; changes nothing.

    Args:
        peft_model: a causal model with its adapter.
        mode: ``plain`` swaps nothing.
        force: swaps on the CPU too, where the ops are their references (for tests).
        packed: rows are packed with bounds. With padding and a mask a fast layer would call the one that it replaced,
            so none is swapped.
        arithmetic: of fast layers' frozen products in training.
    """
    base = base_causal_model(peft_model)
    family = family_of(base.config) or Family()
    if refusal := _refusal(base, mode, force):
        return SwapPlan(family, refusal=refusal)
    if not isinstance(peft_model, PeftModel) and any(p.requires_grad for p in base.parameters()):
        return SwapPlan(family, refusal="every weight is trained, by transformers' own layers")
    if not family.fast or _activation(base.config) not in ACTIVATIONS[family.activation]:
        return SwapPlan(family, refusal=_unknown(base.config, family), projections=len(adapted_projections(base)))
    reasons = [_why_not(layer, family) or ("" if packed else "batches are padded") for layer in base.base_model.layers]
    swaps = tuple(index for index, reason in enumerate(reasons) if not reason)
    last = bool(swaps) and _is_frozen_norm(getattr(base.base_model, "norm", None))
    skips = tuple(filter(None, reasons))
    sixteen = _why_sixteen(base.base_model.layers[swaps[0]], family) if swaps else ""
    return SwapPlan(family, swaps, skips, last_norm=last, arithmetic=arithmetic, sixteen=sixteen)


def _refusal(base: Any, mode: Mode, force: bool) -> str:
    if mode == "plain":
        return "fast kernels are switched off"
    if dispatch.switched_off():
        return "no kernel could be built on this machine"
    if not force:
        device = next(base.parameters()).device
        if device.type != "cuda":
            return "no GPU"
        if not dispatch.use_triton(torch.empty(0, device=device)):
            return "this card or this install runs no Triton kernels (compute capability 7.5 and later)"
    return ""


def _unknown(config: Any, family: Family) -> str:
    if not family.fast:
        return f"no fast layer for model type {getattr(config, 'model_type', 'unknown')} yet"
    return f"activation {_activation(config)}"


def _why_not(layer: nn.Module, family: Family) -> str:
    """Why this layer can never be fast; empty where it can."""
    if hasattr(layer, "replaced"):
        return "swapped already"
    adapted = False
    for name, module in projections_of(layer, family).items():
        if module is None:
            return f"no {name}"
        reason = why_not_static(module)
        if reason:
            return f"{reason} in {name}"
        adapted = adapted or is_adapted(module)
    if not adapted:
        # It could not see that peft's adapters are disabled.
        return "no adapter in it"
    if any(dropout.p > 0 for dropout in layer.children() if isinstance(dropout, nn.Dropout)):
        return "dropout on its residuals"
    if getattr(layer.self_attn, "attention_dropout", 0.0):
        return "dropout on attention weights"
    for norm in norms_of(layer, family).values():
        if not _is_frozen_norm(norm):
            return "a norm that is trained or of another kind"
    return ""


def _why_sixteen(layer: nn.Module, family: Family) -> str:
    """Why the frozen products of such layers stay in 16 bits; empty where eight serve."""
    read = [read_projection(module) for module in projections_of(layer, family).values()]
    parts = [projection for projection in read if projection is not None]
    if any(part.magnitude is not None for part in parts):
        return "DoRA scales each weight's rows anew"
    if any(part.start is not None for part in parts):
        return "the adapter's start is taken from each weight"
    odd = any(size % kernels.STEP for part in parts for size in part.shape)
    return f"sizes that are no multiples of {kernels.STEP}" if odd else ""


def _is_frozen_norm(norm: Any) -> bool:
    return norm is not None and has_eps(norm) and not norm.weight.requires_grad and not is_adapted(norm)


def _activation(config: Any) -> str:
    """``hidden_activation`` first: in Gemma 1's configs ``hidden_act`` is wrong where both are set."""
    return str(getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", "silu"))


def apply(peft_model: nn.Module, plan: SwapPlan) -> Applied:
    """Swaps what the plan names; set checkpointing afterwards, on the new layers. Streamed ones stay streamed."""
    base = base_causal_model(peft_model)
    body: Any = base.base_model
    swapped: list[tuple[nn.Module, str, nn.Module, nn.Module]] = []
    for index in plan.swaps:
        old = body.layers[index]
        new: Any = fast_layer(old, plan.family, ready_of(old))
        new.arithmetic = kernels.ARITHMETICS[plan.arithmetic]
        swapped.append((body.layers, str(index), old, new))
    if plan.last_norm:
        swapped.append((body, "norm", body.norm, fast_norm(body.norm, plan.family, swapped[-1][3])))
    if plan.projections:
        swapped += [(parent, name, old, fast_projection(old)) for parent, name, old in adapted_projections(base)]
    for parent, name, _, new in swapped:
        parent._modules[name] = new
    return Applied(tuple(swapped))


def undo(applied: Applied) -> None:
    """Puts every replaced module back where it was."""
    for parent, name, old, new in applied.swapped:
        old.training = new.training
        parent._modules[name] = old
