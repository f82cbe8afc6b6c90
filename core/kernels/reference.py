"""Every op in plain torch: its definition, the CPU path and the fallback.

Names and signatures are those of the fast ops. Half-precision inputs are computed in float32 where libraries do so too
(norms, softmax); float64 stays float64.

Shapes: T tokens, D hidden, V vocabulary, O outputs, R rank, H heads.
"""

import torch
from torch.nn import functional as F

IGNORED = -100
"""The label of tokens without a target."""


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in: float32 for half precision, else the dtype itself."""
    return torch.promote_types(dtype, torch.float32)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0) -> torch.Tensor:
    """``x / rms(x) · (weight + offset)`` over the last axis (Zhang and Sennrich 2019, arXiv:1910.07467).

    Args:
        x: ``[..., D]``.
        weight: ``[D]``. Gemma stores it minus one: ``offset=1``.
    """
    return normalize(x, weight, eps, offset)[0]


def normalize(
    x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0,
    residual: torch.Tensor | None = None, out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """``(y, h, s)``: h = x + residual, s = 1 / rms(h) flat and wide, y = h · s · (weight + offset), in ``out``."""
    h = x if residual is None else x + residual
    s = torch.rsqrt(h.to(wide(h.dtype)).pow(2).mean(-1, keepdim=True) + eps)
    values = h.to(s.dtype)
    y = values * s * (weight.to(s.dtype) + offset)
    return y.to(h.dtype) if out is None else out.copy_(y), h, s.flatten()


def normalize_backward(
    dy: torch.Tensor, h: torch.Tensor, weight: torch.Tensor, s: torch.Tensor, offset: float = 0.0,
    extra: torch.Tensor | None = None, *, out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """``dh = s · (g - n · mean(g · n)) + extra`` with ``g = dy · (weight + offset)`` and ``n = h · s``."""
    s = s.view(*h.shape[:-1], 1)
    n = h.to(wide(h.dtype)) * s
    g = dy.to(n.dtype) * (weight.to(n.dtype) + offset)
    dh = s * (g - n * (g * n).mean(-1, keepdim=True))
    dh = dh if extra is None else dh + extra
    return dh.to(h.dtype) if out is None else out.copy_(dh)


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """``(h - mean(h)) / std(h) · weight + bias`` over the last axis, ``h = x + residual`` (Ba et al. 2016,
    arXiv:1607.06450).

    Args:
        x: ``[..., D]``.
        weight: ``[D]``, in any floating dtype; ``bias`` likewise, or None.
    """
    return standardize(x, weight, bias, eps, residual)[0]


def standardize(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float, residual: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """``(y, h, m, s)``: h = x + residual, its mean m and s = 1 / std flat and wide, y = (h - m) · s · weight + bias."""
    h = x if residual is None else x + residual
    values = h.to(wide(h.dtype))
    m = values.mean(-1, keepdim=True)
    s = torch.rsqrt((values - m).pow(2).mean(-1, keepdim=True) + eps)
    y = (values - m) * s * weight.to(s.dtype)
    y = y if bias is None else y + bias.to(s.dtype)
    return y.to(h.dtype), h, m.flatten(), s.flatten()


def standardize_backward(
    dy: torch.Tensor, h: torch.Tensor, weight: torch.Tensor, m: torch.Tensor, s: torch.Tensor,
    extra: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """``(dh, dweight, dbias)``, the last two wide: with n = (h - m) · s and g = dy · weight::

    dh = s · (g - mean(g) - n · mean(g · n)) + extra        dweight = Σ dy · n        dbias = Σ dy        over tokens
    """
    shape = (*h.shape[:-1], 1)
    n = (h.to(s.dtype) - m.view(shape)) * s.view(shape)
    dy = dy.to(s.dtype)
    g = dy * weight.to(s.dtype)
    dh = s.view(shape) * (g - g.mean(-1, keepdim=True) - n * (g * n).mean(-1, keepdim=True))
    dh = dh if extra is None else dh + extra
    return dh.to(h.dtype), (dy * n).flatten(0, -2).sum(0), dy.flatten(0, -2).sum(0)


def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotary position embedding (Su et al. 2021, arXiv:2104.09864), with halves rotated as in Llama.

    Args:
        q: ``[batch, H, T, head_dim]``; ``k`` may have fewer heads.
        cos, sin: ``[batch or 1, T, rotated]``, from the model's rotary module; columns beyond ``rotated`` stay.
    """
    return _turn(q, cos[:, None], sin[:, None]), _turn(k, cos[:, None], sin[:, None])


def _turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    rotated = cos.shape[-1]
    head, rest = x[..., :rotated], x[..., rotated:]
    first, second = head.chunk(2, dim=-1)
    turned = head * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned


def _unturn(dy: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The transpose of ``_turn``: its gradient, and for true angles its inverse."""
    rotated = cos.shape[-1]
    head, rest = dy[..., :rotated], dy[..., rotated:]
    first, second = (head * sin).chunk(2, dim=-1)
    return torch.cat((head * cos + torch.cat((second, -first), dim=-1), rest), dim=-1)


def turn_(
    rows: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, heads: int, head_dim: int, backward: bool = False
) -> None:
    """Turns the first ``heads`` heads of each row in place; ``backward`` applies the transpose.

    Args:
        rows: ``[T, at least heads · head_dim]``.
        cos, sin: ``[1 or batch, T', rotated]``; their rows repeat until there are T.
    """
    turned = rows[:, : heads * head_dim].unflatten(1, (heads, head_dim))
    turned.copy_((_unturn if backward else _turn)(turned.to(wide(rows.dtype)), *_angles(cos, sin, rows.shape[0])))


def turn_back(
    dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, out: torch.Tensor
) -> None:
    """Gradients dq, dk ``[T, H, head_dim]`` before the turn, and dv, side by side in ``out``'s rows."""
    angles = _angles(cos, sin, dq.shape[0])
    parts = [_unturn(part.to(wide(part.dtype)), *angles).flatten(1) for part in (dq, dk)]
    joined = torch.cat([*parts, dv.flatten(1)], dim=1)
    out[:, : joined.shape[1]].copy_(joined)


def _angles(cos: torch.Tensor, sin: torch.Tensor, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """``[T, 1, rotated]`` each."""
    flat = (cos.flatten(0, 1)[:, None], sin.flatten(0, 1)[:, None])
    times = tokens // max(1, flat[0].shape[0])
    return flat[0].repeat(times, 1, 1), flat[1].repeat(times, 1, 1)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) · up`` (Shazeer 2020, arXiv:2002.05202)."""
    return F.silu(gate) * up


def geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``gelu(gate) · up`` with gelu's tanh form, as in Gemma."""
    return F.gelu(gate, approximate="tanh") * up


def gate(gate_up: torch.Tensor, kind: str, out: torch.Tensor) -> torch.Tensor:
    """``f(gate) · up`` of rows ``[gate | up]`` into ``out``; ``kind`` is ``silu`` or ``gelu_tanh``."""
    values = gate_up.to(wide(gate_up.dtype))
    return out.copy_({"silu": swiglu, "gelu_tanh": geglu}[kind](*values.chunk(2, dim=-1)))


def gate_backward_(dh: torch.Tensor, gate_up: torch.Tensor, kind: str) -> None:
    """``gate_up [T, 2I]`` becomes ``[dgate | dup]``, ``dh [T, I]`` becomes ``h = f(gate) · up``."""
    g, up = gate_up.to(wide(gate_up.dtype)).chunk(2, dim=-1)
    if kind == "silu":
        s = torch.sigmoid(g)
        value, slope = F.silu(g), s * (1.0 + g * (1.0 - s))
    else:
        u = 0.7978845608028654 * (g + 0.044715 * g.pow(3))
        slope_u = 0.7978845608028654 * (1.0 + 0.134145 * g.square())
        value = F.gelu(g, approximate="tanh")
        slope = torch.sigmoid(2.0 * u) * (1.0 + 2.0 * g * torch.sigmoid(-2.0 * u) * slope_u)
    gradient = torch.cat((dh * up * slope, dh * value), dim=-1)
    dh.copy_(value * up)
    gate_up.copy_(gradient)


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, scale: float = 1.0, softcap: float = 0.0) -> torch.Tensor:
    """``-log softmax(z)[label]`` a token, 0 where the label is -100; ``z = cap · tanh(scale · logits / cap)``.

    Args:
        logits: ``[T, V]``.
        labels: ``[T]`` int64.

    Returns:
        ``[T]`` in float32 (float64 for float64 logits).
    """
    values = _capped(logits.to(wide(logits.dtype)), scale, softcap)
    return F.cross_entropy(values, labels, ignore_index=IGNORED, reduction="none")


def cross_entropy_gradient_(
    logits: torch.Tensor, labels: torch.Tensor, scale: float = 1.0, softcap: float = 0.0
) -> torch.Tensor:
    """Losses as ``cross_entropy``; ``logits`` becomes their sum's gradient ``(softmax(z) - onehot) · dz/dlogits``."""
    values = _capped(logits.to(wide(logits.dtype)), scale, softcap)
    counts = labels != IGNORED
    target = torch.where(counts, labels, 0)[:, None]
    # Minus the maximum, not minus log Σ exp: the difference is exact near the maximum.
    below = values - values.amax(dim=-1, keepdim=True)
    gradient = torch.exp(below)
    total = gradient.sum(dim=-1, keepdim=True)
    losses = torch.where(counts, (torch.log(total) - below.gather(1, target))[:, 0], 0.0)
    gradient /= total
    gradient.scatter_add_(1, target, torch.full_like(gradient[:, :1], -1.0))
    if softcap:
        gradient *= 1.0 - (values / softcap).square()
    gradient *= counts[:, None] * scale
    logits.copy_(gradient)
    return losses


def _capped(values: torch.Tensor, scale: float, softcap: float) -> torch.Tensor:
    values = values * scale if scale != 1.0 else values
    return softcap * torch.tanh(values / softcap) if softcap else values


def linear_cross_entropy(
    hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, scale: float = 1.0, softcap: float = 0.0
) -> torch.Tensor:
    """Losses ``[T]`` of tokens: ``cross_entropy(hidden weight')``.

    Args:
        hidden: ``[T, D]``.
        weight: the head, ``[V, D]``.
        labels: ``[T]``, already shifted; -100 where there is no target.
    """
    return cross_entropy(hidden @ weight.T, labels, scale, softcap)


def dora_linear(
    x: torch.Tensor, weight: torch.Tensor, low: tuple[torch.Tensor, torch.Tensor], scale: float,
    magnitude: torch.Tensor, bias: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """DoRA: ``m / |W + s B A| ⊙ (x W' + s x A' B') + bias``, the rows' norms as constants (Liu et al. 2024,
    arXiv:2402.09353).

    Args:
        x: ``[T, D]``; ``weight`` is ``[O, D]``.
        low: A ``[R, D]`` and B ``[O, R]``; ``scale`` is s.
        magnitude: m ``[O]``.
    """
    a, b = low
    norms = torch.linalg.vector_norm(weight + scale * b @ a, dim=1).detach()
    y = (x @ weight.T + scale * (x @ a.T) @ b.T) * (magnitude / norms)
    return y if bias is None else y + bias


def column_dots(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``Σ_t dy ⊙ y`` ``[O]`` of two ``[T, O]``: the gradient of a factor of each column."""
    return (dy.to(wide(dy.dtype)) * y).sum(0)
