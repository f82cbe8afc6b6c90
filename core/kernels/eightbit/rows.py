"""Quantises rows of activations and gradients, a scale a token: ``reference.quantise_rows`` in one pass.

A program takes a row: it is read once (twice, the second time from the cache, where it is wider than ``AT_ONCE``), and
half of its bytes are written. Norms and gates quantise what they make with the same functions.
"""

from typing import Any

import torch

from core.kernels.dispatch import block_of, jit, launch, rows_run, tl
from core.kernels.eightbit.formats import Format
from core.kernels.eightbit.reference import TINY, Quantised

AT_ONCE, PIECE = 32768, 8192
"""Values of a row that a program holds at once, and of a wider one at a time."""


@jit
def size_of(values):  # type: ignore[no-untyped-def]
    """The bits of |x|, int32: ordered as magnitudes are, and NaN above them all."""
    return values.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@jit
def to_eight(values, like: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """float32 values in the format's range to the nearest of the format's, ties to even.

    EXACT rounds to e4m3 by its bits before the cast: the interpreter's own cast is wrong where rounding carries.
    """
    if WHOLE:  # 1.5 · 2^23 leaves no bits for a fraction, and the whole number is in the lowest
        return (values + 12582912.0).to(tl.int32, bitcast=True).to(like)
    if EXACT:
        bits = values.to(tl.int32, bitcast=True)
        nearest = ((bits + 0x7FFFF + ((bits >> 20) & 1)) & -0x100000).to(tl.float32, bitcast=True)
        small = (values + 24576.0) - 24576.0  # steps of 2^-9 below 2^-6
        values = tl.where(tl.abs(values) < 0.015625, small, nearest)
    return values.to(like)


@jit
def factors_of(size, LARGEST: tl.constexpr, TINY: tl.constexpr):  # type: ignore[no-untyped-def]
    """``(scale, inverse)`` of the largest ``size_of`` values that may become LARGEST."""
    most = size.to(tl.float32, bitcast=True)
    most = tl.where(most < float("inf"), most, float("nan"))
    none = most <= TINY
    inverse = tl.div_rn(tl.full(most.shape, LARGEST, tl.float32), tl.where(none, 1.0, most))
    return tl.where(none, 0.0, most * (1.0 / LARGEST)), tl.where(none, 0.0, inverse)


@jit
def put_again(row, out, inverse, width, BLOCK: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """A row in memory to its 8-bit form, piece by piece."""
    for first in range(0, width, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        values = tl.load(row + columns, mask=columns < width, other=0.0).to(tl.float32)
        tl.store(out + columns, to_eight(values * inverse, out.dtype.element_ty, WHOLE, EXACT), mask=columns < width)


@jit
def _kernel(  # type: ignore[no-untyped-def]
    out, scales, x, x_row, width, BLOCK: tl.constexpr, ONCE: tl.constexpr, LARGEST: tl.constexpr, TINY: tl.constexpr,
    WHOLE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    like: tl.constexpr = out.dtype.element_ty
    columns = tl.arange(0, BLOCK)
    x += row * x_row
    out += row * width
    if ONCE:
        inside = columns < width
        values = tl.load(x + columns, mask=inside, other=0.0).to(tl.float32)
        scale, inverse = factors_of(tl.max(size_of(values), axis=0), LARGEST, TINY)
        tl.store(out + columns, to_eight(values * inverse, like, WHOLE, EXACT), mask=inside)
    else:
        most = tl.zeros((BLOCK,), tl.int32)
        for first in range(0, width, BLOCK):
            values = tl.load(x + first + columns, mask=first + columns < width, other=0.0).to(tl.float32)
            most = tl.maximum(most, size_of(values))
        scale, inverse = factors_of(tl.max(most, axis=0), LARGEST, TINY)
        put_again(x, out, inverse, width, BLOCK, WHOLE, EXACT)
    tl.store(scales + row, scale)


def quantise_rows(rows: torch.Tensor, form: Format) -> Quantised:
    """``rows [T, D]``, which may be strided, with a scale a row; see ``reference``."""
    made = Quantised.room(rows, form)
    quantise_into(made, rows)
    return made


def quantise_into(made: Quantised, rows: torch.Tensor) -> None:
    """The same into ``made``."""
    if not rows_run(rows) or not len(rows):
        made.fill(rows)
        return
    (tokens, width), block = rows.shape, block_of(rows.shape[1])
    block = block if block <= AT_ONCE else min(PIECE, AT_ONCE)
    launch(
        _kernel, (tokens,), made.values, made.scales, rows, rows.stride(0), width, BLOCK=block, ONCE=block >= width,
        num_warps=warps_for(block), **flags_of(made),
    )  # fmt: skip


UNFUSED = {"enable_fp_fusion": False}
"""Of kernels that round to eight bits: a product and a sum in one instruction would be rounded once, and to other bits
than the definition, or than the other pass that rounds the same value."""
SIXTEEN_BITS = {"LARGEST": 1.0, "TINY": TINY, "WHOLE": False, "EXACT": False}
"""What a kernel is told that quantises nothing."""


def flags_of(made: Quantised) -> dict[str, Any]:
    """What a kernel is told that quantises into ``made``."""
    form = made.form
    return {"LARGEST": form.largest, "TINY": TINY, "WHOLE": form.whole, "EXACT": not made.values.is_cuda, **UNFUSED}


def warps_for(block: int) -> int:
    """Of a program that holds ``block`` values."""
    return min(16, max(4, block // 1024))
