"""Packed attention: many rows in one pass, each causal, none seeing another.

``luthier_packed`` is registered with transformers as an attention function **and** as a mask function (without the
second a padded batch would silently lose its mask). Rows lie one after another on the token axis::

    tokens   a a a a b b c c c        cu_seq_lens = [0, 4, 6, 9]

Where the row bounds ``cu_seq_lens_q`` are given, token i of a row sees tokens j <= i of its own row (and j > i - W in a
layer with a sliding window W). Without bounds it is transformers' own ``sdpa``, mask and all.

On CUDA in 16 bits the rows run through ``torch.nn.attention.varlen`` (FlashAttention inside torch, compute capability
8.0 and later); everything else runs row by row through ``scaled_dot_product_attention``, or in plain arithmetic where
logits are soft-capped (Gemma 2).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

__all__ = ["NAME", "attention_line", "choose_attention", "packed_attention", "register", "row_bounds_given"]

NAME = "luthier_packed"

_bounds_given: ContextVar[bool] = ContextVar("luthier_row_bounds_given", default=False)


def register() -> None:
    """Makes ``luthier_packed`` known to transformers in this process. Calling it again changes nothing."""
    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, _packed_mask)


def choose_attention(device: torch.device, dtype: torch.dtype, config: Any) -> str:
    """The attention to load a model of this config with.

    ``luthier_packed`` wherever the model's class takes its attention from transformers' registry; ``eager`` elsewhere
    (transformers then keeps packed rows apart by a mask).
    """
    del device, dtype  # what runs inside luthier_packed is chosen at each call, by the tensors that come
    model_class = _model_class(config)
    return NAME if getattr(model_class, "_supports_attention_backend", False) else "eager"


def attention_line(device: torch.device, dtype: torch.dtype, config: Any) -> str:
    """What will run, said to a person."""
    if choose_attention(device, dtype, config) != NAME:
        return "attention: the model's own, rows kept apart by a mask"
    if getattr(config, "attn_logit_softcapping", None):
        return "attention: row by row, plain arithmetic (this model caps its attention logits)"
    if _varlen_runs(device, dtype, int(_head_dim(config))):
        return "attention: packed, FlashAttention inside torch"
    return "attention: packed, row by row through torch"


@contextmanager
def row_bounds_given() -> Iterator[None]:
    """Says that the forward pass inside brings row bounds, so that no T×T mask need be built to keep rows apart.

    It only saves the mask. A pass with bounds outside of it is right as well.
    """
    token = _bounds_given.set(True)
    try:
        yield
    finally:
        _bounds_given.reset(token)


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attention in transformers' convention.

    Args:
        module: the attention module that asks (its ``num_key_value_groups`` tells grouped heads).
        query: ``[batch, heads, T, head_dim]``; ``key`` and ``value`` may have fewer heads.
        attention_mask: read only where no row bounds are given.
        dropout: on attention weights; above 0 rows run one by one.
        scaling: of the logits; None means 1/sqrt(head_dim).
        options: ``cu_seq_lens_q`` int32 ``[rows + 1]``, ``max_length_q``, ``sliding_window``, ``softcap``.

    Returns:
        ``[batch, T, heads, head_dim]`` and None (no weights are kept).
    """
    bounds = options.get("cu_seq_lens_q")
    softcap = options.get("softcap")
    window = options.get("sliding_window")
    if bounds is None or query.shape[0] != 1 or query.shape[2] != key.shape[2]:
        if softcap is None:
            return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **options)
        scale = scaling if scaling is not None else query.shape[-1] ** -0.5
        return _capped(query, key, value, attention_mask, scale=scale, cap=float(softcap), drop=dropout), None
    longest = int(options.get("max_length_q") or query.shape[2])
    window = int(window) if window is not None and window < longest else None
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    if softcap is None and dropout == 0.0 and _varlen_runs(query.device, query.dtype, query.shape[-1], window):
        return _varlen(query, key, value, bounds, longest, scale=scale, window=window), None

    def one_row(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mask = _window_mask(q.shape[2], window, q.device)
        if softcap is not None:
            return _capped(q, k, v, mask, scale=scale, cap=float(softcap), drop=dropout)
        return sdpa_attention_forward(module, q, k, v, mask, dropout, scale)[0]

    return _row_by_row(one_row, query, key, value, bounds), None


def _row_by_row(
    one_row: Callable[..., torch.Tensor], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bounds: torch.Tensor
) -> torch.Tensor:
    edges = bounds.tolist()
    pieces = [
        one_row(q[:, :, start:end], k[:, :, start:end], v[:, :, start:end])
        for start, end in pairwise(edges)
        if end > start
    ]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)


def _window_mask(length: int, window: int | None, device: torch.device) -> torch.Tensor | None:
    """``[1, 1, T, T]``, True where seen; None where plain causal order says it all."""
    if window is None or length <= window:
        return None
    distance = torch.arange(length, device=device)[:, None] - torch.arange(length, device=device)[None, :]
    return ((distance >= 0) & (distance < window))[None, None]


def _capped(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    scale: float,
    cap: float,
    drop: float,
) -> torch.Tensor:
    """Textbook attention with logits ``cap · tanh(logits / cap)``, as transformers' eager path of Gemma 2."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    logits = cap * torch.tanh((q @ k.transpose(2, 3)) * scale / cap)
    if mask is None and q.shape[2] > 1:
        seen = k.shape[2] - q.shape[2]
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(seen)
    if mask is not None:
        mask = mask[..., : k.shape[2]]
        logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min) if mask.dtype == torch.bool else logits + mask
    weights = torch.softmax(logits, dim=-1, dtype=torch.float32).to(q.dtype)
    return (torch.dropout(weights, drop, drop > 0) @ v).transpose(1, 2)


def _varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bounds: torch.Tensor,
    longest: int,
    *,
    scale: float,
    window: int | None,
) -> torch.Tensor:
    """All rows in one FlashAttention call; ``[1, T, heads, head_dim]``."""
    function, known = _varlen_function()
    options: dict[str, Any] = {}
    if "window_size" in known:
        # FlashAttention counts the keys left of the query; transformers' window counts the query itself too.
        options["window_size"] = (-1 if window is None else window - 1, 0)
    else:
        options["is_causal"] = True
    if "scale" in known:
        options["scale"] = scale
    else:
        q = q * (scale * q.shape[-1] ** 0.5)
    if "enable_gqa" in known and q.shape[1] != k.shape[1]:
        options["enable_gqa"] = True
    rows = (part[0].transpose(0, 1).contiguous() for part in (q, k, v))
    bounds = bounds.to(device=q.device, dtype=torch.int32)
    result: torch.Tensor = function(*rows, bounds, bounds, longest, longest, **options)
    return result[None]


@lru_cache(maxsize=1)
def _varlen_function() -> tuple[Any, frozenset[str]]:
    """torch's variable-length attention and its parameters' names, which grew from 2.10 to 2.13."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None, frozenset()
    return varlen_attn, frozenset(inspect.signature(varlen_attn).parameters)


def _varlen_runs(device: torch.device, dtype: torch.dtype, head_dim: int, window: int | None = None) -> bool:
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return False
    function, known = _varlen_function()
    if function is None or (window is not None and "window_size" not in known):
        return False
    return head_dim % 8 == 0 and head_dim <= 256 and torch.cuda.get_device_capability(device) >= (8, 0)


def _packed_mask(*positional: Any, **options: Any) -> torch.Tensor | None:
    """transformers' sdpa mask, or None where row bounds take its place."""
    if _bounds_given.get() and options.get("attention_mask") is None:
        return None
    mask: torch.Tensor | None = sdpa_mask(*positional, **options)
    return mask


def _model_class(config: Any) -> Any:
    try:
        found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    except KeyError:
        return None
    return found[0] if isinstance(found, tuple) else found


def _head_dim(config: Any) -> int:
    given = getattr(config, "head_dim", None)
    return int(given or getattr(config, "hidden_size", 0) // max(1, getattr(config, "num_attention_heads", 1)))
