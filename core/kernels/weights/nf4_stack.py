"""Writes the bordered matrix of a stack of NF4 projections in one kernel launch.

    M = [[ W , s·B ],        W [ΣO, D] stacked, s·B [ΣO, ΣR] block-diagonal,
         [ A ,  -  ]]        A [ΣR, D] stacked; the corner is never read

so that ``[x, x A'] [W, s·B]'`` and ``[dy, dy s·B] [W; A]`` are one matrix product each. With DoRA each row of
``[W, s·B]`` is multiplied by a factor (``magnitudes``). A table on the card describes the tensors, with ``FIELDS``
integers for each projection::

    packed  absmax  nested_absmax  nested_code  offset  code  A  B      addresses
    scale                                                               float32, its bits
    first  weights  besides                                             programs before it, for W, beside W
    height  row  rank  r  low                                           of M: rows of W, the first of them, ranks
                                                                        before, its rank, the first row under W

A program finds its row of the table by its number. The host then pays for one launch a stack with six arguments instead
of twenty: with short micro-batches, launches limit the speed of a step.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from core.kernels.dispatch import block_of, jit, launch, rows_run, tl
from core.kernels.weights import nf4
from core.kernels.weights.nf4 import read_by_words, rounding, wide_rows
from core.kernels.weights.nf4_reference import Nf4

FIELDS = 17


class Part(Protocol):
    """A projection of the stack: ``core.kernels.lora.Projection``."""

    @property
    def held(self) -> Any:
        """Its weight; unless all are NF4, the stack is written part by part."""

    @property
    def a(self) -> torch.Tensor | None:
        """``[R, D]``."""

    @property
    def b(self) -> torch.Tensor | None:
        """``[O, R]``."""

    @property
    def scale(self) -> float:
        """B's factor, float32."""


@dataclass(frozen=True)
class Table:
    """The table of a stack; ``numbers`` is None where the kernel cannot write it."""

    adapters: tuple[int, ...]
    """Addresses of every A and B, which may be moved; the weights' tensors stay."""
    numbers: torch.Tensor | None
    grid: int = 0
    chunks: int = 0
    side: int = 0
    tall: int = 0


@jit
def beside(  # type: ignore[no-untyped-def]
    out, b, scale, factors, program, height, stride, width, rank, r, edge,
    SIDE: tl.constexpr, TALL: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """The columns right of W: zero but for ``scale · B``, each row times its factor."""
    row, column = program * TALL + tl.arange(0, TALL), tl.arange(0, SIDE)
    mine = (column >= rank) & (column < rank + r)
    inside = (row < height)[:, None] & (column < edge)[None, :]
    start = row.to(tl.int64)[:, None]
    values = tl.load(b + start * r + (column - rank)[None, :], mask=inside & mine[None, :], other=0.0)
    values = values.to(tl.float32) * scale
    if SCALED:
        values = values * tl.load(factors + row, mask=row < height, other=0.0)[:, None]
    tl.store(out + start * stride + width + column[None, :], values, mask=inside)


@jit
def below(out, a, program, stride, width, chunks, r, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The rows under W: A, and zeros under it."""
    row = (program // chunks).to(tl.int64)
    columns = (program % chunks) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(a + row * width + columns, mask=inside & (row < r), other=0.0)
    tl.store(out + row * stride + columns, values, mask=inside)


@jit
def field(table, number):  # type: ignore[no-untyped-def]
    """A number of the table that is no address."""
    return tl.load(table + number).to(tl.int32)


@jit
def tensors_of(mine, NESTED: tl.constexpr):  # type: ignore[no-untyped-def]
    """The six tensors of a projection's weight, in the order of ``core.kernels.weights.nf4.digits``."""
    packed = tl.load(mine).to(tl.pointer_type(tl.uint8))
    absmax = tl.load(mine + 1).to(tl.pointer_type(tl.uint8 if NESTED else tl.float32))
    nested_absmax = tl.load(mine + 2).to(tl.pointer_type(tl.float32))
    nested_code = tl.load(mine + 3).to(tl.pointer_type(tl.float32))
    offset = tl.load(mine + 4).to(tl.pointer_type(tl.float32))
    code = tl.load(mine + 5).to(tl.pointer_type(tl.float32))
    return packed, absmax, nested_absmax, nested_code, offset, code


@jit(varying=("span", "units", "eighths", "chunks"))
def _kernel(  # type: ignore[no-untyped-def]
    out, table, factors, span, units, eighths, chunks,
    PARTS: tl.constexpr, FIELDS: tl.constexpr, SIDE: tl.constexpr, TALL: tl.constexpr, STEP: tl.constexpr,
    NESTED: tl.constexpr, GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr, WORDS: tl.constexpr, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    mine = table
    for part in tl.static_range(1, PARTS):
        mine = tl.where(program >= field(table, part * FIELDS + 9), table + part * FIELDS, mine)
    program -= field(mine, 9)
    weights, besides = field(mine, 10), field(mine, 11)
    height, row, rank, r = field(mine, 12), field(mine, 13), field(mine, 14), field(mine, 15)
    width, stride = span * 8, units * 8
    top = out + row.to(tl.int64) * stride
    if program < weights:
        packed, absmax, nested_absmax, nested_code, offset, code = tensors_of(mine, NESTED)
        wide_rows(
            top, packed, absmax, nested_absmax, nested_code, offset, code, factors + row, (program // chunks) * ROWS,
            program % chunks, height, span, units, STEP, NESTED, GROUP, BLOCKSIZE, WORDS, ROWS, SCALED,
        )  # fmt: skip
    elif program < weights + besides:
        b = tl.load(mine + 7).to(tl.pointer_type(tl.float32))
        scale = field(mine, 8).to(tl.float32, bitcast=True)
        beside(
            top, b, scale, factors + row, program - weights, height, stride, width, rank, r, eighths * 8,
            SIDE, TALL, SCALED,
        )  # fmt: skip
    else:
        a = tl.load(mine + 6).to(tl.pointer_type(tl.float32))
        low = out + tl.load(mine + 16) * stride
        below(low, a, program - weights - besides, stride, width, chunks, r, COLUMNS)


def addresses(parts: Sequence[Part]) -> tuple[int, ...]:
    """Of A and B of each part; 0 where there is none."""
    return tuple([0 if one is None else one.data_ptr() for part in parts for one in (part.a, part.b)])


def bits_of(scale: float) -> int:
    """A float32 as the table holds it."""
    number: int = struct.unpack("<i", struct.pack("<f", scale))[0]
    return number


def border_all(
    parts: Sequence[Part], out: torch.Tensor, kept: list[Table], factors: torch.Tensor | None = None
) -> bool:
    """Writes all of M but its corner; False: nothing was written.

    Columns beside W and outside of B's become zero, and so do the rows below the last A.

    Args:
        out: contiguous ``[ΣO + P, D + P]``, P the padded sum of ranks (rows begin on 16 bytes or on a cache line).
        kept: the stack's list that caches its table.
        factors: ``[ΣO]`` float32, of the rows of ``[W, s·B]``.
    """
    if not rows_run(out):
        return False
    adapters = addresses(parts)
    if not kept or kept[0].adapters != adapters:
        kept[:] = [_table(parts, out, adapters)]
    table, weight = kept[0], parts[0].held
    if table.numbers is None:
        return False
    width, columns = weight.shape[1], out.shape[1] - weight.shape[1]
    launch(
        _kernel, (table.grid,), out, table.numbers, weight.code if factors is None else factors, width // nf4.WORD,
        out.stride(0) // nf4.WORD, columns // 8, table.chunks, PARTS=len(parts), FIELDS=FIELDS, SIDE=table.side,
        TALL=table.tall, STEP=rounding(weight.dtype, out.dtype), NESTED=weight.offset is not None,
        GROUP=weight.nested_blocksize, BLOCKSIZE=weight.blocksize, WORDS=nf4.WORDS, COLUMNS=nf4.WORDS * nf4.WORD,
        ROWS=nf4.ROWS, SCALED=factors is not None, num_warps=nf4.WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return True


def _table(parts: Sequence[Part], out: torch.Tensor, adapters: tuple[int, ...]) -> Table:
    weights: list[Nf4] = [part.held for part in parts if isinstance(part.held, Nf4)]
    pairs = [tensor for part in parts for tensor in (part.a, part.b) if tensor is not None]
    plain = all(tensor.dtype == torch.float32 and tensor.is_contiguous() for tensor in pairs)  # read as they lie
    if len(weights) < len(parts) or not _alike(weights, out) or not plain:
        return Table(adapters, None)
    width, stride = weights[0].shape[1], out.stride(0)
    columns = stride - width
    chunks = -(-width // (nf4.WORDS * nf4.WORD))
    side = block_of(max(1, columns))  # one program beside W: a block that holds all columns, and as many rows as fit
    tall = max(1, nf4.WORDS * nf4.WORD // side)
    rows = sum(weight.shape[0] for weight in weights)
    numbers: list[list[int]] = []
    first = row = rank = 0
    for number, (weight, part) in enumerate(zip(weights, parts, strict=True), start=1):
        height, r = weight.shape[0], 0 if part.b is None else part.b.shape[1]
        for_w, for_b = chunks * -(-height // nf4.ROWS), -(-height // tall) if columns else 0
        under = columns - rank if number == len(parts) else r
        tensors = (weight.packed, weight.absmax, weight.nested_absmax, weight.nested_code, weight.offset, weight.code,
                   part.a, part.b)  # fmt: skip
        places = (first, for_w, for_b, height, row, rank, r, rows + rank)
        numbers.append(
            [*(0 if tensor is None else tensor.data_ptr() for tensor in tensors), bits_of(part.scale), *places]
        )
        first, row, rank = first + for_w + for_b + under * chunks, row + height, rank + r
    # Pinned, so that the copy is asynchronous.
    table = torch.tensor(numbers, dtype=torch.int64, pin_memory=out.device.type == "cuda")
    return Table(adapters, table.to(out.device, non_blocking=True), first, chunks, side, tall)


def _alike(weights: Sequence[Nf4], out: torch.Tensor) -> bool:
    """Whether a kernel compiled for the first weight fits all of them and ``out``."""
    kinds = {(w.shape[1], w.dtype, w.blocksize, w.nested_blocksize, w.offset is None) for w in weights}
    here = all(w.packed.device == out.device and read_by_words(w, out) for w in weights)
    return len(kinds) == 1 and here and out.stride(0) == out.shape[1]
