"""ARCHITECTURES, by ``model_type`` of config.json: what llama.cpp calls a family, and how it wants tensors and facts.

Facts are keys of the file's metadata behind the architecture's name, as ``convert_hf_to_gguf.py`` of llama.cpp writes
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core.contract.errors import ModelError

Config = Any
"""A transformers config."""
Facts = dict[str, int | float | bool | str | list[bool]]


@dataclass(frozen=True)
class Architecture:
    """How llama.cpp reads a family.

    ``name``: its name there. ``paired``: rotary pairs lie side by side, so that rows of queries and keys are reordered
    within a head. ``norm_offset``: added to the weights of norms (Gemma's count from zero). ``tied``: it knows no head
    beside the embedding. ``windows``: it reads a sliding window; the others attend to every token. ``heads_apart``:
    heads may be wider together than the hidden size. ``facts``: of this family alone.
    """

    name: str
    paired: bool = False
    norm_offset: float = 0.0
    tied: bool = False
    windows: bool = False
    heads_apart: bool = True
    facts: Callable[[Config], Facts] = lambda _config: {}


def of(config: Config) -> Architecture:
    """The row of a model's family. Raises ModelError where llama.cpp has none, or computes it in another way."""
    row = ARCHITECTURES.get(str(config.model_type))
    if row is None:
        raise ModelError("gguf.family", family=config.model_type, families=", ".join(ARCHITECTURES))
    return row


def _granite(config: Config) -> Facts:
    names = {
        "attention.scale": "attention_multiplier",
        "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier",
        "logit_scale": "logits_scaling",
    }
    return {key: float(getattr(config, name)) for key, name in names.items()}


def _cohere(config: Config) -> Facts:
    if getattr(config, "use_qk_norm", False):
        raise ModelError("gguf.part", family=config.model_type, part="norms of queries and keys")
    epsilon = float(config.layer_norm_eps)
    return {"logit_scale": float(config.logit_scale), "attention.layer_norm_epsilon": epsilon}


def _gemma(config: Config) -> Facts:
    # llama.cpp takes queries by the root of a head's size, and in the 27B by that of hidden size over heads.
    large = config.num_hidden_layers in (46, 62)
    wanted = config.hidden_size / config.num_attention_heads if large else config.head_dim
    scale = float(getattr(config, "query_pre_attn_scalar", wanted))
    if not math.isclose(scale, wanted):
        raise ModelError("gguf.part", family=config.model_type, part=f"attention scaled by 1/√{scale:g}")
    caps = {name: getattr(config, name, None) for name in ("attn_logit_softcapping", "final_logit_softcapping")}
    facts: Facts = {name: float(cap) for name, cap in caps.items() if cap}
    # Which layers see a window alone is written where the family's own pattern is another.
    kinds, own = list(config.layer_types), 2 if hasattr(config, "attn_logit_softcapping") else 6
    sliding = [kind == "sliding_attention" for kind in kinds]
    if any(sliding):
        facts["attention.sliding_window"] = int(config.sliding_window)
        if sliding != [number % own < own - 1 for number in range(len(kinds))]:
            facts["attention.sliding_window_pattern"] = sliding
    return facts


def _phi(config: Config) -> Facts:
    rope = config.rope_parameters
    own = rope.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None)
    own = int(own or config.max_position_embeddings)
    facts: Facts = {"rope.scaling.original_context_length": own}
    if rope.get("long_factor"):
        longer = config.max_position_embeddings / own
        root = math.sqrt(1 + math.log(longer) / math.log(own)) if longer > 1 else 1.0
        facts["rope.scaling.attn_factor"] = float(rope.get("attention_factor") or root)
    # A window of zero tells Phi-4 from Phi-3, of which llama.cpp reads none.
    return facts | {"attention.sliding_window": int(config.sliding_window or 0)}


_LLAMA = Architecture("llama", paired=True)

ARCHITECTURES: dict[str, Architecture] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": Architecture("qwen2", heads_apart=False),
    "qwen3": Architecture("qwen3"),
    "gemma": Architecture("gemma", norm_offset=1.0, tied=True),
    "gemma2": Architecture("gemma2", norm_offset=1.0, tied=True, windows=True, facts=_gemma),
    "gemma3_text": Architecture("gemma3", norm_offset=1.0, tied=True, windows=True, facts=_gemma),
    "phi3": Architecture("phi3", heads_apart=False, facts=_phi),
    "granite": Architecture("granite", paired=True, facts=_granite),
    "cohere": Architecture("command-r", tied=True, heads_apart=False, facts=_cohere),
}
