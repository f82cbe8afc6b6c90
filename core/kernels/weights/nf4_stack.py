"""The bordered matrix of a whole stack of NF4 projections in one launch.

``core.kernels.weights.nf4.border`` writes one projection a launch, and is told with every launch where its tensors are.
Here that stands in a table on the card, a row of ``FIELDS`` integers a projection, made once::

    packed  absmax  nested_absmax  nested_code  offset  code  A  B      addresses
    scale                                                               float32, its bits
    first  weights  besides                                             programs before it, for W, beside W
    height  row  rank  r  low                                           of M: rows of W, the first of them, ranks
                                                                        before, its rank, the first row under W

A program finds its row by its number, and does what it does there. What a launch costs the host is then paid once for a
stack, and for six arguments instead of twenty: where passes are short, launching is what a step waits for.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from core.kernels.dispatch import jit, launch, rows_run, tl
from core.kernels.weights import nf4
from core.kernels.weights.nf4 import Nf4, below, beside, programs, rounding, sides, wide_rows

__all__ = ["Part", "Table", "border_all"]

FIELDS = 17
Part = tuple[Nf4 | None, torch.Tensor | None, torch.Tensor | None, float]
"""A projection: its weight (None where it is not NF4), A ``[R, D]``, B ``[O, R]``, and its scale."""


@dataclass(frozen=True)
class Table:
    """One stack's; ``numbers`` is None where a projection must be written by itself."""

    adapters: tuple[int, ...]
    """Addresses of every A and B: an adapter may be moved, its weight's tensors stay as they are."""
    numbers: torch.Tensor | None
    grid: int = 0
    chunks: int = 0
    side: int = 0
    tall: int = 0


@jit
def _field(table, number):  # type: ignore[no-untyped-def]
    return tl.load(table + number).to(tl.int32)


@jit(varying=("span", "units", "eighths", "chunks"))
def _kernel(  # type: ignore[no-untyped-def]
    out, table, span, units, eighths, chunks,
    PARTS: tl.constexpr, FIELDS: tl.constexpr, SIDE: tl.constexpr, TALL: tl.constexpr, STEP: tl.constexpr,
    GROUP: tl.constexpr, BLOCKSIZE: tl.constexpr, LOOKUP: tl.constexpr, WORDS: tl.constexpr, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    mine = table
    for part in tl.static_range(1, PARTS):
        mine = tl.where(program >= _field(table, part * FIELDS + 9), table + part * FIELDS, mine)
    program -= _field(mine, 9)
    weights, besides = _field(mine, 10), _field(mine, 11)
    height, row, rank, r = _field(mine, 12), _field(mine, 13), _field(mine, 14), _field(mine, 15)
    width, stride = span * 8, units * 8
    top = out + row.to(tl.int64) * stride
    if program < weights:
        packed = tl.load(mine).to(tl.pointer_type(tl.uint8))
        absmax = tl.load(mine + 1).to(tl.pointer_type(tl.uint8))
        nested_absmax = tl.load(mine + 2).to(tl.pointer_type(tl.float32))
        nested_code = tl.load(mine + 3).to(tl.pointer_type(tl.float32))
        offset = tl.load(mine + 4).to(tl.pointer_type(tl.float32))
        code = tl.load(mine + 5).to(tl.pointer_type(tl.float32))
        wide_rows(
            top, packed, absmax, nested_absmax, nested_code, offset, code, (program // chunks) * ROWS,
            program % chunks, height, span, units, 8, STEP, True, GROUP, BLOCKSIZE, LOOKUP, WORDS, ROWS,
        )  # fmt: skip
    elif program < weights + besides:
        b = tl.load(mine + 7).to(tl.pointer_type(tl.float32))
        scale = _field(mine, 8).to(tl.float32, bitcast=True)
        beside(top, b, scale, program - weights, height, stride, width, rank, r, eighths * 8, SIDE, TALL)
    else:
        a = tl.load(mine + 6).to(tl.pointer_type(tl.float32))
        low = out + tl.load(mine + 16) * stride
        below(low, a, program - weights - besides, stride, width, chunks, r, COLUMNS)


def border_all(parts: Sequence[Part], out: torch.Tensor, kept: list[Table]) -> bool:
    """Writes all of M, as ``nf4.border`` does for each part and the last of them; False: nothing was written.

    Args:
        out: ``[ΣO + P, D + P]`` as in ``nf4.Place``, its rows one after another.
        kept: the stack's own list, where its table waits for the next call.
    """
    if not rows_run(out):
        return False
    adapters = tuple([0 if tensor is None else tensor.data_ptr() for part in parts for tensor in part[1:3]])
    if not kept or kept[0].adapters != adapters:
        kept[:] = [_table(parts, out, adapters)]
    table, weight = kept[0], parts[0][0]
    if table.numbers is None or weight is None:
        return False
    width, columns = weight.shape[1], out.shape[1] - weight.shape[1]
    launch(
        _kernel, (table.grid,), out, table.numbers, width // nf4.WORD, out.stride(0) // nf4.WORD, columns // 8,
        table.chunks, PARTS=len(parts), FIELDS=FIELDS, SIDE=table.side, TALL=table.tall,
        STEP=rounding(weight.dtype, out.dtype), GROUP=weight.nested_blocksize, BLOCKSIZE=weight.blocksize,
        LOOKUP=nf4.LOOKUP, WORDS=nf4.WORDS, COLUMNS=nf4.WORDS * nf4.WORD, ROWS=nf4.ROWS, num_warps=nf4.WARPS,
        enable_fp_fusion=False,
    )  # fmt: skip
    return True


def _table(parts: Sequence[Part], out: torch.Tensor, adapters: tuple[int, ...]) -> Table:
    weights = [weight for weight, *_ in parts if weight is not None]
    if len(weights) < len(parts) or not _alike(weights, out) or not all(map(_whole, parts)):
        return Table(adapters, None)
    width, stride = weights[0].shape[1], out.stride(0)
    columns = stride - width
    chunks = -(-width // (nf4.WORDS * nf4.WORD))
    rows = sum(weight.shape[0] for weight in weights)
    numbers: list[list[int]] = []
    first = row = rank = 0
    for number, (weight, (_, a, b, scale)) in enumerate(zip(weights, parts, strict=True), start=1):
        height, r = weight.shape[0], 0 if b is None else b.shape[1]
        for_w, for_b = programs(height, chunks, columns)
        under = columns - rank if number == len(parts) else r
        places = [first, for_w, for_b, height, row, rank, r, rows + rank]
        numbers.append([*_addresses(weight, a, b), struct.unpack("<i", struct.pack("<f", scale))[0], *places])
        first, row, rank = first + for_w + for_b + under * chunks, row + height, rank + r
    return Table(adapters, _on(out.device, numbers), first, chunks, *sides(columns))


def _addresses(weight: Nf4, a: torch.Tensor | None, b: torch.Tensor | None) -> list[int]:
    tensors: list[Any] = [weight.packed, weight.absmax, weight.nested_absmax, weight.nested_code, weight.offset,
                          weight.code, a, b]  # fmt: skip
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]


def _on(device: torch.device, numbers: list[list[int]]) -> torch.Tensor:
    """The table there. From pinned memory, so that nothing waits for the card."""
    table = torch.tensor(numbers, dtype=torch.int64, pin_memory=device.type == "cuda")
    return table.to(device, non_blocking=True)


def _alike(weights: Sequence[Nf4], out: torch.Tensor) -> bool:
    """Whether one kernel, compiled for the first of them, reads them all by words and fits their M."""
    one = weights[0]
    same = all(
        (w.shape[1], w.dtype, w.blocksize, w.nested_blocksize)
        == (one.shape[1], one.dtype, one.blocksize, one.nested_blocksize)
        and w.offset is not None and w.packed.data_ptr() % 4 == 0 and w.packed.device == out.device
        for w in weights
    )  # fmt: skip
    by_words = one.shape[1] % nf4.WORD == 0 and out.stride(0) % nf4.WORD == 0
    return same and by_words and out.stride(0) == out.shape[1] and out.numel() < 1 << 34


def _whole(part: Part) -> bool:
    """Whether A and B are read as they lie: float32, row after row."""
    return all(tensor is None or (tensor.dtype == torch.float32 and tensor.is_contiguous()) for tensor in part[1:3])
