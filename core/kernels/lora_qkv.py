"""The first half of a decoder layer: norm, projections to queries, keys and values, head norms, RoPE.

Forward, for x ``[T, D]`` (``Stack`` is ``core.kernels.lora``'s bordered product)::

    n = rms_norm(x)                     [q | k | v] = stack(n)
    q, k = rms_norm(q), rms_norm(k)     head by head, where the family does so (Qwen 3, Gemma 3)
    q, k = rope(q, k)                   in place

Kept are x, an inverse root mean square a token, ``n A'``, the heads and, with head norms, the heads before them; n is
not recomputed (``Normed``). DoRA's magnitudes need the rows before RoPE: those before the head norms, or the heads
turned back. x is returned too, as the residual of the second half: its gradient then comes back here,
where the norm's backward pass adds it without another kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from core.kernels.dispatch import uncast
from core.kernels.lora import Normed, Scaled, Stack
from core.kernels.reference import wide
from core.kernels.rms_norm import normalize, normalize_backward
from core.kernels.rope import turn_, turn_back


@dataclass(frozen=True)
class Norm:
    """A frozen RMSNorm: ``x / rms(x) · (weight + offset)``."""

    weight: torch.Tensor
    eps: float
    offset: float = 0.0

    def normed(self, s: torch.Tensor) -> Normed:
        """Its factors for rows with inverse root mean squares s ``[T]``."""
        return Normed(s, self.weight.to(wide(self.weight.dtype)) + self.offset)


@dataclass(frozen=True)
class Heads:
    """Layout of a row of the stacked projection: ``query`` heads, ``key`` heads, as many value heads, of ``size``."""

    query: int
    key: int
    size: int
    query_norm: Norm | None = None
    key_norm: Norm | None = None

    @property
    def turned(self) -> int:
        """Columns of queries and keys, which RoPE turns."""
        return (self.query + self.key) * self.size

    @property
    def columns(self) -> int:
        """Columns of queries, keys and values."""
        return self.turned + self.key * self.size

    def cut(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Views ``[T, heads, size]`` of ``rows [T, >= columns]``."""
        edge = self.query * self.size
        q, k, v = rows[:, :edge], rows[:, edge : self.turned], rows[:, self.turned : self.columns]
        return q.unflatten(1, (-1, self.size)), k.unflatten(1, (-1, self.size)), v.unflatten(1, (-1, self.size))


@dataclass(frozen=True)
class _Layer:
    norm: Norm
    stack: Stack
    heads: Heads


Tensors = tuple[torch.Tensor, ...]


def _head_norms(heads: Heads, rows: torch.Tensor) -> tuple[torch.Tensor, Tensors]:
    """``(rows with normalised q and k in a new tensor, inverse root mean squares)``; without norms ``(rows, ())``."""
    if heads.query_norm is None or heads.key_norm is None:
        return rows, ()
    normed = torch.empty_like(rows)
    inverses = []
    for norm, before, after in zip(
        (heads.query_norm, heads.key_norm), heads.cut(rows), heads.cut(normed), strict=False
    ):
        inverses.append(normalize(before, norm.weight, norm.eps, norm.offset, out=after)[2])
    normed[:, heads.turned :] = rows[:, heads.turned :]
    return normed, tuple(inverses)


def _projected(heads: Heads, kept: Sequence[torch.Tensor], angles: Tensors) -> torch.Tensor:
    """The projections' results, before norms and RoPE, of what the forward pass kept."""
    rows, *inverses = kept
    if inverses:
        return rows
    cos, sin = (angle.to(wide(angle.dtype)) for angle in angles)
    scale = cos.square() + sin.square()  # not 1 where positions are stretched (YaRN): the inverse is no transpose
    rows = rows.clone()
    turn_(rows, cos / scale, sin / scale, heads.query + heads.key, heads.size, backward=True)
    return rows


class _LoraQkv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layer: _Layer, *_adapters: torch.Tensor
    ) -> Tensors:
        norm, stack, heads = layer.norm, layer.stack, layer.heads
        bordered = stack.room(x, stack.width, made=True)
        _, _, s = normalize(x, norm.weight, norm.eps, norm.offset, out=bordered.values, eight=bordered.eight)
        m, g = stack.matrix(x)
        raw = stack.project(bordered, m)
        low = stack.kept(bordered)
        del bordered, m
        rows, inverses = _head_norms(heads, raw)
        turn_(rows, cos, sin, heads.query + heads.key, heads.size)
        ctx.save_for_backward(x, cos, sin, s, low, g, *((raw, *inverses) if inverses or stack.scaled else ()))
        ctx.layer = layer
        return *heads.cut(rows), x

    @staticmethod
    @uncast
    @once_differentiable
    def backward(
        ctx: Any, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, dx: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        layer: _Layer = ctx.layer
        norm, stack, heads = layer.norm, layer.stack, layer.heads
        x, cos, sin, s, low, g, *kept = ctx.saved_tensors  # last the rows before the heads' norms, and the inverses
        drows = stack.room(x, stack.rows)
        turn_back(dq, dk, dv, cos, sin, drows.values)
        if kept and heads.query_norm is not None and heads.key_norm is not None:
            norms, (rows, *inverses) = (heads.query_norm, heads.key_norm), kept
            for one, d, before, inverse in zip(
                norms, heads.cut(drows.values)[:2], heads.cut(rows)[:2], inverses, strict=True
            ):
                normalize_backward(d, before, one.weight, inverse, one.offset, out=d)
        scaled = None if g is None else Scaled.of(g, drows.values, _projected(heads, kept, (cos, sin)))
        m, _ = stack.matrix(x, g)
        stack.pull_low(drows, m)
        dn = m.pull(drows) if ctx.needs_input_grad[0] else None
        gradients = stack.gradients(x, low, drows, norm.normed(s), scaled)
        if dn is not None:
            dn = normalize_backward(dn, x, norm.weight, s, norm.offset, extra=dx, out=dn)
        return dn, None, None, None, *gradients


def lora_qkv(
    x: torch.Tensor, norm: Norm, stack: Stack, heads: Heads, angles: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """``(q [T, Hq, d], k [T, Hk, d], v [T, Hk, d], x)`` of ``x [T, D]``; use the returned x as the residual.

    Args:
        angles: cos and sin ``[1 or batch, T / batch, turned columns of a head]`` from the model's own rotary module.
    """
    q, k, v, residual = _LoraQkv.apply(x, *angles, _Layer(norm, stack, heads), *stack.adapters)
    return q, k, v, residual
