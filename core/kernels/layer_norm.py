"""LayerNorm of rows with the residual add before it, and trained weights.

Forward, over the last axis (D values x of one token)::

    h = x + residual                   (h = x without a residual)
    m = mean(h)        s = 1 / sqrt(mean((h - m)²) + eps)        n = (h - m) · s
    y = n · w + b

Backward, with g = dy · w::

    dh = s · (g - mean(g) - n · mean(g · n)) + (the gradient of h from elsewhere)
    dx = dresidual = dh        dw = Σ dy · n        db = Σ dy        over tokens

Each value is read once. Programs of the backward pass take every ``PROGRAMS``-th group of rows and keep their own sums
for dw and db; these are added afterwards in a fixed order, so gradients are the same from run to run. Weights may be
wider than the rows (float32 beside bfloat16), as under mixed precision.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from core.kernels import reference
from core.kernels.dispatch import FLOATS, block_of, dense_rows, jit, launch, rows_run, tl

WIDEST = 16384
"""The widest row of a program; wider ones take the reference."""
PROGRAMS = 512
"""Programs of a backward pass at most: several for each multiprocessor, and their sums stay small."""


@jit(varying=("mean", "inverse", "rows"))
def _forward(  # type: ignore[no-untyped-def]
    x, residual, weight, bias, y, total, mean, inverse, x_row, residual_row, rows, width, eps,
    ADD: tl.constexpr, BIAS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token, columns = row.to(tl.int64)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = (row < rows)[:, None] & (columns < width)
    h = tl.load(x + token * x_row + columns, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        h += tl.load(residual + token * residual_row + columns, mask=inside, other=0.0).to(tl.float32)
        # Rounded as stored, so that the backward pass sees the same numbers.
        h = h.to(total.dtype.element_ty)
        tl.store(total + token * width + columns, h, mask=inside)
        h = h.to(tl.float32)
    m = tl.sum(h, axis=1) / width
    apart = tl.where(inside, h - m[:, None], 0.0)
    s = tl.rsqrt(tl.sum(apart * apart, axis=1) / width + eps)
    tl.store(mean + row, m, mask=row < rows)
    tl.store(inverse + row, s, mask=row < rows)
    w = tl.load(weight + columns, mask=columns < width, other=0.0).to(tl.float32)
    value = apart * s[:, None] * w
    if BIAS:
        value += tl.load(bias + columns, mask=columns < width, other=0.0).to(tl.float32)
    tl.store(y + token * width + columns, value, mask=inside)


@jit(varying=("mean", "inverse", "rows", "programs"))
def _backward(  # type: ignore[no-untyped-def]
    dy, extra, h, weight, mean, inverse, dh, sums, dy_row, extra_row, h_row, rows, programs, width,
    ADD: tl.constexpr, SUMS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)[None, :]
    w = tl.load(weight + columns, mask=columns < width, other=0.0).to(tl.float32)
    dw, db = tl.zeros((1, BLOCK), tl.float32), tl.zeros((1, BLOCK), tl.float32)
    for first in range(program * ROWS, rows, programs * ROWS):
        row = first + tl.arange(0, ROWS)
        token = row.to(tl.int64)[:, None]
        inside = (row < rows)[:, None] & (columns < width)
        m = tl.load(mean + row, mask=row < rows, other=0.0)[:, None]
        s = tl.load(inverse + row, mask=row < rows, other=0.0)[:, None]
        slope = tl.load(dy + token * dy_row + columns, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(h + token * h_row + columns, mask=inside, other=0.0).to(tl.float32)
        n = tl.where(inside, (value - m) * s, 0.0)
        g = slope * w
        d = s * (g - (tl.sum(g, axis=1) / width)[:, None] - n * (tl.sum(g * n, axis=1) / width)[:, None])
        if ADD:
            d += tl.load(extra + token * extra_row + columns, mask=inside, other=0.0).to(tl.float32)
        tl.store(dh + token * width + columns, d, mask=inside)
        if SUMS:
            dw += tl.sum(slope * n, axis=0)[None, :]
            db += tl.sum(slope, axis=0)[None, :]
    if SUMS:
        tl.store(sums + program.to(tl.int64) * width + columns, dw, mask=columns < width)
        tl.store(sums + (programs + program).to(tl.int64) * width + columns, db, mask=columns < width)


def _tile(width: int) -> dict[str, int]:
    """About 16 values a thread, and narrow rows together to fill four warps."""
    block = block_of(width)
    together = max(1, 2048 // block)
    return {"ROWS": together, "BLOCK": block, "num_warps": min(32, max(4, together * block // 512))}


def standardize(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float, residual: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """``(y, h, m, s)`` of the module's formulas for ``x [T, D]``, without autograd; see ``reference.standardize``."""
    alike = residual is None or residual.dtype == x.dtype
    if not alike or not rows_run(x, residual) or not _runs(x, weight):
        return reference.standardize(x, weight, bias, eps, residual)
    rows, width = x.shape
    y = torch.empty(rows, width, dtype=x.dtype, device=x.device)
    h = x if residual is None else torch.empty_like(y)
    m, s = torch.empty(2, rows, dtype=torch.float32, device=x.device)
    if rows:
        beside, tile = x if residual is None else residual, _tile(width)
        launch(
            _forward, (-(-rows // tile["ROWS"]),), x, beside, weight, weight if bias is None else bias, y, h, m, s,
            x.stride(0), beside.stride(0), rows, width, float(eps),
            ADD=residual is not None, BIAS=bias is not None, **tile,
        )  # fmt: skip
    return y, h, m, s


def standardize_backward(
    dy: torch.Tensor, h: torch.Tensor, weight: torch.Tensor, m: torch.Tensor, s: torch.Tensor,
    extra: torch.Tensor | None = None, *, trained: bool = True,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:  # fmt: skip
    """``(dh, dw, db)`` of the module's formulas, the last two wide, or None where they are not ``trained``.

    ``extra`` is the gradient of h from elsewhere. Shapes as in ``standardize``.
    """
    if not rows_run(dy, h, extra) or not _runs(h, weight):
        dh, dw, db = reference.standardize_backward(dy, h, weight, m, s, extra)
        return dh, dw if trained else None, db if trained else None
    rows, width = h.shape
    dh = torch.empty(rows, width, dtype=h.dtype, device=h.device)
    beside, tile = dy if extra is None else extra, _tile(width)
    programs = min(PROGRAMS, max(1, -(-rows // tile["ROWS"])))
    sums = torch.empty(2, programs, width if trained else 0, dtype=torch.float32, device=h.device)
    launch(
        _backward, (programs,), dy, beside, h, weight, m, s, dh, sums, dy.stride(0), beside.stride(0), h.stride(0),
        rows, programs, width, ADD=extra is not None, SUMS=trained, **tile,
    )  # fmt: skip
    if not trained:
        return dh, None, None
    dw, db = sums.sum(1)
    return dh, dw, db


def _runs(x: torch.Tensor, weight: torch.Tensor) -> bool:
    return 0 < x.shape[-1] <= WIDEST and weight.dtype in FLOATS


class _AddNorm(torch.autograd.Function):
    """``(y, h)``; h is an output of its own where another layer adds to it."""

    @staticmethod
    def forward(ctx: Any, x: Any, residual: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any]:
        beside = None if residual is None else dense_rows(residual)
        y, h, m, s = standardize(dense_rows(x), weight, bias, eps, beside)
        ctx.save_for_backward(h, weight, m, s)
        ctx.bias = None if bias is None else bias.dtype
        ctx.set_materialize_grads(False)
        # Without a residual h is x itself, which a Function must not return as new.
        return y.view(x.shape), None if residual is None else h.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Any, extra: Any) -> tuple[torch.Tensor | None, ...]:
        h, weight, m, s = ctx.saved_tensors
        if dy is None:
            return extra, extra, None, None, None
        trained = any(ctx.needs_input_grad[2:4])
        beside = None if extra is None else dense_rows(extra)
        dh, dw, db = standardize_backward(dense_rows(dy), h, weight, m, s, beside, trained=trained)
        dh = dh.view(dy.shape)
        dw = dw.to(weight.dtype) if dw is not None and ctx.needs_input_grad[2] else None
        db = db.to(ctx.bias) if db is not None and ctx.needs_input_grad[3] else None
        return dh, dh if ctx.needs_input_grad[1] else None, dw, db, None


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """LayerNorm of ``x + residual [..., D]`` in x's dtype; see ``reference.layer_norm``."""
    result: torch.Tensor = _AddNorm.apply(x, _alike(residual, x), weight, bias, eps)[0]
    return result


def add_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """``(y, h)``: LayerNorm of h = x + residual, and h, for layers whose residual goes around the norm."""
    y, h = _AddNorm.apply(x, _alike(residual, x), weight, bias, eps)
    return y, h


def _alike(residual: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    """The residual in x's dtype: under autocast the first one comes from embeddings in float32."""
    return residual if residual is None else residual.to(x.dtype)
