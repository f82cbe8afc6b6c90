"""Attention over packed rows, ``[T, heads, head_dim]`` in and out.

    o_i = Σ_j softmax_j(cap(scale · q_i · k_j)) v_j        j of i's own row, j <= i, and j > i - W in a window W

Encoders' is not causal: j is any of the row, and |i - j| < W in a window.

Inputs may be views of a buffer ``[q heads | k heads | v heads]``: only the last dimension must be dense. Heads may be
grouped (fewer of k and v). Only ``rows`` synchronises with the host, and ``xformers`` once a micro-batch. ``choice``
picks the backend.

FlashAttention-2 (Dao 2023) and memory-efficient attention (``efficient``) are torch's operators, with their backward
called by hand: torch's derivative of the latter drops the window.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from core.kernels import dispatch
from core.model.attention import flex as attention_flex
from core.model.attention import xformers as attention_xformers
from core.model.attention.choice import FLASH_FROM, AttentionKind, Backend, Bounds, Keys, Situation, choose
from core.model.attention.efficient import TORCH, Efficient
from core.model.attention.xformers import XFORMERS

ALIGNED_BYTES = 16


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bounds: Bounds, kind: AttentionKind) -> torch.Tensor:
    """Attention of every row to itself.

    Args:
        q: ``[T, heads, head_dim]``; ``k`` and ``v`` may have fewer heads. ``stride(-1) == 1``.
        bounds: of the rows in T; where they have ``keys``, a row sees those of the row before too.
        kind: what is computed.

    Returns:
        ``[T, heads, head_dim]``, contiguous and differentiable.
    """
    kind = kind.within(bounds.in_full.longest)
    name = choose(situation(q.device, q.dtype, q.shape[-1], kind, bounds))
    if bounds.keys and name != "flash":  # only that one has bounds of keys
        q, k, v = (_Again.apply(part, bounds.keys) for part in (q, k, v))
        return attend(q, k, v, bounds.keys.bounds, kind).index_select(0, bounds.keys.places[0])
    if name == "rows":
        return BACKENDS[name](q, k, v, bounds, kind)
    width = q.shape[-1]
    missing = -width % 8
    if missing:  # zeros change no product, and no kernel takes such a width
        q, k, v = (F.pad(part, (0, missing)) for part in (q, k, v))
    q, k, v = (_aligned(part) for part in (q, k, v))
    result = BACKENDS[name](q, k, v, bounds, kind)
    return result[..., :width].contiguous() if missing else result


def situation(
    device: torch.device, dtype: torch.dtype, head_dim: int, kind: AttentionKind, bounds: Bounds | None = None
) -> Situation:
    """The arguments of ``choose`` on this machine."""
    cuda = device.type == "cuda"
    capability, cudnn = _card(device.index or 0) if cuda else ((0, 0), 0)
    return Situation(
        device=device.type,
        capability=capability,
        dtype=dtype,
        head_dim=head_dim,
        window=kind.window,
        softcap=kind.softcap,
        equal=bounds is not None and bounds.equal,
        longest=0 if bounds is None else bounds.longest,
        cudnn=cudnn,
        flex=dispatch.triton is not None and not attention_flex.failed(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        causal=kind.causal,
        dropout=kind.dropout > 0,
        xformers=cuda and capability < FLASH_FROM and attention_xformers.usable(device),
    )


@lru_cache(maxsize=16)
def _card(index: int) -> tuple[tuple[int, int], int]:
    return torch.cuda.get_device_capability(index), torch.backends.cudnn.version() or 0


def _aligned(part: torch.Tensor) -> torch.Tensor:
    """The tensor itself where kernels can load it 16 bytes at a time, else a contiguous copy."""
    size = part.element_size()
    strides = [stride * size % ALIGNED_BYTES for stride in part.stride()[:-1]]
    if part.stride(-1) == 1 and not any(strides) and part.storage_offset() * size % ALIGNED_BYTES == 0:
        return part
    return part.clone(memory_format=torch.contiguous_format)


def _cudnn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bounds: Bounds, kind: AttentionKind) -> torch.Tensor:
    """Equal rows as a dense batch; torch's FlashAttention where cuDNN refuses the shape."""
    q4, k4, v4 = (part.unflatten(0, (bounds.rows, bounds.longest)).transpose(1, 2) for part in (q, k, v))
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
        grouped = q.shape[1] != k.shape[1]
        result = F.scaled_dot_product_attention(q4, k4, v4, is_causal=kind.causal, scale=kind.scale, enable_gqa=grouped)
    return result.transpose(1, 2).reshape(q.shape)


class _Again(torch.autograd.Function):
    """``[T, …]`` of tokens to ``[K, …]`` of keys, those of two rows twice; no atomic additions."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, keys: Keys) -> torch.Tensor:
        ctx.keys = keys
        return part.index_select(0, keys.tokens)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return _of_tokens(gradients[0], ctx.keys), None


def _of_tokens(gradient: torch.Tensor, keys: Keys) -> torch.Tensor:
    """The gradient of tokens, of that of their keys."""
    own, second = keys.places
    more = gradient.index_select(0, second)
    return gradient.index_select(0, own) + more.masked_fill_((own == second).view(-1, 1, 1), 0)


class _Flash(torch.autograd.Function):
    """FlashAttention-2 with row bounds. Its window excludes the query itself, ours includes it.

    Where rows have fewer queries than keys these are the last ones. Keys of two rows are made again for the backward.
    """

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, bounds: Bounds, kind: AttentionKind) -> torch.Tensor:
        left = -1 if kind.window is None else kind.window - 1
        causal = kind.causal and kind.window is None
        full, ctx.keys = bounds.in_full, bounds.keys
        ctx.fixed = (bounds.cu, full.cu, bounds.longest, full.longest, kind.dropout, causal)
        ctx.named = {
            "scale": kind.scale, "window_size_left": left, "window_size_right": 0 if kind.causal else left,
        }  # fmt: skip
        seen = [part.index_select(0, bounds.keys.tokens) for part in (k, v)] if bounds.keys else (k, v)
        out, sums, state, unused, _ = torch.ops.aten._flash_attention_forward(q, *seen, *ctx.fixed, False, **ctx.named)
        ctx.save_for_backward(q, k, v, out, sums, state, unused)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, out, sums, state, unused = ctx.saved_tensors
        keys = ctx.keys
        seen = [part.index_select(0, keys.tokens) for part in (k, v)] if keys else (k, v)
        dq, dk, dv = torch.ops.aten._flash_attention_backward(
            gradients[0], q, *seen, out, sums, *ctx.fixed, state, unused, **ctx.named
        )
        return (dq, _of_tokens(dk, keys), _of_tokens(dv, keys), None, None) if keys else (dq, dk, dv, None, None)


def _flex(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bounds: Bounds, kind: AttentionKind) -> torch.Tensor:
    """Compiled FlexAttention; row by row where it does not compile."""
    result = attention_flex.attend(q, k, v, bounds, kind)
    return rows(q, k, v, bounds, kind) if result is None else result


def rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bounds: Bounds, kind: AttentionKind) -> torch.Tensor:
    """Row by row; reads the bounds on the host."""
    pieces = []
    for start, end in pairwise(bounds.cu.tolist()):
        if end == start:
            continue
        row_q, row_k, row_v = (part[start:end].transpose(0, 1)[None] for part in (q, k, v))
        mask = window_mask(end - start, kind, q.device)
        if kind.softcap is not None:
            if mask is None and not kind.causal:
                mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=q.device)
            piece = capped(row_q, row_k, row_v, mask, scale=kind.scale, cap=kind.softcap, drop=kind.dropout)
        else:
            piece = F.scaled_dot_product_attention(
                row_q, row_k, row_v, attn_mask=mask, dropout_p=kind.dropout, is_causal=kind.causal and mask is None,
                scale=kind.scale, enable_gqa=q.shape[1] != k.shape[1],
            ).transpose(1, 2)  # fmt: skip
        pieces.append(piece[0])
    return pieces[0].contiguous() if len(pieces) == 1 else torch.cat(pieces)


def window_mask(length: int, kind: AttentionKind, device: torch.device) -> torch.Tensor | None:
    """``[1, 1, T, T]``, True where visible; None where the causal mask, or none, suffices."""
    if kind.window is None or length <= kind.window:
        return None
    distance = torch.arange(length, device=device)[:, None] - torch.arange(length, device=device)[None, :]
    ahead = distance >= 0 if kind.causal else distance > -kind.window
    return (ahead & (distance < kind.window))[None, None]


def capped(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    scale: float,
    cap: float,
    drop: float = 0.0,
) -> torch.Tensor:
    """Attention with logits ``cap · tanh(logits / cap)`` in plain torch, as transformers' eager path of Gemma 2.

    ``[batch, heads, T, head_dim]`` in, ``[batch, T, heads, head_dim]`` out.
    """
    if (groups := q.shape[1] // k.shape[1]) > 1:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    logits = cap * torch.tanh((q @ k.transpose(2, 3)) * scale / cap)
    if mask is None and q.shape[2] > 1:
        seen = k.shape[2] - q.shape[2]
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(seen)
    if mask is not None:
        mask = mask[..., : k.shape[2]]
        logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min) if mask.dtype == torch.bool else logits + mask
    precise = torch.promote_types(q.dtype, torch.float32)
    weights = torch.softmax(logits, dim=-1, dtype=precise).to(q.dtype)
    return (torch.dropout(weights, drop, drop > 0) @ v).transpose(1, 2)


BACKENDS: dict[Backend, Callable[..., torch.Tensor]] = {
    "cudnn": _cudnn,
    "flash": _Flash.apply,
    "xformers": lambda *given: Efficient.apply(*given, XFORMERS),
    "efficient": lambda *given: Efficient.apply(*given, TORCH),
    "flex": _flex,
    "rows": rows,
}
