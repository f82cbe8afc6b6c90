"""Dequantises NF4 weights (Dettmers et al. 2023, arXiv:2305.14314).

The weight ``W [O, D]`` is flattened and cut into blocks; a value is the 4-bit number of one of 16 levels, scaled by the
block's largest magnitude m, which is itself held in eight bits (double quantisation)::

    m[k] = level8[q[k]] · nested[k / nested_blocksize] + offset        k = block number
    W[i] = round(level4[n[i]] · m[i / blocksize])                      two values a byte, the first in the high half

Products and the sum are rounded one by one in float32, so that the result equals bitsandbytes' bit for bit: the
compiler must not fuse the product and the sum of ``m``.

One program takes some columns of a few rows; a thread takes the eight values of one 32-bit word of each row, so a warp
loads 128 and stores 512 adjacent bytes. Widths that are no multiple of eight take the reference.
"""

import torch

from core.kernels.dispatch import jit, launch, rows_run, tl
from core.kernels.weights import nf4_reference
from core.kernels.weights.nf4_reference import Nf4

WORD = 8
"""Values in a 32-bit word of packed weights."""
WORDS, ROWS, WARPS = 128, 4, 4
"""Words, rows and warps of a program: a thread has a word of each row. ``tests/gpu/time_kernels.py`` times others."""


@jit
def _magnitude(  # type: ignore[no-untyped-def]
    absmax, nested_absmax, nested_code, offset, block, inside, NESTED: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    """m of each block."""
    if NESTED:
        quantised = tl.load(absmax + block, mask=inside, other=0)
        scale = tl.load(nested_absmax + block // GROUP, mask=inside, other=0.0)
        magnitude = tl.load(nested_code + quantised.to(tl.int32)) * scale + tl.load(offset)
    else:
        magnitude = tl.load(absmax + block, mask=inside, other=0.0)
    return magnitude


@jit
def digits(  # type: ignore[no-untyped-def]
    packed, absmax, nested_absmax, nested_code, offset, code, row, column, height, span,
    NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr,
):  # fmt: skip
    """Values ``[lanes, 8]`` in float32 of the words at ``row`` and ``column``, and which words are there."""
    inside = (row < height) & (column < span)
    number = (row * span + column).to(tl.uint32)
    word = tl.load(packed.to(tl.pointer_type(tl.int32)) + number, mask=inside, other=0)
    block = number // (BLOCKSIZE // 8)
    magnitude = _magnitude(absmax, nested_absmax, nested_code, offset, block, inside, NESTED, GROUP)
    places = tl.arange(0, 8)
    # Bytes lie from the word's low end up, and in each the high half comes first.
    level = (word[:, None] >> (4 * (places ^ 1))[None, :]) & 15
    levels = tl.load(code + tl.arange(0, 16))
    level = tl.reshape(tl.gather(levels, tl.reshape(level, (level.numel,)), 0), level.shape)
    return level * magnitude[:, None], inside


@jit
def wide_rows(  # type: ignore[no-untyped-def]
    out, packed, absmax, nested_absmax, nested_code, offset, code, factors, first, chunk, height, span, units,
    STEP: tl.constexpr, NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr,
    WORDS: tl.constexpr, ROWS: tl.constexpr, SCALED: tl.constexpr = False,
):  # fmt: skip
    """Writes ROWS rows of WORDS words. A row has ``span`` words of eight values; ``out``'s row stride is ``units``.
    SCALED: each row times its factor, before anything is rounded.

    Words are numbered in 32 bits over the whole weight, which makes addresses cheap. ``span`` must not be specialised:
    Triton would widen the loads and exchange values between threads.
    """
    lane = tl.arange(0, ROWS * WORDS)
    row, column = first + lane // WORDS, chunk * WORDS + lane % WORDS
    values, inside = digits(
        packed, absmax, nested_absmax, nested_code, offset, code, row, column, height, span, NESTED, GROUP, BLOCKSIZE
    )
    places = tl.arange(0, 8)
    start = (row * units + column).to(tl.int64) * 8
    if SCALED:
        values = values * tl.load(factors + row, mask=row < height, other=0.0)[:, None]
    elif STEP is not None:
        values = values.to(STEP)
    tl.store(out + start[:, None] + places[None, :], values, mask=inside[:, None])


@jit(varying=("height", "span", "units", "chunks"))
def _kernel(  # type: ignore[no-untyped-def]
    out, packed, absmax, nested_absmax, nested_code, offset, code, height, span, units, chunks,
    STEP: tl.constexpr, NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr,
    WORDS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    wide_rows(
        out, packed, absmax, nested_absmax, nested_code, offset, code, code, (program // chunks) * ROWS,
        program % chunks, height, span, units, STEP, NESTED, GROUP, BLOCKSIZE, WORDS, ROWS,
    )  # fmt: skip


def dequantize(weight: Nf4, out: torch.Tensor | None = None) -> torch.Tensor:
    """``W [O, D]``; see ``nf4_reference.dequantize``.

    Args:
        weight: on the device of ``out``.
        out: ``[O, D]``, rows may be strided; None: a new tensor of the weight's dtype.
    """
    if out is None:
        out = torch.empty(weight.shape, dtype=weight.dtype, device=weight.packed.device)
    if not rows_run(out) or not read_by_words(weight, out):
        return nf4_reference.dequantize(weight, out)
    (height, width), code = weight.shape, weight.code
    nested = [code if part is None else part for part in (weight.nested_absmax, weight.nested_code, weight.offset)]
    chunks = -(-width // (WORDS * WORD))
    launch(
        _kernel, (chunks * -(-height // ROWS),), out, weight.packed, weight.absmax, *nested, code,
        height, width // WORD, out.stride(0) // WORD, chunks, STEP=rounding(weight.dtype, out.dtype),
        NESTED=weight.offset is not None, GROUP=weight.nested_blocksize, BLOCKSIZE=weight.blocksize,
        WORDS=WORDS, ROWS=ROWS, num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return out


def read_by_words(weight: Nf4, out: torch.Tensor) -> bool:
    """Whether rows of W and of ``out`` begin on whole words, and 32 bits can count the words."""
    whole = weight.shape[1] % WORD == 0 and out.stride(0) % WORD == 0 and weight.packed.data_ptr() % 4 == 0
    return whole and out.shape[0] * out.stride(0) < 1 << 34


def rounding(weight: torch.dtype, out: torch.dtype) -> object:
    """The dtype to round values to before they are converted to ``out``'s; None: they are the same."""
    names = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
    return None if weight == out else names[weight]
