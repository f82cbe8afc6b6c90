"""What one forward and backward pass works on: the numbers out of which every memory term is made."""

from __future__ import annotations

from dataclasses import dataclass

from core.contract.catalogue import ModelShape, ModelSpec
from core.contract.config import LoraChoice, RunConfig

__all__ = ["FAST_TYPES", "HEAD_TYPES", "Work", "matrices", "work_of"]

FAST_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Families whose decoder layers have a fast twin; a test holds this to the table in ``core.model.families``."""
HEAD_TYPES = FAST_TYPES | {"gemma", "gemma2", "gemma3_text", "phi3", "granite", "cohere"}
"""Families whose logits we know how to make piece by piece; same test."""
HEAD_NORM_TYPES = frozenset({"qwen3", "gemma3_text"})
"""Families that normalise queries and keys per head, and keep both for it."""
FOUR_NORM_TYPES = frozenset({"gemma2", "gemma3_text"})
"""Families with a norm behind attention and MLP as well."""
CAPPED_TYPES = frozenset({"gemma2"})
"""Families that cap attention's logits: no fast attention does that, so scores of every pair of tokens are kept."""
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class Work:
    """One pass. ``tokens`` is T, ``row`` the longest row in it, ``dtype_bytes`` the arithmetic's.

    ``fast`` says that our own layers run.
    """

    shape: ModelShape
    lora: LoraChoice
    tokens: int
    row: int
    dtype_bytes: int
    quantized: bool
    recompute: bool
    eight_bit_optimiser: bool
    fast: bool
    pieces: bool
    """Whether the loss makes its logits piece by piece."""
    kernels: bool
    """Whether our loss kernel may run."""
    head_norms: bool
    four_norms: bool
    capped: bool
    gpu: bool


def work_of(config: RunConfig, spec: ModelSpec, tokens: int, gpu: bool, row: int | None = None) -> Work:
    """The pass of a config whose automatic values are resolved. ``row``: the longest row, else the length limit."""
    train = config.train
    return Work(
        shape=spec.shape,
        lora=config.lora,
        tokens=tokens,
        row=min(tokens, config.train.max_length if row is None else row),
        dtype_bytes=DTYPE_BYTES.get(config.model.dtype, 2 if gpu else 4),
        quantized=config.model.quantization == "nf4",
        recompute=train.checkpointing == "recompute",
        eight_bit_optimiser=train.optim == "adamw_8bit",
        fast=_fast(config, spec, gpu),
        pieces=config.method == "dpo" or spec.model_type in HEAD_TYPES,  # TRL's DPO takes pieces of its own
        kernels=gpu and config.method == "sft" and train.kernels != "plain",
        head_norms=spec.model_type in HEAD_NORM_TYPES,
        four_norms=spec.model_type in FOUR_NORM_TYPES,
        capped=spec.model_type in CAPPED_TYPES,
        gpu=gpu,
    )


def matrices(shape: ModelShape) -> dict[str, tuple[int, int]]:
    """The projections of one decoder layer: name to (in, out)."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    queries = shape.num_attention_heads * shape.head_dim
    keys = shape.num_key_value_heads * shape.head_dim
    return {
        "q_proj": (hidden, queries),
        "k_proj": (hidden, keys),
        "v_proj": (hidden, keys),
        "o_proj": (queries, hidden),
        "gate_proj": (hidden, inner),
        "up_proj": (hidden, inner),
        "down_proj": (inner, hidden),
    }


def _fast(config: RunConfig, spec: ModelSpec, gpu: bool) -> bool:
    """Our layers want kernels, a family with a twin, plain LoRA, and rows without padding."""
    lora, train = config.lora, config.train
    plain = train.kernels == "plain" or lora.use_dora or lora.lora_dropout > 0 or lora.bias != "none"
    packed = config.method == "sft" and train.packing
    return gpu and packed and spec.model_type in FAST_TYPES and not plain
