"""The table of families: which decoder layers have a fast twin, and how each model turns hidden states into logits.

A family is a ``model_type`` of config.json. Adding one is adding a line here, and a test that its gradients equal
plain peft's. A model that is not in the table trains through plain peft and its own head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["FAMILIES", "Family", "Head", "family_of", "head_of"]


@dataclass(frozen=True)
class Family:
    """What sets one family's decoder layer apart from Llama's.

    ``fast`` says that ``core.model.layers`` knows the layer; ``head_norms`` that queries and keys are normalised per
    head (``q_norm``, ``k_norm``) before they are turned.
    """

    fast: bool = False
    head_norms: bool = False


@dataclass(frozen=True)
class Head:
    """``logits = cap · tanh(scale · (h W') / cap)``; softcap 0 leaves the tanh out."""

    scale: float = 1.0
    softcap: float = 0.0


FAMILIES: dict[str, Family] = {
    "llama": Family(fast=True),
    "mistral": Family(fast=True),
    "qwen2": Family(fast=True),
    "qwen3": Family(fast=True, head_norms=True),
    "gemma": Family(),
    "gemma2": Family(),
    "gemma3_text": Family(),
    "phi3": Family(),
    "granite": Family(),
    "cohere": Family(),
}


def family_of(config: Any) -> Family | None:
    """The family of a transformers config, or None where it is unknown."""
    return FAMILIES.get(str(getattr(config, "model_type", "")))


def head_of(config: Any) -> Head | None:
    """How this model's logits follow from its head, or None where only its own forward pass knows."""
    if family_of(config) is None:
        return None
    scale = 1.0
    if getattr(config, "logits_scaling", None):
        scale = 1.0 / float(config.logits_scaling)
    elif getattr(config, "logit_scale", None):
        scale = float(config.logit_scale)
    return Head(scale=scale, softcap=float(getattr(config, "final_logit_softcapping", None) or 0.0))
