"""FAMILIES, by ``model_type`` of config.json: which decoder layers we have a fast form of, and how hidden states become
logits. A model that is not in the table trains through plain peft and its own head."""

from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Family:
    """How a family's decoder layer differs from Llama's.

    ``fast``: ``core.model.layers.decoder_layer`` supports it. ``qkv`` and ``gate_up`` name the projections whose
    outputs lie side by side, ``norms`` the layer's norms in running order (Gemma has two more, after attention and
    MLP). ``head_norms``: queries and keys are normalised per head before the rotary embedding. ``norm_offset`` is added
    to a norm's weight. ``capped``: attention's logits are. ``qkv_bias``: whatever the config says.
    ``stretches``: transformers takes any scaling of its rotary positions (``core.models.positions``).
    """

    fast: bool = False
    head_norms: bool = False
    norm_offset: float = 0.0
    activation: Literal["silu", "gelu_tanh"] = "silu"
    qkv: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    gate_up: tuple[str, ...] = ("gate_proj", "up_proj")
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    capped: bool = False
    qkv_bias: bool = False
    stretches: bool = True

    @property
    def four_norms(self) -> bool:
        """Whether there are norms after attention and MLP as well."""
        return len(self.norms) == 4

    @property
    def fused(self) -> bool:
        """Whether q, k and v are one projection, and gate and up another."""
        return len(self.qkv) == 1


@dataclass(frozen=True)
class Head:
    """``logits = cap · tanh(scale · (h W') / cap)``; softcap 0 leaves the tanh out."""

    scale: float = 1.0
    softcap: float = 0.0


_LLAMA = Family(fast=True)
_GEMMA = Family(fast=True, norm_offset=1.0, activation="gelu_tanh")
_GEMMA_2 = replace(
    _GEMMA,
    norms=(
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
)

FAMILIES: dict[str, Family] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": replace(_LLAMA, qkv_bias=True),
    "qwen3": replace(_LLAMA, head_norms=True),
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA_2, capped=True),
    "gemma3_text": replace(_GEMMA_2, head_norms=True, stretches=False),
    "phi3": replace(_LLAMA, qkv=("qkv_proj",), gate_up=("gate_up_proj",), stretches=False),
    "granite": Family(),
    "cohere": Family(),
}


def is_gemma(model_type: str) -> bool:
    """Whether it is one of Gemma's, in the table or not: float16 overflows there, and the head is the embedding by
    default."""
    return model_type.startswith("gemma")


def family_of(config: Any) -> Family | None:
    """The family of a transformers config, or None."""
    return FAMILIES.get(str(getattr(config, "model_type", "")))


def head_of(config: Any) -> Head | None:
    """How this model's logits follow from its head, or None for an unknown family."""
    if family_of(config) is None:
        return None
    scale = 1.0
    if getattr(config, "logits_scaling", None):
        scale = 1.0 / float(config.logits_scaling)
    elif getattr(config, "logit_scale", None):
        scale = float(config.logit_scale)
    return Head(scale=scale, softcap=float(getattr(config, "final_logit_softcapping", None) or 0.0))
