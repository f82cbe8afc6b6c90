"""NF4 weights (Dettmers et al. 2023, arXiv:2305.14314) back in 16 or 32 bits, alone or with their adapter beside them.

The weight ``W [O, D]`` is flattened and cut into blocks; a value is four bits, the number of one of 16 levels, and the
block's largest magnitude scales it. These magnitudes are themselves held in eight bits (double quantisation)::

    m[k] = level8[q[k]] · nested[k / nested_blocksize] + offset        k = block number
    W[i] = round(level4[n[i]] · m[i / blocksize])                      two values a byte, the first in the high half

Products and the sum are rounded one by one in float32, so that the result equals bitsandbytes' bit for bit: the
compiler must not fuse the product and the sum of ``m``.

``border`` writes one projection into the bordered matrix of a stack of projections that share their input::

    M = [[ W , s·B ],        W [ΣO, D] stacked, s·B [ΣO, ΣR] block-diagonal,
         [ A ,  -  ]]        A [ΣR, D] stacked; the corner is never read

so that ``[x, x A'] [W, s·B]'`` and ``[dy, dy s·B] [W; A]`` are one matrix product each.

One program takes a few rows of one stretch of columns. A thread takes eight values from one 32-bit word: loads of a
warp are 128 bytes in a row, stores 512. Per weight ``0.5 + 1/64`` bytes are read and 2 written.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.kernels import reference
from core.kernels.dispatch import block_of, jit, launch, tl, use_triton

__all__ = ["Nf4", "Place", "border", "dequantize"]

WORD = 8
"""Values in a 32-bit word of packed weights; rows whose width is a multiple of it go the wide way."""

LOOKUP, WORDS, ROWS, WARPS = "load", 128, 4, 4
"""How a level is looked up (load, select or gather), words and rows of one program, and its warps."""


@dataclass(frozen=True)
class Nf4:
    """An NF4 weight, as tensors of one device.

    ``nested_absmax``, ``nested_code`` and ``offset`` are None where ``absmax`` is float32 (not quantised again).
    """

    packed: torch.Tensor  # uint8, two values a byte
    absmax: torch.Tensor  # [blocks], uint8 or float32
    code: torch.Tensor  # [16], float32
    blocksize: int
    nested_absmax: torch.Tensor | None  # [groups of blocks], float32
    nested_code: torch.Tensor | None  # [256], float32
    nested_blocksize: int
    offset: torch.Tensor | None  # one value, float32
    shape: tuple[int, int]  # O, D
    dtype: torch.dtype  # what values are rounded to


@dataclass(frozen=True)
class Place:
    """Where in a bordered matrix one projection of the stack goes.

    ``out`` is ``[rows + P, D + P]`` with P the sum of ranks, rounded up to a multiple of eight so that rows begin on
    16 bytes. ``last`` asks for the padding rows between the sum of ranks and P to be zeroed.
    """

    out: torch.Tensor
    row: int  # rows of W above this projection's
    rank: int  # ranks of the adapters before this one
    rows: int  # rows of W in the whole stack
    last: bool


@jit
def _magnitude(  # type: ignore[no-untyped-def]
    absmax, nested_absmax, nested_code, offset, first, index, inside, NESTED: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    """``m`` of the blocks ``first + index``: first is one 64-bit number, so that the rest is 32-bit arithmetic."""
    if NESTED:
        quantised = tl.load(absmax + first + index, mask=inside, other=0).to(tl.int32)
        group = ((first % GROUP).to(tl.int32) + index) // GROUP
        scale = tl.load(nested_absmax + first // GROUP + group, mask=inside, other=0.0)
        magnitude = tl.load(nested_code + quantised) * scale + tl.load(offset)
    else:
        magnitude = tl.load(absmax + first + index, mask=inside, other=0.0)
    return magnitude


@jit
def _level(code, number, LOOKUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """``code[number]``, a number from 0 to 15 each: from the first cache, from registers, or by comparing bits."""
    if LOOKUP == "load":
        level = tl.load(code + number)
    elif LOOKUP == "gather":
        table = tl.load(code + tl.arange(0, 16))
        level = tl.reshape(tl.gather(table, tl.reshape(number, (number.numel,)), 0), number.shape)
    else:
        level = tl.where((number & 8) == 0, _quarter(code, number), _quarter(code + 8, number))
    return level


@jit
def _quarter(code, number):  # type: ignore[no-untyped-def]
    one, two = (number & 1) == 0, (number & 2) == 0
    low = tl.where(
        two, tl.where(one, tl.load(code), tl.load(code + 1)), tl.where(one, tl.load(code + 2), tl.load(code + 3))
    )
    high = tl.where(
        two, tl.where(one, tl.load(code + 4), tl.load(code + 5)), tl.where(one, tl.load(code + 6), tl.load(code + 7))
    )
    return tl.where((number & 4) == 0, low, high)


@jit
def _wide_row(  # type: ignore[no-untyped-def]
    out, packed, absmax, nested_absmax, nested_code, offset, code, row, words, width, inside,
    STEP: tl.constexpr, NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr, LOOKUP: tl.constexpr,
):  # fmt: skip
    """Eight values a word; ``out`` points at the row's first value."""
    start = row.to(tl.int64) * width
    word = tl.load(packed.to(tl.pointer_type(tl.int32)) + start // 8 + words, mask=inside, other=0)
    index = ((start % BLOCKSIZE).to(tl.int32) + words * 8) // BLOCKSIZE
    magnitude = _magnitude(absmax, nested_absmax, nested_code, offset, start // BLOCKSIZE, index, inside, NESTED, GROUP)
    places = tl.arange(0, 8)
    # Bytes lie from the word's low end up, and in each the high half comes first.
    number = (word[:, None] >> (4 * (places ^ 1))[None, :]) & 15
    values = (_level(code, number, LOOKUP) * magnitude[:, None]).to(STEP)
    tl.store(out + words[:, None] * 8 + places[None, :], values, mask=inside[:, None])


@jit
def _narrow_row(  # type: ignore[no-untyped-def]
    out, packed, absmax, nested_absmax, nested_code, offset, code, row, columns, width, inside,
    STEP: tl.constexpr, NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr, LOOKUP: tl.constexpr,
):  # fmt: skip
    """One value at a time, for widths at which a word holds the end of one row and the beginning of the next."""
    start = row.to(tl.int64) * width
    place = (start % BLOCKSIZE).to(tl.int32) + columns
    odd = (start % 2).to(tl.int32) + columns
    byte = tl.load(packed + start // 2 + odd // 2, mask=inside, other=0).to(tl.int32)
    magnitude = _magnitude(
        absmax, nested_absmax, nested_code, offset, start // BLOCKSIZE, place // BLOCKSIZE, inside, NESTED, GROUP
    )
    number = (byte >> tl.where(odd % 2 == 0, 4, 0)) & 15
    tl.store(out + columns, (_level(code, number, LOOKUP) * magnitude).to(STEP), mask=inside)


@jit
def _beside(out, b, scale, program, height, stride, width, rank, r, edge, SIDE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # fmt: skip
    """The columns right of W: zero but for ``scale · B``."""
    rows = program * (BLOCK // SIDE) + tl.arange(0, BLOCK // SIDE)
    columns = tl.arange(0, SIDE)
    mine = (columns >= rank) & (columns < rank + r)
    inside = (rows < height)[:, None] & (columns < edge)[None, :]
    start = rows.to(tl.int64)[:, None]
    values = tl.load(b + start * r + (columns - rank)[None, :], mask=inside & mine[None, :], other=0.0)
    values = values.to(tl.float32) * scale
    tl.store(out + start * stride + width + columns[None, :], values, mask=inside)


@jit
def _below(out, a, program, stride, width, chunks, r, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The rows under W: A, and zeros under it."""
    row = (program // chunks).to(tl.int64)
    columns = (program % chunks) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(a + row * width + columns, mask=inside & (row < r), other=0.0)
    tl.store(out + row * stride + columns, values, mask=inside)


@jit
def _kernel(  # type: ignore[no-untyped-def]
    out, packed, absmax, nested_absmax, nested_code, offset, code, low, a, b, scale,
    height, width, units, rank, r, edge, chunks, weights, besides,
    UNIT: tl.constexpr, WIDE: tl.constexpr, BORDER: tl.constexpr, SIDE: tl.constexpr, STEP: tl.constexpr,
    NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr,
    LOOKUP: tl.constexpr, WORDS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    # The row stride comes in units of eight values where it can: else no store is known to begin on 16 bytes.
    stride = units * UNIT
    program = tl.program_id(0)
    if program < weights:
        first = (program // chunks) * ROWS
        for i in tl.static_range(ROWS):
            row = first + i
            here = out + row.to(tl.int64) * stride
            if WIDE:
                words = (program % chunks) * WORDS + tl.arange(0, WORDS)
                _wide_row(
                    here, packed, absmax, nested_absmax, nested_code, offset, code, row, words, width,
                    (words * 8 < width) & (row < height), STEP, NESTED, GROUP, BLOCKSIZE, LOOKUP,
                )  # fmt: skip
            else:
                columns = (program % chunks) * (WORDS * 8) + tl.arange(0, WORDS * 8)
                _narrow_row(
                    here, packed, absmax, nested_absmax, nested_code, offset, code, row, columns, width,
                    (columns < width) & (row < height), STEP, NESTED, GROUP, BLOCKSIZE, LOOKUP,
                )  # fmt: skip
    elif BORDER:
        if program < weights + besides:
            _beside(out, b, scale, program - weights, height, stride, width, rank, r, edge, SIDE, WORDS * 8)
        else:
            _below(low, a, program - weights - besides, stride, width, chunks, r, WORDS * 8)


def dequantize(weight: Nf4, out: torch.Tensor | None = None) -> torch.Tensor:
    """``W [O, D]``; see ``reference.dequantize``.

    Args:
        weight: on the device of ``out``.
        out: where to write, ``[O, D]``; rows may be strided. Without it a new tensor of the weight's dtype.
    """
    if out is None:
        out = torch.empty(weight.shape, dtype=weight.dtype, device=weight.packed.device)
    if not use_triton(out):
        return reference.dequantize(weight, out)
    _run(weight, out, None, None, 0.0, None)
    return out


def border(
    weight: Nf4 | torch.Tensor, a: torch.Tensor | None, b: torch.Tensor | None, scale: float, place: Place
) -> None:
    """Writes a projection and its adapter into ``place.out``; see ``reference.border``.

    Args:
        weight: ``[O, D]``, in NF4 or as it is.
        a: ``[R, D]``; ``b``: ``[O, R]``; float32, both None where the projection has no adapter.
        scale: what B is multiplied by, in float32.
    """
    if isinstance(weight, torch.Tensor) or not use_triton(place.out):
        reference.border(weight, a, b, scale, place)
        return
    _run(weight, place.out[place.row :], a, b, scale, place)


def _run(
    weight: Nf4, out: torch.Tensor, a: torch.Tensor | None, b: torch.Tensor | None, scale: float, place: Place | None
) -> None:
    height, width = weight.shape
    if not height * width:
        return
    wide = width % WORD == 0 and weight.packed.data_ptr() % 4 == 0
    stride = out.stride(0)
    unit = WORD if stride % WORD == 0 else 1
    r = 0 if b is None else b.shape[1]
    rank, edge, low, under = (0, 0, out, 0) if place is None else _edges(place, width, r)
    chunks = -(-width // (WORDS * WORD))
    weights = chunks * -(-height // ROWS)
    side = block_of(max(1, edge))
    besides = 0 if place is None else -(-height // (WORDS * WORD // side))
    none = weight.code
    launch(
        _kernel, (weights + besides + under * chunks,),
        out, weight.packed, weight.absmax, _or(weight.nested_absmax, none), _or(weight.nested_code, none),
        _or(weight.offset, none), weight.code, low,
        none if a is None else a.contiguous(), none if b is None else b.contiguous(), scale,
        height, width, stride // unit, rank, r, edge, chunks, weights, besides,
        UNIT=unit, WIDE=wide, BORDER=place is not None, SIDE=side, STEP=_type(weight.dtype),
        NESTED=weight.offset is not None, GROUP=weight.nested_blocksize, BLOCKSIZE=weight.blocksize,
        LOOKUP=LOOKUP, WORDS=WORDS, ROWS=ROWS, num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip


def _edges(place: Place, width: int, r: int) -> tuple[int, int, torch.Tensor, int]:
    """Ranks before, columns beside W, the rows where A begins, and how many rows to write there."""
    padded = place.out.shape[1] - width
    under = padded - place.rank if place.last else r
    return place.rank, padded, place.out[place.rows + place.rank :] if under else place.out, under


def _or(tensor: torch.Tensor | None, other: torch.Tensor) -> torch.Tensor:
    return other if tensor is None else tensor


def _type(dtype: torch.dtype) -> object:
    return {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}[dtype]
