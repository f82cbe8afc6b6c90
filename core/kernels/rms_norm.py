"""RMSNorm, alone or with the residual add that comes before it.

Forward, over the last axis (D values x of one token)::

    h = x + residual                   (add_rms_norm only)
    s = 1 / sqrt(mean(h²) + eps)
    y = h · s · (w + offset)

Backward, with g = dy · (w + offset)::

    dh = s · (g - h · s² · mean(g · h)) + (what flows into h beside the norm)
    dx = dresidual = dh

One program takes one token. The weight is frozen and gets no gradient; a trained one takes the textbook twin.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from core.kernels import reference
from core.kernels.dispatch import block_of, jit, launch, tl, use_triton, warps_for

__all__ = ["add_rms_norm", "rms_norm"]

WIDEST = 65536
"""Values of one token that one program can hold; wider ones take the twin."""


@jit
def _forward(  # type: ignore[no-untyped-def]
    x, residual, weight, y, total, inverse, width, eps, offset, ADD: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    start = row.to(tl.int64) * width
    h = tl.load(x + start + columns, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        h += tl.load(residual + start + columns, mask=inside, other=0.0).to(tl.float32)
        # Rounded as it is stored, so that the norm sees the same numbers that the next block's residual does.
        h = h.to(total.dtype.element_ty)
        tl.store(total + start + columns, h, mask=inside)
        h = h.to(tl.float32)
    s = 1.0 / tl.sqrt(tl.sum(h * h, axis=0) / width + eps)
    w = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32) + offset
    tl.store(inverse + row, s)
    tl.store(y + start + columns, h * s * w, mask=inside)


@jit
def _backward(  # type: ignore[no-untyped-def]
    dy, dtotal, h, weight, inverse, dx, width, offset, ADD: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    start = row.to(tl.int64) * width
    values = tl.load(h + start + columns, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32) + offset
    g = tl.load(dy + start + columns, mask=inside, other=0.0).to(tl.float32) * w
    s = tl.load(inverse + row)
    dh = s * (g - values * (s * s * (tl.sum(g * values, axis=0) / width)))
    if ADD:
        dh += tl.load(dtotal + start + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(dx + start + columns, dh, mask=inside)


def _run_forward(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float, offset: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``(y, h, s)``; h is x itself where nothing is added."""
    x = x.contiguous()
    other = x if residual is None else residual.contiguous()
    width = x.shape[-1]
    rows = x.numel() // max(1, width)
    y = torch.empty_like(x)
    total = x if residual is None else torch.empty_like(x)
    inverse = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = block_of(width)
    if rows:
        launch(
            _forward, (rows,), x, other, weight, y, total, inverse, width, eps, offset,
            ADD=residual is not None, BLOCK=block, num_warps=warps_for(block),
        )  # fmt: skip
    return y, total, inverse


def _run_backward(ctx: Any, dy: torch.Tensor, dtotal: torch.Tensor | None) -> torch.Tensor:
    h, weight, inverse = ctx.saved_tensors
    dy = dy.contiguous()
    extra = dy if dtotal is None else dtotal.contiguous()
    dx = torch.empty_like(h)
    block = block_of(h.shape[-1])
    if inverse.numel():
        launch(
            _backward, (inverse.numel(),), dy, extra, h, weight, inverse, dx, h.shape[-1], ctx.offset,
            ADD=dtotal is not None, BLOCK=block, num_warps=warps_for(block),
        )  # fmt: skip
    return dx


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float) -> torch.Tensor:
        y, h, inverse = _run_forward(x, None, weight, eps, offset)
        ctx.save_for_backward(h, weight, inverse)
        ctx.offset = offset
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return _run_backward(ctx, dy, None), None, None, None


class _AddRmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, offset: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        y, h, inverse = _run_forward(x, residual, weight, eps, offset)
        ctx.save_for_backward(h, weight, inverse)
        ctx.offset = offset
        return y, h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor, dtotal: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        dh = _run_backward(ctx, dy, dtotal)
        return dh, dh, None, None, None


def _runs(x: torch.Tensor, weight: torch.Tensor) -> bool:
    return use_triton(x) and x.shape[-1] <= WIDEST and not weight.requires_grad


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0) -> torch.Tensor:
    """``x / rms(x) · (weight + offset)`` over the last axis of ``x [..., D]``; see ``reference.rms_norm``."""
    if not _runs(x, weight):
        return reference.rms_norm(x, weight, eps, offset)
    result: torch.Tensor = _RmsNorm.apply(x, weight, eps, offset)
    return result


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """``(rms_norm(x + residual), x + residual)``; see ``reference.add_rms_norm``."""
    if not _runs(x, weight) or x.dtype != residual.dtype:
        return reference.add_rms_norm(x, residual, weight, eps, offset)
    normed, total = _AddRmsNorm.apply(x, residual, weight, eps, offset)
    return normed, total
