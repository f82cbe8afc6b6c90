"""What a GGUF file says of a model's shape and positions: the metadata behind the architecture's name."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from core.contract.config import ModelChoice
from core.contract.config.positions import BY_ROPE_TYPE
from core.contract.errors import ModelError
from core.export.gguf.architectures import Architecture, Config, Facts, of
from core.models.positions import reach_of, stretch


def read_config(base: Path, choice: ModelChoice | None = None) -> Config:
    """The base's config as transformers completes it, a language model's; with the positions of a run's choice."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(base), local_files_only=True, trust_remote_code=False)
    return stretch(config, choice) if choice else config


def head_size(config: Config) -> int:
    """Values of one attention head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def facts_of(config: Config) -> Facts:
    """Every fact of the model's shape, without the architecture's name before it.

    Raises:
        ModelError: llama.cpp lacks the family, or its way to place positions.
    """
    architecture, head = of(config), head_size(config)
    if not architecture.heads_apart and head * config.num_attention_heads != config.hidden_size:
        raise ModelError(
            "gguf.part", family=config.model_type, part=f"heads of {head} that do not make up the hidden size"
        )
    facts: Facts = {
        "vocab_size": int(config.vocab_size),
        "context_length": int(config.max_position_embeddings),
        "embedding_length": int(config.hidden_size),
        "block_count": int(config.num_hidden_layers),
        "feed_forward_length": int(config.intermediate_size),
        "attention.head_count": int(config.num_attention_heads),
        "attention.head_count_kv": int(config.num_key_value_heads),
        "attention.key_length": head,
        "attention.value_length": head,
        "rope.dimension_count": _rotated(config),
    }
    if (epsilon := getattr(config, "rms_norm_eps", None)) is not None:
        facts["attention.layer_norm_rms_epsilon"] = float(epsilon)
    return facts | _positions(config, architecture) | architecture.facts(config)


def notes_of(config: Config) -> tuple[str, ...]:
    """What differs in llama.cpp for long texts."""
    window, notes = getattr(config, "sliding_window", None), tuple[str, ...]()
    row = BY_ROPE_TYPE.get(str(_rope(config).get("rope_type")))
    if row is not None and row.by_length:
        most = f"{int(config.max_position_embeddings):,}"
        notes = (f"llama.cpp has no {row.title}: texts of more than {most} tokens are read without it; YaRN it has",)
    kinds = getattr(config, "layer_types", None)
    sliding = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    if of(config).windows or not window or not sliding or window >= config.max_position_embeddings:
        return notes
    return (
        *notes,
        f"llama.cpp attends to all tokens where this model attends to the last {window:,}: longer texts differ",
    )


def _rotated(config: Config) -> int:
    share = _rope(config).get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None) or 1.0
    return int(head_size(config) * float(share))


def _rope(config: Config, kind: str = "full_attention") -> dict[str, Any]:
    """How positions are rotated; Gemma 3 has one way for each kind of layer."""
    parameters: dict[str, Any] = dict(config.rope_parameters or {})
    return dict(parameters.get(kind, {} if kind == "sliding_attention" else parameters) or {})


def _plain(_rope: dict[str, Any]) -> Facts:
    return {}


_YARN = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
"""What llama.cpp takes in every file of these families."""


def _yarn(rope: dict[str, Any]) -> Facts:
    """llama.cpp scales attention by ``1 + ln(factor) / 10``, and by ``attn_factor`` besides."""
    factor = float(rope["factor"])
    for name, taken in _YARN.items():
        if rope.get(name) not in (None, taken):
            raise ModelError("gguf.part", family="YaRN", part=f"{name} = {rope[name]}")
    facts: Facts = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": int(rope["original_max_position_embeddings"]),
    }
    one, all_ = rope.get("mscale"), rope.get("mscale_all_dim")
    wanted = rope.get("attention_factor")
    if wanted is None and one and all_:
        wanted = _attention(factor, one) / _attention(factor, all_)
    return facts if wanted is None else facts | {"rope.scaling.attn_factor": wanted / _attention(factor)}


def _attention(factor: float, times: float = 1.0) -> float:
    return 1.0 + 0.1 * times * math.log(max(factor, 1.0))


_SCALINGS: dict[str, Callable[[dict[str, Any]], Facts]] = {
    "default": _plain,
    "dynamic": _plain,  # as it is up to the length that the model was trained for
    "llama3": _plain,  # by a tensor of factors
    "linear": lambda rope: {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])},
    "yarn": _yarn,
    "longrope": lambda _: {"rope.scaling.type": "longrope"},
    "su": lambda _: {"rope.scaling.type": "longrope"},
}


def _positions(config: Config, architecture: Architecture) -> Facts:
    rope = _rope(config)
    kind = str(rope.get("rope_type") or "default").lower()
    if kind not in _SCALINGS:
        raise ModelError("gguf.part", family=config.model_type, part=f"positions scaled by {kind}")
    facts: Facts = {"rope.freq_base": float(rope.get("rope_theta", 10_000.0))} | _SCALINGS[kind](rope)
    if "rope.scaling.factor" in facts:
        facts["context_length"] = reach_of(vars(config))
    if architecture.windows and (own := _rope(config, "sliding_attention").get("rope_theta")) is not None:
        facts["rope.freq_base_swa"] = float(own)
    return facts


def rope_tensors(config: Config) -> dict[str, torch.Tensor]:
    """Factors of rotary frequencies ``[rotated / 2]`` that stand as tensors: Llama 3's, Phi-3's short and long ones."""
    rope = _rope(config)
    if rope.get("long_factor"):
        return {
            f"rope_factors_{name}.weight": torch.tensor(rope[f"{name}_factor"], dtype=torch.float32)
            for name in ("long", "short")
        }
    if str(rope.get("rope_type")).lower() != "llama3":
        return {}
    # Short waves stay, long ones become longer by the whole factor, those between them smoothly.
    factor, low, high = (float(rope[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    places = torch.arange(0, size := _rotated(config), 2, dtype=torch.float64)
    waves = 2 * math.pi * float(rope["rope_theta"]) ** (places / size)
    turns = float(rope["original_max_position_embeddings"]) / waves
    smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return {"rope_freqs.weight": (1.0 / ((1.0 - smooth) / factor + smooth)).float()}
