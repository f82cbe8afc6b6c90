"""Quantises rows of activations and gradients, a scale a token: ``reference.quantise_rows`` in one pass.

A program takes a row: it is read once (twice, the second time from the cache, where it is wider than ``AT_ONCE``), and
half of its bytes are written.
"""

import torch

from core.kernels.dispatch import block_of, jit, launch, rows_run, tl
from core.kernels.eightbit import reference
from core.kernels.eightbit.formats import Format
from core.kernels.eightbit.reference import TINY, Quantised

AT_ONCE, PIECE = 32768, 8192
"""Values of a row that a program holds at once, and of a wider one at a time."""


@jit
def most_of(values):  # type: ignore[no-untyped-def]
    """|x|; infinite for NaN, which a maximum would leave out."""
    return tl.where(values == values, tl.abs(values), float("inf"))


@jit
def to_eight(values, like: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """float32 values in the format's range to the nearest of the format's, ties to even.

    EXACT rounds to e4m3 by its bits before the cast: the interpreter's own cast is wrong where rounding carries.
    """
    values = tl.where(values == values, values, 0.0)  # its row's scale tells of it
    if WHOLE:  # 1.5 · 2^23 leaves no bits for a fraction
        values = (values + 12582912.0) - 12582912.0
    elif EXACT:
        bits = values.to(tl.int32, bitcast=True)
        nearest = ((bits + 0x7FFFF + ((bits >> 20) & 1)) & -0x100000).to(tl.float32, bitcast=True)
        small = (values + 24576.0) - 24576.0  # steps of 2^-9 below 2^-6
        values = tl.where(tl.abs(values) < 0.015625, small, nearest)
    return values.to(like)


@jit
def factors_of(most, largest, TINY: tl.constexpr):  # type: ignore[no-untyped-def]
    """``(scale, inverse)`` of the largest value."""
    there = most > TINY
    held = tl.where(there, most, 1.0)
    scale = tl.where(there, tl.div_rn(held, largest), 0.0)
    return scale, tl.where(there, tl.div_rn(tl.zeros_like(held) + largest, held), 0.0)


@jit
def _kernel(  # type: ignore[no-untyped-def]
    out, scales, x, x_row, width, largest,
    BLOCK: tl.constexpr, ONCE: tl.constexpr, TINY: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    like: tl.constexpr = out.dtype.element_ty
    columns = tl.arange(0, BLOCK)
    x += row * x_row
    out += row * width
    if ONCE:
        inside = columns < width
        values = tl.load(x + columns, mask=inside, other=0.0).to(tl.float32)
        scale, inverse = factors_of(tl.max(most_of(values), axis=0), largest, TINY)
        tl.store(out + columns, to_eight(values * inverse, like, WHOLE, EXACT), mask=inside)
    else:
        most = tl.zeros((BLOCK,), tl.float32)
        for first in range(0, width, BLOCK):
            values = tl.load(x + first + columns, mask=first + columns < width, other=0.0).to(tl.float32)
            most = tl.maximum(most, most_of(values))
        scale, inverse = factors_of(tl.max(most, axis=0), largest, TINY)
        for first in range(0, width, BLOCK):
            inside = first + columns < width
            values = tl.load(x + first + columns, mask=inside, other=0.0).to(tl.float32)
            tl.store(out + first + columns, to_eight(values * inverse, like, WHOLE, EXACT), mask=inside)
    tl.store(scales + row, scale)


def quantise_rows(rows: torch.Tensor, form: Format) -> Quantised:
    """``rows [T, D]``, which may be strided, with a scale a row; see ``reference``."""
    if not rows_run(rows) or not len(rows):
        return reference.quantise_rows(rows, form)
    (tokens, width), block = rows.shape, block_of(rows.shape[1])
    block = block if block <= AT_ONCE else min(PIECE, AT_ONCE)
    values = torch.empty(tokens, width, dtype=form.dtype, device=rows.device)
    scales = torch.empty(tokens, dtype=torch.float32, device=rows.device)
    launch(
        _kernel, (tokens,), values, scales, rows, rows.stride(0), width, form.largest, BLOCK=block,
        ONCE=block >= width, TINY=TINY, WHOLE=form.whole, EXACT=not rows.is_cuda,
        num_warps=warps_for(block), enable_fp_fusion=False,
    )  # fmt: skip
    return Quantised(values, scales)


def warps_for(block: int) -> int:
    """Of a program that holds ``block`` values."""
    return min(16, max(4, block // 1024))
