"""From packed rows to one row of logits each.

    tokens   a a a a b b c c c        bounds 0 4 6 9        positions 0 1 2 3 0 1 0 1 2

The body runs on all tokens at once; each row is then pooled (its first token, or its mean) and goes through the model's
own head, which computes in its weights' dtype whatever the body's arithmetic is.
"""

import contextlib
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from core.kernels.reference import wide
from core.model.attention.packed import bounds_mask
from core.model.encoders.blocks import Blocks
from core.model.encoders.layer import BOUNDS, is_packed, part
from core.model.encoders.surgery import body_of
from core.model.layers.peft_bnb import base_causal_model
from core.models.encoders import EncoderFamily, encoder_of, first_position

Packed = Mapping[str, Any]
"""``input_ids`` and ``position_ids`` ``[1, T]`` (each row's from 0), ``cu_seq_lens_q`` int32 ``[rows + 1]``,
``max_length_q``, and where rows have two parts ``token_type_ids`` ``[1, T]``; more is not read. As
``core.train.step.batches.pack`` makes it."""
FUNCTIONS = {"relu": torch.relu}
"""Steps of a head that are no submodule."""


def classify_logits(model: nn.Module, batch: Packed, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Logits ``[rows, classes]`` of packed rows, in float32 (float64 for a float64 model).

    Args:
        model: a sequence classifier of transformers, whose layers ``surgery.apply`` has swapped; where they are not,
            the rows are padded here.
        batch: the rows, each of one token at least.
        dtype: what the body's products are computed in under autocast, the weights staying as they are; None: as the
            caller's autocast says.
    """
    base = base_causal_model(model)
    family = encoder_of(base.config)
    device = batch["input_ids"].device
    autocast = partial(torch.autocast, device.type)
    with contextlib.nullcontext() if dtype is None else autocast(dtype=dtype):
        if family is None:
            logits: torch.Tensor = base(**padded(batch, base.config.pad_token_id)[0]).logits
            return logits.to(wide(logits.dtype))
        if is_packed(part(body_of(base), family.layers)[0]):
            states = packed_states(base, family, batch)
        else:
            rows = {**_inputs(base.config, family, batch), BOUNDS[0]: batch[BOUNDS[0]]}
            inputs, places = padded(rows, base.config.pad_token_id)
            states = body_of(base)(**inputs).last_hidden_state.flatten(0, 1).index_select(0, places)
    with autocast(enabled=False):
        pooled = _pooled(base, family, states, batch[BOUNDS[0]])
        logits = head_logits(base, family, pooled)
    return logits.to(wide(logits.dtype))


def packed_states(base: Any, family: EncoderFamily, batch: Packed) -> torch.Tensor:
    """The body's last hidden states ``[T, D]``."""
    body, positions = body_of(base), batch["position_ids"]
    inputs = _inputs(base.config, family, batch)
    if family.positions:
        inputs["position_ids"] = positions + first_position(base.config)
    x = body.embeddings(**inputs)
    options: dict[str, Any] = {"attention_mask": bounds_mask(x.device), **{name: batch[name] for name in BOUNDS}}
    if family.relative:
        edges = batch[BOUNDS[0]].tolist()
        options = {"blocks": Blocks.of(edges, part(body, family.relative), x.device)}
    angles: dict[str, Any] = {}
    if family.rotary:
        turn = part(body, family.rotary)
        angles = {kind: turn(x, positions, kind) for kind in dict.fromkeys(base.config.layer_types)}
    for layer in part(body, family.layers):
        more = {"position_embeddings": angles[layer.attention_type]} if angles else {}
        x = layer(x, **options, **more)
    x = part(body, family.last)(x) if family.last else x
    return x[0]


def _inputs(config: Any, family: EncoderFamily, batch: Packed) -> dict[str, Any]:
    names = ("input_ids", "token_type_ids") if family.token_types else ("input_ids",)
    given = {name: batch[name] for name in names if name in batch}
    separator = getattr(config, "sep_token_id", None)
    if family.token_types and separator is not None and getattr(config, "type_vocab_size", 0) > 1:
        given.setdefault("token_type_ids", _types(batch["input_ids"][0], batch[BOUNDS[0]], separator)[None])
    return given


def _types(ids: torch.Tensor, bounds: torch.Tensor, separator: int) -> torch.Tensor:
    """``[T]`` 0 up to the first separator of each row, 1 behind it: the second of two texts, as tokenizers say it."""
    marks = (ids == separator).long()
    before = marks.cumsum(0) - marks
    tokens = torch.arange(len(ids), dtype=bounds.dtype, device=bounds.device)
    begins = bounds.index_select(0, torch.searchsorted(bounds, tokens, right=True) - 1)
    return (before > before.index_select(0, begins.long())).long()


def padded(batch: Packed, pad_id: int | None) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The rows padded on the right to the longest, as transformers takes them, and each token's place among all slots.

    Reads the bounds on the host.
    """
    edges = batch[BOUNDS[0]].tolist()
    longest = max(end - start for start, end in pairwise(edges))
    rows = len(edges) - 1
    places = torch.cat([row * longest + torch.arange(end - start) for row, (start, end) in enumerate(pairwise(edges))])
    places = places.to(batch["input_ids"].device)
    inputs = {"attention_mask": _spread(torch.ones_like(batch["input_ids"]), places, (rows, longest), 0)}
    for name, fill in (("input_ids", pad_id or 0), ("token_type_ids", 0)):
        if name in batch:
            inputs[name] = _spread(batch[name], places, (rows, longest), fill)
    return inputs, places


def _spread(values: torch.Tensor, places: torch.Tensor, shape: tuple[int, int], fill: int) -> torch.Tensor:
    spread = values.new_full((shape[0] * shape[1],), fill)
    spread[places] = values[0]
    return spread.view(shape)


def _pooled(base: Any, family: EncoderFamily, states: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    """``[rows, D]``: the first token of each row, or the mean of its tokens."""
    if not family.pooling or getattr(base.config, family.pooling) == "cls":
        return states.index_select(0, bounds[:-1].long())
    tokens = torch.arange(len(states), dtype=bounds.dtype, device=bounds.device)
    inside = (tokens >= bounds[:-1, None]) & (tokens < bounds[1:, None])
    # A product adds up without atomics, so the mean is the same from run to run.
    share = inside.to(wide(states.dtype)) / (bounds[1:] - bounds[:-1])[:, None]
    return share @ states.to(share.dtype)


def head_logits(base: Any, family: EncoderFamily, pooled: torch.Tensor) -> torch.Tensor:
    """``[rows, classes]`` from pooled rows, in the dtype of the head's weights."""
    first = next(part(base, family.head[-1]).parameters())
    x = pooled.to(first.dtype)
    if family.takes_states:
        x = x[:, None]
    for name in family.head:
        x = FUNCTIONS[name](x) if name in FUNCTIONS else part(base, name)(x)
    return x
