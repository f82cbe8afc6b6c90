"""A micro-batch of a model under a config."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.optimisers import optimiser_of
from core.contract.weight_forms import ARITHMETICS, DEFAULT_ARITHMETIC
from core.estimate.inputs.encoder import EncoderModel
from core.estimate.inputs.model import AdaptedModel
from core.models.encoders import ENCODERS
from core.models.families import FAMILIES, Family

Policy = Literal["none", "recompute", "offload", "budget"]
GIB = 1024**3
LARGE_HEAD = 3 * 2**28
"""Numbers of a head that streams without being asked to: 1.5 GiB in 16 bits."""
USUAL_LABELS = 2
"""Where the data is not known."""
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, eq=False)
class Work:
    """One micro-batch of so many tokens.

    ``limit_bytes``: what a run under a budget may use of the card in all. ``single``: a step is one micro-batch, so
    there are no gradients yet when activations are highest. ``varied``: micro-batches differ in size, so gaps of the
    allocator do not fit again. ``context_bytes``: what CUDA takes beside the allocator.
    """

    model: AdaptedModel
    tokens: int
    policy: Policy
    limit_bytes: int
    single: bool = False
    varied: bool = False
    context_bytes: int = GIB // 2
    copy_rate: float = 0.0
    """Bytes a second from the machine's memory to the card, as measured; 0: unknown."""
    tile: int = 0
    """Tokens of the tiles in which recomputed layers are computed where there are more; 0: never."""

    @property
    def tiled(self) -> bool:
        """Whether its recomputed layers, if it has any, are computed in tiles."""
        return 0 < self.tile < self.tokens

    def streaming(self, layers: int) -> Work:
        """The same with so many streamed layers."""
        return replace(self, model=replace(self.model, streamed=layers))

    def at(self, tokens: int, policy: Policy | None = None, single: bool | None = None) -> Work:
        """The same model on another micro-batch."""
        single = self.single if single is None else single
        return replace(self, tokens=tokens, policy=policy or self.policy, single=single)


def gigabytes(size: int) -> str:
    """Units of 1024³ bytes, called GB as on a card's box."""
    return f"{size / GIB:.1f} GB"


def work_of(
    config: RunConfig, spec: ModelSpec, tokens: int, gpu: bool, row: int | None = None, limit: int | None = None
) -> Work:
    """A micro-batch under a config whose automatic values are resolved.

    Args:
        row: the longest row, else the length limit.
        limit: bytes that a run under a budget may use, else as the config says.
    """
    train, lora, family = config.train, config.lora, FAMILIES.get(spec.model_type)
    # Our layers want kernels, a family that they know, LoRA or DoRA without dropout, and rows without padding.
    plain = train.kernels == "plain" or lora.lora_dropout > 0 or lora.bias != "none"
    plain = plain or not config.learns.adapter
    fast = gpu and train.packing and family is not None and family.fast and not plain
    # Our loss reads the head itself, but for one with an adapter.
    pieces = family is not None and (not config.learns.adapter or "lm_head" not in lora.target_modules)
    encoder, scores = ENCODERS.get(spec.model_type) if spec.encoder else None, 0
    if encoder or config.learning.task.scores:
        scores = USUAL_LABELS if encoder or config.learning.labelled else 1
    own: dict[str, Any] = (
        {"encoder": encoder, "ours": gpu and train.packing and train.kernels != "plain"} if encoder else {}
    )
    model = (EncoderModel if encoder else AdaptedModel)(
        shape=spec.shape,
        family=family or Family(),
        lora=lora,
        row=min(tokens, train.max_length if row is None else row),
        dtype_bytes=DTYPE_BYTES.get(config.model.dtype, 2 if gpu else 4),
        form=config.model.form,
        optimiser=optimiser_of(train.optim, gpu),
        fast=fast,
        pieces=pieces,
        flash=config.model.dtype not in ("float16", "float32"),
        gpu=gpu,
        learns=config.learns,
        scores=scores,
        arithmetic=ARITHMETICS[train.arithmetic if fast and train.arithmetic in ARITHMETICS else DEFAULT_ARITHMETIC],
        streamed=min(max(0, config.model.streamed_layers), most_streamed(config, spec)) * streams(spec, config, gpu),
        **own,
    )
    limit = round(train.memory_gib * GIB) if limit is None else limit
    return Work(
        model, tokens, policy_of(train.checkpointing, gpu, fast), limit, tile=max(0, train.tile_tokens) if fast else 0
    )


def streams(spec: ModelSpec, config: RunConfig, gpu: bool) -> bool:
    """Whether layers can stream: their weights are frozen, and there is a card that they would otherwise fill."""
    return gpu and config.learns.adapter and not spec.encoder


def most_streamed(config: RunConfig, spec: ModelSpec) -> int:
    """The layers, and one more where the head can stream: it scores words, is one that our loss reads, and frozen."""
    trained = not config.learns.adapter or config.learns.ends or "lm_head" in config.lora.target_modules
    head = spec.model_type in FAMILIES and not config.learning.task.scores and not trained
    return spec.shape.num_hidden_layers + head


def most_proposed(config: RunConfig, spec: ModelSpec) -> int:
    """The same where nobody chose: a small head stays, since it frees little and only the smallest cards need that."""
    large = spec.shape.vocab_size * spec.shape.hidden_size >= LARGE_HEAD
    return most_streamed(config, spec) if large else spec.shape.num_hidden_layers


def policy_of(chosen: str, gpu: bool, fast: bool) -> Policy:
    """What a choice comes to: only our layers on a card have host memory and a budget."""
    if chosen == "offload":
        return "offload" if fast else "recompute"
    if chosen == "budget":
        return "budget" if fast else "recompute" if gpu else "none"
    return "recompute" if chosen == "recompute" else "none"
