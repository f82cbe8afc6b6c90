"""Frozen weights to eight bits in one launch, without a 16-bit copy: from NF4, or from 16-bit weights as they lie.

The forward product ``x W'`` wants rows of W with a scale each, the gradient ``dy W`` rows of W' (``turned``): matrix
units multiply 8-bit values only where both factors lie along the sum. The largest value of every row and column is
told once a run, since W is frozen (``extent_of``); a launch then makes a digit times its block's magnitude times its
row's factor, and rounds it once. What is turned goes through shared memory in tiles of 8-bit values.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.kernels.dispatch import jit, launch, rows_run, tl, use_triton
from core.kernels.eightbit import reference
from core.kernels.eightbit.formats import Format
from core.kernels.eightbit.rows import to_eight
from core.kernels.weights import nf4
from core.kernels.weights.nf4 import digits
from core.kernels.weights.nf4_reference import Nf4

Held = Nf4 | torch.Tensor
WORDS, ROWS, WARPS = 128, 4, 4
"""Words of eight values, rows and warps of a program that keeps W as it lies."""
SIDE, TALL = 8, 128
"""Words and rows of a tile that is turned."""


@dataclass(frozen=True)
class Extent:
    """The largest magnitudes of a weight's rows ``[O]`` and columns ``[D]``, float32."""

    rows: torch.Tensor
    columns: torch.Tensor

    def of(self, turned: bool) -> torch.Tensor:
        """By the rows of what is made."""
        return self.columns if turned else self.rows


def extent_of(held: Held) -> Extent:
    """Of a frozen weight; NF4 is made whole for it, once."""
    size = nf4.dequantize(held).abs_() if isinstance(held, Nf4) else held.detach().abs()
    return Extent(*(torch.where(most > reference.TINY, most, 0.0) for most in (_most(size, 1), _most(size, 0))))


def _most(size: torch.Tensor, over: int) -> torch.Tensor:
    return size.amax(over).float()


@jit
def _inverse(extent, row, inside, largest):  # type: ignore[no-untyped-def]
    most = tl.load(extent + row, mask=inside, other=0.0)
    held = tl.where(most > 0, most, 1.0)
    return tl.where(most > 0, tl.div_rn(tl.zeros_like(held) + largest, held), 0.0)


@jit(varying=("height", "span", "units"))
def _rows_of_nf4(  # type: ignore[no-untyped-def]
    out, packed, absmax, nested_absmax, nested_code, offset, code, extent, height, span, units, largest,
    NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr,
    WORDS: tl.constexpr, ROWS: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    lane = tl.arange(0, ROWS * WORDS)
    row, column = tl.program_id(1) * ROWS + lane // WORDS, tl.program_id(0) * WORDS + lane % WORDS
    values, inside = digits(
        packed, absmax, nested_absmax, nested_code, offset, code, row, column, height, span, NESTED, GROUP, BLOCKSIZE
    )
    values = values * _inverse(extent, row, row < height, largest)[:, None]
    start = (row * units + column).to(tl.int64) * 8
    like: tl.constexpr = out.dtype.element_ty
    places = start[:, None] + tl.arange(0, 8)[None, :]
    tl.store(out + places, to_eight(values, like, WHOLE, EXACT), mask=inside[:, None])


@jit(varying=("span",))
def _turned_of_nf4(  # type: ignore[no-untyped-def]
    out, packed, absmax, nested_absmax, nested_code, offset, code, extent, height, span, stride, largest,
    NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr,
    SIDE: tl.constexpr, TALL: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    lane = tl.arange(0, TALL * SIDE)
    first, high = tl.program_id(0) * SIDE, tl.program_id(1) * TALL
    values, _ = digits(
        packed, absmax, nested_absmax, nested_code, offset, code, high + lane // SIDE, first + lane % SIDE,
        height, span, NESTED, GROUP, BLOCKSIZE,
    )  # fmt: skip
    column, row = first * 8 + tl.arange(0, SIDE * 8), high + tl.arange(0, TALL)
    values = tl.reshape(values, (TALL, SIDE * 8))
    values = values * _inverse(extent, column, column < span * 8, largest)[None, :]
    like: tl.constexpr = out.dtype.element_ty
    turned = tl.trans(to_eight(values, like, WHOLE, EXACT))
    inside = (column < span * 8)[:, None] & (row < height)[None, :]
    tl.store(out + column.to(tl.int64)[:, None] * stride + row[None, :], turned, mask=inside)


@jit
def _of_plain(  # type: ignore[no-untyped-def]
    out, weight, extent, height, width, w_row, stride, largest,
    SIDE: tl.constexpr, TALL: tl.constexpr, TURNED: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    column, row = tl.program_id(0) * SIDE + tl.arange(0, SIDE), tl.program_id(1) * TALL + tl.arange(0, TALL)
    inside = (row < height)[:, None] & (column < width)[None, :]
    far = row.to(tl.int64)[:, None]
    values = tl.load(weight + far * w_row + column[None, :], mask=inside, other=0.0).to(tl.float32)
    like: tl.constexpr = out.dtype.element_ty
    if TURNED:
        values = to_eight(values * _inverse(extent, column, column < width, largest)[None, :], like, WHOLE, EXACT)
        there = (column < width)[:, None] & (row < height)[None, :]
        tl.store(out + column.to(tl.int64)[:, None] * stride + row[None, :], tl.trans(values), mask=there)
    else:
        values = to_eight(values * _inverse(extent, row, row < height, largest)[:, None], like, WHOLE, EXACT)
        tl.store(out + far * stride + column[None, :], values, mask=inside)


def quantise_weight(held: Held, most: torch.Tensor, form: Format, turned: bool, out: torch.Tensor) -> torch.Tensor:
    """W into ``out [O, D]`` by the largest values of rows, or ``turned``: W' into ``out [D, O]`` by those of columns.

    Args:
        most: float32 ``[O]`` or ``[D]``, of ``extent_of`` (of a whole stack where its columns share one scale).
        out: 8-bit; its rows may be strided.
    """
    told: dict[str, object] = {"WHOLE": form.whole, "EXACT": not out.is_cuda}
    told |= {"num_warps": WARPS, "enable_fp_fusion": False}
    if isinstance(held, Nf4) and use_triton(most) and _in_words(held, out, turned):
        _launch_nf4(held, most, form, turned, out, told)
    elif not isinstance(held, Nf4) and rows_run(held) and use_triton(most):
        (height, width), side, tall = held.shape, *((64, 128) if turned else (256, 16))
        launch(
            _of_plain, (-(-width // side), -(-height // tall)), out, held, most, height, width, held.stride(0),
            out.stride(0), form.largest, SIDE=side, TALL=tall, TURNED=turned, **told,
        )  # fmt: skip
    else:
        out.copy_(reference.quantise_weight(held, most, form, turned))
    return out


def _in_words(held: Nf4, out: torch.Tensor, turned: bool) -> bool:
    """Whether NF4's rows begin on whole words, ``out``'s too, and 32 bits can count them."""
    whole = held.shape[1] % nf4.WORD == 0 and held.packed.data_ptr() % 4 == 0
    return whole and (turned or out.stride(0) % nf4.WORD == 0) and out.shape[0] * out.stride(0) < 1 << 34


def _launch_nf4(
    held: Nf4, most: torch.Tensor, form: Format, turned: bool, out: torch.Tensor, told: dict[str, object]
) -> None:
    (height, width), code = held.shape, held.code
    nested = [code if part is None else part for part in (held.nested_absmax, held.nested_code, held.offset)]
    span = width // nf4.WORD
    kernel, side, tall, stride, tile = (
        (_turned_of_nf4, SIDE, TALL, out.stride(0), {"SIDE": SIDE, "TALL": TALL})
        if turned
        else (_rows_of_nf4, WORDS, ROWS, out.stride(0) // nf4.WORD, {"WORDS": WORDS, "ROWS": ROWS})
    )
    launch(
        kernel, (-(-span // side), -(-height // tall)), out, held.packed, held.absmax, *nested, code, most,
        height, span, stride, form.largest, NESTED=held.offset is not None, GROUP=held.nested_blocksize,
        BLOCKSIZE=held.blocksize, **tile, **told,
    )  # fmt: skip
