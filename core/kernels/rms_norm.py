"""RMSNorm of rows or of heads, alone or with the residual add before it.

Forward, over the last axis (D values x of one token or one head)::

    h = x + residual                   (h = x without a residual)
    s = 1 / sqrt(mean(h²) + eps)
    y = h · s · (w + offset)

Backward, with g = dy · (w + offset) and n = h · s::

    dh = s · (g - n · mean(g · n)) + (the gradient of h from elsewhere)
    dx = dresidual = dh

One program takes one wide row or several narrow ones and reads each value once. Rows may be strided. The weight is
frozen; a trained one takes the reference. What is made may be written in eight bits as well (``eightbit.rows``).
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from core.kernels import reference
from core.kernels.dispatch import block_of, dense_rows, jit, launch, rows_run, tl, use_triton
from core.kernels.eightbit.reference import Quantised
from core.kernels.eightbit.rows import SIXTEEN_BITS, factors_of, flags_of, quantise_into, size_of, to_eight

WIDEST = 65536
"""The widest row of a program; wider ones take the reference."""


@jit
def _put(  # type: ignore[no-untyped-def]
    made, eight, scales, row, rows, columns, inside, width,
    LARGEST: tl.constexpr, TINY: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The rows of ``made`` in eight bits, of tokens without heads."""
    most = tl.max(tl.where(inside, size_of(made), 0), axis=1)
    scale, inverse = factors_of(most, LARGEST, TINY)
    place = eight + row.to(tl.int64)[:, None] * width + columns
    tl.store(place, to_eight(made * inverse[:, None], eight.dtype.element_ty, WHOLE, EXACT), mask=inside)
    tl.store(scales + row, scale, mask=row < rows)


@jit(varying=("inverse", "rows"))
def _forward(  # type: ignore[no-untyped-def]
    x, residual, weight, y, total, inverse, eight, scales, x_token, x_head, residual_token, residual_head, y_token,
    y_head, rows, heads, width, eps, offset, ADD: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    EIGHT: tl.constexpr, LARGEST: tl.constexpr, TINY: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token, head = (row // heads).to(tl.int64)[:, None], (row % heads)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows)[:, None] & (columns < width)
    h = tl.load(x + token * x_token + head * x_head + columns, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        beside = residual + token * residual_token + head * residual_head + columns
        h += tl.load(beside, mask=inside, other=0.0).to(tl.float32)
        # Rounded as stored, so that norm and next residual see the same numbers.
        h = h.to(total.dtype.element_ty)
        tl.store(total + row.to(tl.int64)[:, None] * width + columns, h, mask=inside)
        h = h.to(tl.float32)
    s = tl.rsqrt(tl.sum(h * h, axis=1) / width + eps)
    w = tl.load(weight + columns, mask=columns < width, other=0.0).to(tl.float32) + offset
    tl.store(inverse + row, s, mask=row < rows)
    made = h * s[:, None] * w
    tl.store(y + token * y_token + head * y_head + columns, made, mask=inside)
    if EIGHT:
        made = made.to(y.dtype.element_ty).to(tl.float32)
        _put(made, eight, scales, row, rows, columns, inside, width, LARGEST, TINY, WHOLE, EXACT)


@jit(varying=("inverse", "rows"))
def _backward(  # type: ignore[no-untyped-def]
    dy, extra, h, weight, inverse, dh, eight, scales, dy_token, dy_head, extra_token, extra_head, h_token, h_head,
    dh_token, dh_head, rows, heads, width, offset, ADD: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    EIGHT: tl.constexpr, LARGEST: tl.constexpr, TINY: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token, head = (row // heads).to(tl.int64)[:, None], (row % heads)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows)[:, None] & (columns < width)
    w = tl.load(weight + columns, mask=columns < width, other=0.0).to(tl.float32) + offset
    s = tl.load(inverse + row, mask=row < rows, other=0.0)[:, None]
    g = tl.load(dy + token * dy_token + head * dy_head + columns, mask=inside, other=0.0).to(tl.float32) * w
    n = tl.load(h + token * h_token + head * h_head + columns, mask=inside, other=0.0).to(tl.float32) * s
    slope = s * (g - n * (tl.sum(g * n, axis=1) / width)[:, None])
    if ADD:
        slope += tl.load(extra + token * extra_token + head * extra_head + columns, mask=inside, other=0.0).to(
            tl.float32
        )
    tl.store(dh + token * dh_token + head * dh_head + columns, slope, mask=inside)
    if EIGHT:
        slope = slope.to(dh.dtype.element_ty).to(tl.float32)
        _put(slope, eight, scales, row, rows, columns, inside, width, LARGEST, TINY, WHOLE, EXACT)


def _strides(tensor: torch.Tensor) -> tuple[int, int]:
    """Strides of tokens, and of heads in ``[T, H, W]`` (0 for ``[T, W]``)."""
    return tensor.stride(0), tensor.stride(1) if tensor.dim() == 3 else 0


def _launch(
    kernel: Any, like: torch.Tensor, arguments: tuple[Any, ...], rest: tuple[Any, ...], eight: Quantised | None,
    **flags: bool,
) -> None:  # fmt: skip
    """``kernel`` over the rows of ``like``: about 16 values a thread, and narrow rows together to fill four warps."""
    width = like.shape[-1]
    rows = like.numel() // max(1, width)
    block = block_of(width)
    together = max(1, 2048 // block)
    warps = min(32, max(4, together * block // 512))
    if rows and width:
        heads = like.shape[1] if like.dim() == 3 else 1
        launch(
            kernel, (-(-rows // together),), *arguments, rows, heads, width, *rest,
            ROWS=together, BLOCK=block, num_warps=warps, EIGHT=eight is not None, **flags,
            **(SIXTEEN_BITS if eight is None else flags_of(eight)),
        )  # fmt: skip


def _or(eight: Quantised | None, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return others if eight is None else (eight.values, eight.scales)


def normalize(
    x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0,
    residual: torch.Tensor | None = None, *, out: torch.Tensor | None = None, eight: Quantised | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """``(y, h, s)`` of the module's formulas, without autograd; see ``reference.normalize``.

    Args:
        x: ``[T, W]``, or ``[T, H, W]`` for a norm of each head; rows may be strided. Without a residual h is x.
        weight: ``[W]``.
        out: for y; may be x where there is no residual (the returned h then holds y).
        eight: filled with y, ``[T, W]``.

    Returns:
        s is float32 ``[T]`` or ``[T·H]``.
    """
    alike = residual is None or residual.dtype == x.dtype
    if not rows_run(x, residual, out) or x.shape[-1] > WIDEST or not alike:
        made = reference.normalize(x, weight, eps, offset, residual, out)
        if eight is not None:
            quantise_into(eight, made[0])
        return made
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    h = x if residual is None else torch.empty(x.shape, dtype=x.dtype, device=x.device)
    beside = x if residual is None else residual
    s = torch.empty(x.shape[:-1].numel(), dtype=torch.float32, device=x.device)
    tensors = (x, beside, weight, y, h, s, *_or(eight, y, s), *_strides(x), *_strides(beside), *_strides(y))
    _launch(_forward, x, tensors, (float(eps), float(offset)), eight, ADD=residual is not None)
    return y, h, s


def normalize_backward(
    dy: torch.Tensor, h: torch.Tensor, weight: torch.Tensor, s: torch.Tensor, offset: float = 0.0,
    extra: torch.Tensor | None = None, *, out: torch.Tensor | None = None, eight: Quantised | None = None,
) -> torch.Tensor:  # fmt: skip
    """dh of the module's formulas, plus ``extra``, the gradient of h from elsewhere.

    Shapes as in ``normalize``; ``out`` is for dh and may be ``dy``, ``extra`` or ``h``; ``eight`` is filled with dh.
    """
    if not rows_run(dy, h, extra, out) or h.shape[-1] > WIDEST:
        dh = reference.normalize_backward(dy, h, weight, s, offset, extra, out=out)
        if eight is not None:
            quantise_into(eight, dh)
        return dh
    dh = torch.empty(h.shape, dtype=h.dtype, device=h.device) if out is None else out
    beside = dy if extra is None else extra
    strides = (*_strides(dy), *_strides(beside), *_strides(h), *_strides(dh))
    tensors = (dy, beside, h, weight, s, dh, *_or(eight, dh, s), *strides)
    _launch(_backward, h, tensors, (float(offset),), eight, ADD=extra is not None)
    return dh


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float) -> torch.Tensor:
        y, h, s = normalize(dense_rows(x), weight, eps, offset)
        ctx.save_for_backward(h, weight, s)
        ctx.offset = offset
        return y.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        h, weight, s = ctx.saved_tensors
        dh = normalize_backward(dense_rows(dy), h, weight, s, ctx.offset)
        return dh.view(dy.shape), None, None, None


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0) -> torch.Tensor:
    """``x / rms(x) · (weight + offset)`` over the last axis of ``x [..., D]``; see ``reference.rms_norm``."""
    if not use_triton(x) or not 0 < x.shape[-1] <= WIDEST or weight.requires_grad:
        return reference.rms_norm(x, weight, eps, offset)
    result: torch.Tensor = _RmsNorm.apply(x, weight, eps, offset)
    return result
