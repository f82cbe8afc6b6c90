"""Every op as the textbook has it, in plain torch: the CPU path, the fallback, the definition and the oracle.

Each function has the name and the signature of its fast twin in the file of the same op. Half-precision inputs are
computed in float32 where a library would do so too (norms, softmax), float64 stays float64.

Shapes: T tokens, D hidden, V vocabulary, O outputs, R rank, H heads.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

__all__ = [
    "IGNORED",
    "add_rms_norm",
    "cross_entropy",
    "cross_entropy_gradient_",
    "geglu",
    "linear_cross_entropy",
    "lora_linear",
    "rms_norm",
    "rope",
    "swiglu",
    "wide",
]

IGNORED = -100
"""A label that is no target, as everywhere in the field."""


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in: float32 for half precision, else the dtype itself."""
    return torch.promote_types(dtype, torch.float32)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0) -> torch.Tensor:
    """``x / rms(x) · (weight + offset)`` over the last axis (Zhang and Sennrich 2019, arXiv:1910.07467).

    Args:
        x: ``[..., D]``.
        weight: ``[D]``. Gemma stores it less one: ``offset=1``.
    """
    values = x.to(wide(x.dtype))
    normed = values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + eps)
    return (normed * (weight.to(values.dtype) + offset)).to(x.dtype)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """``(rms_norm(x + residual), x + residual)``: the end of one block and the start of the next."""
    total = x + residual
    return rms_norm(total, weight, eps, offset), total


def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Turns queries and keys by their positions (Su et al. 2021, arXiv:2104.09864), halves rotated as in Llama.

    Args:
        q: ``[batch, H, T, head_dim]``; ``k`` may have fewer heads.
        cos, sin: ``[batch or 1, T, rotated]``, from the model's own rotary module; what of ``head_dim`` lies beyond
            ``rotated`` passes through.
    """
    return _turn(q, cos[:, None], sin[:, None]), _turn(k, cos[:, None], sin[:, None])


def _turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    rotated = cos.shape[-1]
    head, rest = x[..., :rotated], x[..., rotated:]
    first, second = head.chunk(2, dim=-1)
    turned = head * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) · up`` (Shazeer 2020, arXiv:2002.05202); any shape, both alike."""
    return F.silu(gate) * up


def geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``gelu(gate) · up`` with gelu's tanh form, as Gemma has it."""
    return F.gelu(gate, approximate="tanh") * up


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
    log_sum = torch.logsumexp(values, dim=-1)
    losses = torch.where(counts, log_sum - values.gather(1, target)[:, 0], 0.0)
    gradient = torch.exp(values - log_sum[:, None])
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
    """Sum over tokens of ``cross_entropy(hidden weight')``.

    Args:
        hidden: ``[T, D]``.
        weight: the head, ``[V, D]``.
        labels: ``[T]``, already shifted; -100 where there is no target.
    """
    return cross_entropy(hidden @ weight.T, labels, scale, softcap).sum()


def lora_linear(
    x: torch.Tensor,
    weight: Callable[[], torch.Tensor],
    bias: torch.Tensor | None,
    a: torch.Tensor,
    b: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """``x W' + bias + scale · (x A') B'`` (Hu et al. 2021, arXiv:2106.09685).

    Args:
        x: ``[..., D]``.
        weight: gives W ``[O, D]``.
        a: ``[R, D]``; ``b``: ``[O, R]``; both are cast to x's dtype.
    """
    low = x @ a.to(x.dtype).T
    return F.linear(x, weight().to(x.dtype), bias) + (low @ b.to(x.dtype).T) * scale
