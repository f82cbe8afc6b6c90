"""Frozen weights to eight bits in one launch, without a 16-bit copy: from NF4, or from 16-bit weights as they lie.

The forward product ``x W'`` wants rows of W with a scale each, the gradient ``dy W`` rows of W' (``turned``): matrix
units multiply 8-bit values only where both factors lie along the sum. The largest value of every row and column
(``extent_of``) and what follows from it is found once a run, since W is frozen; a launch then makes a digit times its
block's magnitude times its row's factor, and rounds it once. What is turned goes through shared memory in tiles of
8-bit values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from core.kernels.dispatch import jit, launch, rows_run, tl, use_triton
from core.kernels.eightbit import reference
from core.kernels.eightbit.formats import Format
from core.kernels.eightbit.rows import to_eight
from core.kernels.eightbit.table import FIELDS, HIGH, Table, part_of
from core.kernels.weights import nf4
from core.kernels.weights.nf4 import digits
from core.kernels.weights.nf4_reference import Nf4
from core.kernels.weights.nf4_stack import field, tensors_of

Held = Nf4 | torch.Tensor
LYING, TURNED, WARPS = (128, 2), (8, 32), 4
"""Words of eight values and rows of a program, of W as it lies and turned, and its warps."""


@dataclass(frozen=True)
class Extent:
    """Of a weight's rows ``[O]`` and columns ``[D]``, float32: the largest magnitudes, or what follows from them."""

    rows: torch.Tensor
    columns: torch.Tensor

    def of(self, turned: bool) -> torch.Tensor:
        """By the rows of what is made."""
        return self.columns if turned else self.rows


def extent_of(held: Held) -> Extent:
    """Of a frozen weight; NF4 is made whole for it, once."""
    size = nf4.dequantize(held).abs_() if isinstance(held, Nf4) else held.detach().abs()
    return Extent(*(reference.cut(size.amax(over).float()) for over in (1, 0)))


@jit
def _digits_of(  # type: ignore[no-untyped-def]
    mine, row, column, height, span, NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr
):  # fmt: skip
    """``nf4.digits`` of a projection in the table."""
    packed, absmax, nested_absmax, nested_code, offset, code = tensors_of(mine, NESTED)
    return digits(
        packed, absmax, nested_absmax, nested_code, offset, code, row, column, height, span, NESTED, GROUP, BLOCKSIZE
    )


@jit(varying=("span", "units"))
def _rows_of_nf4(  # type: ignore[no-untyped-def]
    out, table, factors, span, units, PARTS: tl.constexpr, FIELDS: tl.constexpr,
    NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr,
    SIDE: tl.constexpr, TALL: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    mine, program = part_of(table, tl.program_id(1), TALL, PARTS, FIELDS)
    lane = tl.arange(0, TALL * SIDE)
    row, column = program * TALL + lane // SIDE, tl.program_id(0) * SIDE + lane % SIDE
    height, first = field(mine, 9), field(mine, 10)
    values, inside = _digits_of(mine, row, column, height, span, NESTED, GROUP, BLOCKSIZE)
    values = values * tl.load(factors + first + row, mask=row < height, other=0.0)[:, None]
    start = ((first + row) * units + column).to(tl.int64) * 8
    like: tl.constexpr = out.dtype.element_ty
    places = start[:, None] + tl.arange(0, 8)[None, :]
    tl.store(out + places, to_eight(values, like, WHOLE, EXACT), mask=inside[:, None])


@jit(varying=("span",))
def _turned_of_nf4(  # type: ignore[no-untyped-def]
    out, table, factors, span, stride, PARTS: tl.constexpr, FIELDS: tl.constexpr,
    NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr,
    SIDE: tl.constexpr, TALL: tl.constexpr, HIGH: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    mine, program = part_of(table, tl.program_id(1), TALL, PARTS, FIELDS)
    lane = tl.arange(0, TALL * SIDE)
    left, high = tl.program_id(0) * SIDE, program * TALL
    height, first = (
        field(mine, 9) // HIGH * HIGH,
        field(mine, 10) // HIGH * HIGH,
    )  # the compiler sees it: stores are wide
    values, _ = _digits_of(mine, high + lane // SIDE, left + lane % SIDE, height, span, NESTED, GROUP, BLOCKSIZE)
    column, row = left * 8 + tl.arange(0, SIDE * 8), high + tl.arange(0, TALL)
    values = tl.reshape(values, (TALL, SIDE * 8))
    values = values * tl.load(factors + column, mask=column < span * 8, other=0.0)[None, :]
    like: tl.constexpr = out.dtype.element_ty
    turned = tl.trans(to_eight(values, like, WHOLE, EXACT))
    inside = (column < span * 8)[:, None] & (row < height)[None, :]
    tl.store(out + (column.to(tl.int64) * stride + first)[:, None] + row[None, :], turned, mask=inside)


@jit
def _of_plain(  # type: ignore[no-untyped-def]
    out, weight, factors, height, width, w_row, stride,
    SIDE: tl.constexpr, TALL: tl.constexpr, TURNED: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    column, row = tl.program_id(0) * SIDE + tl.arange(0, SIDE), tl.program_id(1) * TALL + tl.arange(0, TALL)
    inside = (row < height)[:, None] & (column < width)[None, :]
    far = row.to(tl.int64)[:, None]
    values = tl.load(weight + far * w_row + column[None, :], mask=inside, other=0.0).to(tl.float32)
    like: tl.constexpr = out.dtype.element_ty
    if TURNED:
        factor = tl.load(factors + column, mask=column < width, other=0.0)
        values = to_eight(values * factor[None, :], like, WHOLE, EXACT)
        there = (column < width)[:, None] & (row < height)[None, :]
        tl.store(out + column.to(tl.int64)[:, None] * stride + row[None, :], tl.trans(values), mask=there)
    else:
        factor = tl.load(factors + row, mask=row < height, other=0.0)
        values = to_eight(values * factor[:, None], like, WHOLE, EXACT)
        tl.store(out + far * stride + column[None, :], values, mask=inside)


def quantise_stack(
    held: Sequence[Held], table: Table, factors: torch.Tensor, form: Format, turned: bool, out: torch.Tensor
) -> torch.Tensor:  # fmt: skip
    """A stack's W into ``out [O, D]``, or ``turned``: W' into ``out [D, O]``.

    Args:
        held: the frozen weights, one below the other; in one launch where ``table`` knows them as NF4 of one kind.
        factors: float32, of each row of what is made, ``[O]`` or ``[D]``: ``reference.inverse`` of the stack's extent.
        out: 8-bit; its rows may be strided.
    """
    told: dict[str, object] = {"WHOLE": form.whole, "EXACT": not out.is_cuda}
    told |= {"num_warps": WARPS, "enable_fp_fusion": False}
    if table.numbers is not None and table.like is not None and (turned or out.stride(0) % nf4.WORD == 0):
        _launch_nf4(table, factors, turned, out, told)
        return out
    row = 0
    for one in held:
        until = row + one.shape[0]
        place = out[:, row:until] if turned else out[row:until]
        _quantise(one, factors if turned else factors[row:until], form, turned, place, told)
        row = until
    return out


def _quantise(
    held: Held, factors: torch.Tensor, form: Format, turned: bool, out: torch.Tensor, told: dict[str, object]
) -> None:  # fmt: skip
    """One weight, by the kernel for 16 bits or by the reference."""
    if isinstance(held, Nf4) or not rows_run(held) or not use_triton(factors):
        out.copy_(reference.quantise_weight(held, factors, form, turned))
        return
    (height, width), side, tall = held.shape, *((64, 128) if turned else (256, 16))
    launch(
        _of_plain, (-(-width // side), -(-height // tall)), out, held, factors, height, width, held.stride(0),
        out.stride(0), SIDE=side, TALL=tall, TURNED=turned, **told,
    )  # fmt: skip


def _launch_nf4(table: Table, factors: torch.Tensor, turned: bool, out: torch.Tensor, told: dict[str, object]) -> None:
    like = table.like
    assert like is not None
    span = like.shape[1] // nf4.WORD
    kernel, (side, tall), stride = _rows_of_nf4, LYING, out.stride(0) // nf4.WORD
    if turned:
        kernel, (side, tall), stride, told = _turned_of_nf4, TURNED, out.stride(0), {**told, "HIGH": HIGH}
    launch(
        kernel, (-(-span // side), sum(-(-height // tall) for height in table.heights)), out, table.numbers, factors,
        span, stride, PARTS=len(table.heights), FIELDS=FIELDS, NESTED=like.offset is not None,
        GROUP=like.nested_blocksize, BLOCKSIZE=like.blocksize, SIDE=side, TALL=tall, **told,
    )  # fmt: skip
