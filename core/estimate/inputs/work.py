"""What one forward and backward pass works on: the numbers out of which every memory term is made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from core.contract.catalogue import ModelShape, ModelSpec
from core.contract.config import LoraChoice, RunConfig
from core.estimate.inputs.layer import FastLayer, ModelEnd, attention_columns, rounded_rank

__all__ = ["FAST_TYPES", "GIB", "HEAD_TYPES", "Policy", "Work", "matrices", "policy_of", "target_names", "work_of"]

Policy = Literal["none", "recompute", "offload", "budget"]
GIB = 1024**3
FAST_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3"})
"""Families whose decoder layers have a fast twin; a test holds this to the table in ``core.models.families``."""
HEAD_TYPES = FAST_TYPES | {"granite", "cohere"}
"""Families whose logits we know how to make piece by piece; same test."""
HEAD_NORM_TYPES = frozenset({"qwen3", "gemma3_text"})
"""Families that normalise queries and keys per head, and keep both for it."""
FOUR_NORM_TYPES = frozenset({"gemma2", "gemma3_text"})
"""Families with a norm behind attention and MLP as well."""
CAPPED_TYPES = frozenset({"gemma2"})
"""Families that cap attention's logits: plain layers then keep the scores of every pair of tokens."""
FUSED_TYPES = frozenset({"phi3"})
"""Families that hold q, k, v in one projection, and gate and up in another."""
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_ATTENTION, _MLP = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
_FUSED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj",
          "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj"}  # fmt: skip


@dataclass(frozen=True)
class Work:
    """One pass. ``tokens`` is T, ``row`` the longest row in it, ``dtype_bytes`` the arithmetic's.

    ``fast`` says that our own layers run. ``limit_bytes``: what a run under a budget may use on the card in all.
    """

    shape: ModelShape
    lora: LoraChoice
    tokens: int
    row: int
    dtype_bytes: int
    quantized: bool
    policy: Policy
    eight_bit_optimiser: bool
    fast: bool
    pieces: bool
    """Whether the loss makes its logits piece by piece."""
    kernels: bool
    """Whether our loss kernel may run."""
    head_norms: bool
    four_norms: bool
    capped: bool
    fused: bool
    flash: bool
    """Whether attention reads heads where they lie."""
    gpu: bool
    limit_bytes: int
    single: bool = False
    """Whether a step is one pass: no gradient of an earlier one stands while its activations are at their height."""
    varied: bool = False
    """Whether passes differ in size, so that the allocator's gaps do not fit again."""
    context_bytes: int = GIB // 2
    """What CUDA takes beside the allocator, on a card."""
    kind: str = ""
    """``model_type`` of config.json."""

    @cached_property
    def fixed(self) -> dict[str, int]:
        """Figures that do not follow from tokens and policy, remembered by name; shared with what ``at`` gives."""
        return {}

    @cached_property
    def own(self) -> dict[str, int]:
        """Figures of this very pass, remembered by name."""
        return {}

    def at(self, tokens: int, policy: Policy | None = None, single: bool | None = None) -> Work:
        """The same work on another pass. What both have in common is not counted again: a plan tries dozens."""
        _ = (
            self.layer,
            self.end,
            self.adapted,
            self.adapted_ends,
            self.biases,
            self.fixed,
        )  # made here, so that they are among what is copied
        other = object.__new__(Work)
        other.__dict__.update(self.__dict__)
        other.__dict__.pop("own", None)
        changed: dict[str, object] = {"tokens": tokens, "row": min(tokens, self.row)}
        if policy is not None:
            changed["policy"] = policy
        if single is not None:
            changed["single"] = single
        other.__dict__.update(changed)
        return other

    @cached_property
    def layer(self) -> FastLayer:
        """One fast layer of this model."""
        shape = self.shape
        queries, keys = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
        return FastLayer(
            hidden=shape.hidden_size,
            queries=queries,
            keys=keys,
            inner=shape.intermediate_size,
            head_dim=shape.head_dim,
            ranks=self._ranks,
            itemsize=self.dtype_bytes,
            attention=attention_columns(queries, keys, "bfloat16" if self.flash else "float16", self.capped),
            head_norms=self.head_norms,
            four_norms=self.four_norms,
        )

    @cached_property
    def end(self) -> ModelEnd:
        """Last norm, head and loss."""
        return ModelEnd(self.shape.hidden_size, self.shape.vocab_size, self.dtype_bytes, self.fast)

    @cached_property
    def adapted(self) -> dict[str, tuple[int, int]]:
        """The projections of one layer that get an adapter: name to (in, out). A model that has none of the usual names
        gets one on each."""
        every = matrices(self.shape, self.fused)
        asked = [_FUSED.get(name, name) if self.fused else name for name in self.lora.target_modules]
        found = {name: every[name] for name in asked if name in every}
        return found if found or self.adapted_ends else every

    @cached_property
    def adapted_ends(self) -> dict[str, tuple[int, int]]:
        """Embedding and head, as far as they get an adapter: name to (in, out)."""
        hidden, words = self.shape.hidden_size, self.shape.vocab_size
        ends = {"embed_tokens": (words, hidden), "lm_head": (hidden, words)}
        return {name: ends[name] for name in self.lora.target_modules if name in ends}

    @cached_property
    def biases(self) -> tuple[int, ...]:
        """Lengths of the trained biases of one layer, in the base's own dtype (``lora_only``)."""
        if self.lora.bias == "none":
            return ()
        have = {*(_ATTENTION if self.shape.attention_bias else ()), *(_MLP if self.shape.mlp_bias else ())}
        have |= set(_ATTENTION[:3]) if self.kind == "qwen2" else set()
        return tuple(outputs for name, (_, outputs) in self.adapted.items() if name in have)

    @property
    def _ranks(self) -> tuple[int, int, int, int]:
        def rank(*names: str) -> int:
            return rounded_rank(self.lora.r * sum(name in self.adapted for name in names))

        return (
            rank("q_proj", "k_proj", "v_proj", "qkv_proj"),
            rank("o_proj"),
            rank("gate_proj", "up_proj", "gate_up_proj"),
            rank("down_proj"),
        )


def work_of(
    config: RunConfig, spec: ModelSpec, tokens: int, gpu: bool, row: int | None = None, limit: int | None = None
) -> Work:
    """The pass of a config whose automatic values are resolved.

    Args:
        row: the longest row, else the length limit.
        limit: bytes that a run under a budget may use, else as the config says.
    """
    train = config.train
    fast = _fast(config, spec, gpu)
    return Work(
        shape=spec.shape,
        lora=config.lora,
        tokens=tokens,
        row=min(tokens, config.train.max_length if row is None else row),
        dtype_bytes=DTYPE_BYTES.get(config.model.dtype, 2 if gpu else 4),
        quantized=config.model.form.quantised,
        policy=policy_of(train.checkpointing, gpu, fast),
        eight_bit_optimiser=train.optim == "adamw_8bit",
        fast=fast,
        pieces=_pieces(config, spec),
        kernels=gpu,  # ours, or TRL's
        head_norms=spec.model_type in HEAD_NORM_TYPES,
        four_norms=spec.model_type in FOUR_NORM_TYPES,
        capped=spec.model_type in CAPPED_TYPES,
        fused=spec.model_type in FUSED_TYPES,
        flash=config.model.dtype not in ("float16", "float32"),
        gpu=gpu,
        limit_bytes=round(train.memory_gib * GIB) if limit is None else limit,
        kind=spec.model_type,
    )


def target_names(spec: ModelSpec) -> tuple[str, ...]:
    """What can get an adapter in a model of a family that we know, with the names that we map; else nothing."""
    if spec.model_type not in HEAD_TYPES:
        return ()
    ends = ("lm_head", "embed_tokens")
    return (*matrices(spec.shape), *(matrices(spec.shape, True) if spec.model_type in FUSED_TYPES else ()), *ends)


def matrices(shape: ModelShape, fused: bool = False) -> dict[str, tuple[int, int]]:
    """The projections of one decoder layer: name to (in, out)."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    queries = shape.num_attention_heads * shape.head_dim
    keys = shape.num_key_value_heads * shape.head_dim
    out = {"o_proj": (queries, hidden), "down_proj": (inner, hidden)}
    if fused:
        return {"qkv_proj": (hidden, queries + 2 * keys), "gate_up_proj": (hidden, 2 * inner), **out}
    return {
        "q_proj": (hidden, queries),
        "k_proj": (hidden, keys),
        "v_proj": (hidden, keys),
        "gate_proj": (hidden, inner),
        "up_proj": (hidden, inner),
        **out,
    }


def _readable_head(config: RunConfig, spec: ModelSpec) -> bool:
    """Whether our loss reads the head itself: one with an adapter is left to the model, and its logits are whole."""
    return spec.model_type in HEAD_TYPES and "lm_head" not in config.lora.target_modules


def _fast(config: RunConfig, spec: ModelSpec, gpu: bool) -> bool:
    """Our layers want kernels, a family with a twin, plain LoRA, and rows without padding."""
    lora, train = config.lora, config.train
    plain = train.kernels == "plain" or lora.use_dora or lora.lora_dropout > 0 or lora.bias != "none"
    return gpu and config.packed and spec.model_type in FAST_TYPES and not plain


def _pieces(config: RunConfig, spec: ModelSpec) -> bool:
    """TRL's losses take pieces of their own; a formula that stands in for one without kernels holds all logits whole
    (``core.train.methods.dpo``)."""
    if not config.learning.own_loss:
        return config.train.kernels != "plain"
    return _readable_head(config, spec)


def policy_of(chosen: str, gpu: bool, fast: bool) -> Policy:
    """What becomes of a choice: only fast layers on a card know host memory and a budget."""
    if chosen == "offload":
        return "offload" if fast else "recompute"
    if chosen == "budget":
        return "budget" if fast else "recompute" if gpu else "none"
    return "recompute" if chosen == "recompute" else "none"
