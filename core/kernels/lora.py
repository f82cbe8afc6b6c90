"""A frozen linear layer with its LoRA adapter, products bracketed so that R stays the inner size.

Forward, with r = R ranks, x ``[T, D]``, W ``[O, D]``, A ``[R, D]``, B ``[O, R]`` and scale s::

    low = x A'                     [T, R]
    y   = x W' + bias + low (s B)'

Backward, dW is never needed::

    dlow = dy (s B)                [T, R]
    dx   = dy W + dlow A
    dA   = dlow' x                 dB = s · dy' low

Every adapter product has R as one side: (T·R)(D + O) operations where forming ``s B A`` first would take R·D·O and a
second product as large as the frozen one. W is asked for again in the backward pass, so a 4-bit weight is dequantised
twice and never kept. Cast-down copies of A and B are made at each call; their gradients are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from core.kernels import reference

__all__ = ["lora_linear"]

Weight = Callable[[], torch.Tensor]


class _LoraLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: Weight,
        bias: torch.Tensor | None,
        a: torch.Tensor,
        b: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        low = x @ a.to(x.dtype).T
        y = F.linear(x, weight().to(x.dtype), bias)
        y.addmm_(low, (b * scale).to(x.dtype).T)
        ctx.save_for_backward(x, low, a, b)
        ctx.weight, ctx.scale = weight, scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, low, a, b = ctx.saved_tensors
        dlow = dy @ (b * ctx.scale).to(dy.dtype)
        dx = None
        if ctx.needs_input_grad[0]:
            dx = dy @ ctx.weight().to(dy.dtype)
            dx.addmm_(dlow, a.to(dy.dtype))
        da = _wide_product(dlow.T, x).to(a.dtype) if ctx.needs_input_grad[3] else None
        db = (_wide_product(dy.T, low) * ctx.scale).to(b.dtype) if ctx.needs_input_grad[4] else None
        return dx, None, None, da, db, None


def _wide_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``left right`` summed and kept in float32, where the inputs are half precision and the device can."""
    if left.is_cuda and left.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(left, right, out_dtype=torch.float32)
    return torch.mm(left, right)


def lora_linear(
    x: torch.Tensor,
    weight: Weight,
    bias: torch.Tensor | None,
    a: torch.Tensor,
    b: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """``x W' + bias + scale · (x A') B'`` for ``x [..., D]``; see ``reference.lora_linear``.

    ``weight`` gives the frozen W ``[O, D]`` whenever it is called: a dequantiser, or a tensor kept as it is.
    A trained bias takes the twin.
    """
    if bias is not None and bias.requires_grad:
        return reference.lora_linear(x, weight, bias, a, b, scale)
    bias = bias if bias is None else bias.to(x.dtype)
    flat: torch.Tensor = _LoraLinear.apply(x.reshape(-1, x.shape[-1]), weight, bias, a, b, scale)
    return flat.view(*x.shape[:-1], flat.shape[-1])
