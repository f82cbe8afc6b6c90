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

One program takes a few rows of one stretch of columns. A thread takes eight values from one 32-bit word of each row: a
warp loads 128 bytes that lie side by side, and stores 512. For a value ``0.5 + 1/64`` bytes are read and 2 written.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.kernels import reference
from core.kernels.dispatch import block_of, jit, launch, rows_run, tl

__all__ = ["Nf4", "Place", "below", "beside", "border", "dequantize", "programs", "rounding", "sides", "wide_rows"]

WORD = 8
"""Values in a 32-bit word of packed weights; rows whose width is a multiple of it go the wide way."""

LOOKUP, WORDS, ROWS, WARPS = "gather", 128, 4, 4
"""How a level is looked up (gather, load or select), words and rows of one program, and its warps: a word of each row
for a thread. ``tests/gpu/time_nf4.py`` times them all."""


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

    ``out`` is ``[rows + P, D + P]`` with P the sum of ranks, rounded up to a multiple of eight or of more, so that
    rows begin on 16 bytes or on a cache line. ``last`` asks for the padding rows between the sum of ranks and P to be
    zeroed.
    """

    out: torch.Tensor
    row: int  # rows of W above this projection's
    rank: int  # ranks of the adapters before this one
    rows: int  # rows of W in the whole stack
    last: bool


@jit
def _magnitude(  # type: ignore[no-untyped-def]
    absmax, nested_absmax, nested_code, offset, block, inside, NESTED: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    """``m`` of each block."""
    if NESTED:
        quantised = tl.load(absmax + block, mask=inside, other=0)
        scale = tl.load(nested_absmax + block // GROUP, mask=inside, other=0.0)
        magnitude = tl.load(nested_code + quantised.to(tl.int32)) * scale + tl.load(offset)
    else:
        magnitude = tl.load(absmax + block, mask=inside, other=0.0)
    return magnitude


@jit
def _level(code, number, LOOKUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """``code[number]``, numbers from 0 to 15: through shared memory, the first cache, or by comparing bits."""
    if LOOKUP == "gather":
        table = tl.load(code + tl.arange(0, 16))
        level = tl.reshape(tl.gather(table, tl.reshape(number, (number.numel,)), 0), number.shape)
    elif LOOKUP == "load":
        level = tl.load(code + number)
    else:
        level = tl.where((number & 8) == 0, _half(code, number), _half(code + 8, number))
    return level


@jit
def _half(code, number):  # type: ignore[no-untyped-def]
    """``code[number & 7]``."""
    one, two, four = (number & 1) == 0, (number & 2) == 0, (number & 4) == 0
    first = tl.where(one, tl.load(code), tl.load(code + 1))
    second = tl.where(one, tl.load(code + 2), tl.load(code + 3))
    third = tl.where(one, tl.load(code + 4), tl.load(code + 5))
    fourth = tl.where(one, tl.load(code + 6), tl.load(code + 7))
    return tl.where(four, tl.where(two, first, second), tl.where(two, third, fourth))


@jit
def _rounded(values, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rounded to the weight's dtype where the result has another; the store rounds to the result's."""
    if STEP is not None:
        values = values.to(STEP)
    return values


@jit
def wide_rows(  # type: ignore[no-untyped-def]
    out, packed, absmax, nested_absmax, nested_code, offset, code, first, chunk, height, span, units,
    UNIT: tl.constexpr, STEP: tl.constexpr, NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr,
    LOOKUP: tl.constexpr, WORDS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Eight values a word; a row has ``span`` words.

    Words are numbered in 32 bits over the whole weight, so that addresses are cheap. Each thread loads all its words
    first, one of each row. Nothing may be known of the span's factors: loads would be made wider than a word, and the
    values be sent from thread to thread.
    """
    lane = tl.arange(0, ROWS * WORDS)
    row, column = first + lane // WORDS, chunk * WORDS + lane % WORDS
    inside = (row < height) & (column < span)
    number = (row * span + column).to(tl.uint32)
    word = tl.load(packed.to(tl.pointer_type(tl.int32)) + number, mask=inside, other=0)
    block = number // (BLOCKSIZE // 8)
    magnitude = _magnitude(absmax, nested_absmax, nested_code, offset, block, inside, NESTED, GROUP)
    places = tl.arange(0, 8)
    # Bytes lie from the word's low end up, and in each the high half comes first.
    level = _level(code, (word[:, None] >> (4 * (places ^ 1))[None, :]) & 15, LOOKUP)
    start = (row * units + column).to(tl.int64) * 8 if UNIT == 8 else row.to(tl.int64) * units + column * 8
    values = _rounded(level * magnitude[:, None], STEP)
    tl.store(out + start[:, None] + places[None, :], values, mask=inside[:, None])


@jit
def _narrow(  # type: ignore[no-untyped-def]
    out, packed, absmax, nested_absmax, nested_code, offset, code, first, chunk, height, width, stride,
    STEP: tl.constexpr, NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr,
    LOOKUP: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One value at a time, for widths at which a word may hold the end of one row and the beginning of the next."""
    lane = tl.arange(0, ROWS * COLUMNS)
    row, column = (first + lane // COLUMNS).to(tl.int64), chunk * COLUMNS + lane % COLUMNS
    inside = (row < height) & (column < width)
    flat = row * width + column
    byte = tl.load(packed + flat // 2, mask=inside, other=0).to(tl.int32)
    magnitude = _magnitude(absmax, nested_absmax, nested_code, offset, flat // BLOCKSIZE, inside, NESTED, GROUP)
    level = _level(code, (byte >> tl.where(flat % 2 == 0, 4, 0)) & 15, LOOKUP)
    tl.store(out + row * stride + column, _rounded(level * magnitude, STEP), mask=inside)


@jit
def beside(  # type: ignore[no-untyped-def]
    out, b, scale, program, height, stride, width, rank, r, edge, SIDE: tl.constexpr, TALL: tl.constexpr
):  # fmt: skip
    """The columns right of W: zero but for ``scale · B``."""
    row, column = program * TALL + tl.arange(0, TALL), tl.arange(0, SIDE)
    mine = (column >= rank) & (column < rank + r)
    inside = (row < height)[:, None] & (column < edge)[None, :]
    start = row.to(tl.int64)[:, None]
    values = tl.load(b + start * r + (column - rank)[None, :], mask=inside & mine[None, :], other=0.0)
    tl.store(out + start * stride + width + column[None, :], values.to(tl.float32) * scale, mask=inside)


@jit
def below(out, a, program, stride, width, chunks, r, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The rows under W: A, and zeros under it."""
    row = (program // chunks).to(tl.int64)
    columns = (program % chunks) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(a + row * width + columns, mask=inside & (row < r), other=0.0)
    tl.store(out + row * stride + columns, values, mask=inside)


@jit(varying=("height", "span", "units", "rank", "r", "eighths", "chunks", "weights", "besides"))
def _kernel(  # type: ignore[no-untyped-def]
    out, packed, absmax, nested_absmax, nested_code, offset, code, low, a, b, scale,
    height, span, units, rank, r, eighths, chunks, weights, besides,
    UNIT: tl.constexpr, WIDE: tl.constexpr, BORDER: tl.constexpr, SIDE: tl.constexpr, TALL: tl.constexpr,
    STEP: tl.constexpr, NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr,
    LOOKUP: tl.constexpr, WORDS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    # Width and row stride come in units of eight values where they can: so stores are known to begin on 16 bytes.
    width, stride = span * (8 if WIDE else 1), units * UNIT
    program = tl.program_id(0)
    if program < weights:
        first, chunk = (program // chunks) * ROWS, program % chunks
        if WIDE:
            wide_rows(
                out, packed, absmax, nested_absmax, nested_code, offset, code, first, chunk, height, span, units,
                UNIT, STEP, NESTED, GROUP, BLOCKSIZE, LOOKUP, WORDS, ROWS,
            )  # fmt: skip
        else:
            _narrow(
                out, packed, absmax, nested_absmax, nested_code, offset, code, first, chunk, height, width, stride,
                STEP, NESTED, GROUP, BLOCKSIZE, LOOKUP, COLUMNS, ROWS,
            )  # fmt: skip
    elif BORDER:
        if program < weights + besides:
            beside(out, b, scale, program - weights, height, stride, width, rank, r, eighths * 8, SIDE, TALL)
        else:
            below(low, a, program - weights - besides, stride, width, chunks, r, COLUMNS)


def dequantize(weight: Nf4, out: torch.Tensor | None = None) -> torch.Tensor:
    """``W [O, D]``; see ``reference.dequantize``.

    Args:
        weight: on the device of ``out``.
        out: where to write, ``[O, D]``; rows may be strided. Without it a new tensor of the weight's dtype.
    """
    if out is None:
        out = torch.empty(weight.shape, dtype=weight.dtype, device=weight.packed.device)
    if not rows_run(out):
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
    if isinstance(weight, torch.Tensor) or not rows_run(place.out):
        reference.border(weight, a, b, scale, place)
        return
    _run(weight, place.out[place.row :], a, b, scale, place)


def _run(
    weight: Nf4, out: torch.Tensor, a: torch.Tensor | None, b: torch.Tensor | None, scale: float, place: Place | None
) -> None:
    """One launch: programs for W, then for what lies beside it, then for what lies below."""
    height, width = weight.shape
    stride = out.stride(0)
    wide = width % WORD == 0 and weight.packed.data_ptr() % 4 == 0 and height * stride < 1 << 34
    unit = WORD if stride % WORD == 0 else 1
    r = 0 if b is None else b.shape[1]
    rank, columns, low, below = (0, 0, out, 0) if place is None else _edges(place, width, r)
    side, tall = sides(columns)
    reach = WORDS * (WORD if wide else 2)
    chunks = -(-width // reach)
    weights, besides = programs(height, chunks, columns)
    none = weight.code
    launch(
        _kernel, (weights + besides + below * chunks,),
        out, weight.packed, weight.absmax, _or(weight.nested_absmax, none), _or(weight.nested_code, none),
        _or(weight.offset, none), none, low, _or(a, none).contiguous(), _or(b, none).contiguous(), scale,
        height, width // WORD if wide else width, stride // unit, rank, r, columns // 8, chunks, weights, besides,
        UNIT=unit, WIDE=wide, BORDER=place is not None, SIDE=side, TALL=tall, STEP=rounding(weight.dtype, out.dtype),
        NESTED=weight.offset is not None, GROUP=weight.nested_blocksize, BLOCKSIZE=weight.blocksize,
        LOOKUP=LOOKUP, WORDS=WORDS, COLUMNS=reach, ROWS=ROWS, num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip


def sides(columns: int) -> tuple[int, int]:
    """What one program writes of the columns beside W: a block that holds them all, and how many rows of them."""
    side = block_of(max(1, columns))
    return side, max(1, WORDS * WORD // side)


def programs(height: int, chunks: int, columns: int) -> tuple[int, int]:
    """For W, and for what lies beside it."""
    return chunks * -(-height // ROWS), -(-height // sides(columns)[1]) if columns else 0


def _edges(place: Place, width: int, r: int) -> tuple[int, int, torch.Tensor, int]:
    """Ranks before, columns beside W, the rows where A begins, and how many rows to write there."""
    columns = place.out.shape[1] - width
    below = columns - place.rank if place.last else r
    return place.rank, columns, place.out[place.rows + place.rank :] if below else place.out, below


def _or(tensor: torch.Tensor | None, other: torch.Tensor) -> torch.Tensor:
    return other if tensor is None else tensor


def rounding(weight: torch.dtype, out: torch.dtype) -> object:
    """What the kernel rounds a weight's values to on their way to ``out``; None: the store does it."""
    names = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
    return None if weight == out else names[weight]
