"""Gated activations: SwiGLU (Llama, Mistral, Qwen) and GeGLU (Gemma).

Forward, element by element::

    h = f(gate) · up          f = silu, or gelu in its tanh form

Backward::

    dgate = dh · up · f'(gate)          dup = dh · f(gate)

    silu:  f(g) = g · σ(g)              f'(g) = σ(g) · (1 + g · (1 - σ(g)))
    gelu:  f(g) = g · σ(2u)             f'(g) = σ(2u) · (1 + 2 g · σ(-2u) · u')
           u = √(2/π) · (g + 0.044715 g³),  u' = √(2/π) · (1 + 0.134145 g²)

The tanh of gelu, (1 + tanh u) / 2, is written σ(2u): where u is far below zero 1 + tanh(u) has no digits left.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from core.kernels import reference
from core.kernels.dispatch import jit, launch, tl, use_triton

__all__ = ["geglu", "swiglu"]

BLOCK = 1024


@jit
def _activation(g, GELU: tl.constexpr):  # type: ignore[no-untyped-def]
    """``f(g)`` and ``f'(g)``."""
    if GELU:
        u = 0.7978845608028654 * (g + 0.044715 * g * g * g)
        s = tl.sigmoid(2.0 * u)
        slope_u = 0.7978845608028654 * (1.0 + 0.134145 * g * g)
        value = g * s
        slope = s * (1.0 + 2.0 * g * tl.sigmoid(-2.0 * u) * slope_u)
    else:
        s = tl.sigmoid(g)
        value = g * s
        slope = s * (1.0 + g * (1.0 - s))
    return value, slope


@jit
def _forward(gate, up, h, count, GELU: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    g = tl.load(gate + index, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + index, mask=inside, other=0.0).to(tl.float32)
    value, _slope = _activation(g, GELU)
    tl.store(h + index, value * u, mask=inside)


@jit
def _backward(dh, gate, up, dgate, dup, count, GELU: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    d = tl.load(dh + index, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gate + index, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + index, mask=inside, other=0.0).to(tl.float32)
    value, slope = _activation(g, GELU)
    tl.store(dgate + index, d * u * slope, mask=inside)
    tl.store(dup + index, d * value, mask=inside)


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor, gelu: bool) -> torch.Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        h = torch.empty_like(gate)
        if h.numel():
            grid = (-(-h.numel() // BLOCK),)
            launch(_forward, grid, gate, up, h, h.numel(), GELU=gelu, BLOCK=BLOCK, num_warps=4)
        ctx.save_for_backward(gate, up)
        ctx.gelu = gelu
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gate, up = ctx.saved_tensors
        dh = dh.contiguous()
        dgate, dup = torch.empty_like(gate), torch.empty_like(up)
        if dh.numel():
            grid = (-(-dh.numel() // BLOCK),)
            launch(_backward, grid, dh, gate, up, dgate, dup, dh.numel(), GELU=ctx.gelu, BLOCK=BLOCK, num_warps=4)
        return dgate, dup, None


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) · up``, any shape, both alike; see ``reference.swiglu``."""
    if not use_triton(gate):
        return reference.swiglu(gate, up)
    result: torch.Tensor = _Gated.apply(gate, up, False)
    return result


def geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``gelu(gate) · up`` (tanh form), any shape, both alike; see ``reference.geglu``."""
    if not use_triton(gate):
        return reference.geglu(gate, up)
    result: torch.Tensor = _Gated.apply(gate, up, True)
    return result
