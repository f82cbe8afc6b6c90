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
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class Work:
    """One pass. ``tokens`` is T; ``dtype_bytes`` is the arithmetic's; ``fast`` says that our own layers run."""

    shape: ModelShape
    lora: LoraChoice
    tokens: int
    dtype_bytes: int
    quantized: bool
    recompute: bool
    eight_bit_optimiser: bool
    fast: bool
    pieces: bool
    """Whether the loss makes its logits piece by piece."""
    kernels: bool
    """Whether our kernels may run at all."""
    gpu: bool


def work_of(config: RunConfig, spec: ModelSpec, tokens: int, gpu: bool) -> Work:
    """The pass of a config whose automatic values are resolved (``auto`` reads as the most careful choice)."""
    train = config.train
    return Work(
        shape=spec.shape,
        lora=config.lora,
        tokens=tokens,
        dtype_bytes=DTYPE_BYTES.get(config.model.dtype, 2 if gpu else 4),
        quantized=config.model.quantization == "nf4",
        recompute=train.checkpointing == "recompute",
        eight_bit_optimiser=train.optim == "adamw_8bit",
        fast=_fast(config, spec, gpu),
        pieces=config.method == "sft" and spec.model_type in HEAD_TYPES,
        kernels=gpu and train.kernels != "plain",
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
    lora = config.lora
    plain = config.train.kernels == "plain" or lora.use_dora or lora.lora_dropout > 0 or lora.bias != "none"
    return gpu and spec.model_type in FAST_TYPES and not plain
