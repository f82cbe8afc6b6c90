"""A stack's adapters beside its 8-bit matrices, in 16 bits and in one launch: sB ``[O, R]``, A ``[R, D]``."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.kernels.dispatch import block_of, jit, launch, rows_run, tl
from core.kernels.eightbit.table import FIELDS, Part, Table, part_of
from core.kernels.weights.nf4_stack import below, beside, field

VALUES = 1024
"""Of a program."""


@jit(varying=("besides", "chunks"))
def _kernel(  # type: ignore[no-untyped-def]
    right, under, table, ranks, width, besides, chunks,
    PARTS: tl.constexpr, FIELDS: tl.constexpr, SIDE: tl.constexpr, TALL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    if program < besides:
        mine, program = part_of(table, program, TALL, PARTS, FIELDS)
        scale, height, row = field(mine, 8).to(tl.float32, bitcast=True), field(mine, 9), field(mine, 10)
        b = tl.load(mine + 7).to(tl.pointer_type(tl.float32))
        out = right + row.to(tl.int64) * ranks
        beside(out, b, scale, b, program, height, ranks, 0, field(mine, 11), field(mine, 12), ranks, SIDE, TALL, False)
    else:
        program -= besides
        mine = table
        for part in tl.static_range(1, PARTS):
            there = program // chunks >= field(table, part * FIELDS + 11)
            mine = tl.where(there, table + part * FIELDS, mine)
        rank = field(mine, 11)
        a = tl.load(mine + 6).to(tl.pointer_type(tl.float32))
        out = under + rank.to(tl.int64) * width
        below(out, a, program - rank * chunks, width, width, chunks, field(mine, 12), BLOCK)


def write(parts: Sequence[Part], table: Table, right: torch.Tensor, under: torch.Tensor) -> None:
    """sB, block-diagonal with each adapter's scale in it, into ``right [O, R]``, and A into ``under [R, D]``; zeros
    where no adapter is. R is the sum of ranks or more."""
    (ranks, width), numbers = under.shape, table.numbers
    if not ranks:
        return
    if numbers is None or not rows_run(right):
        _write(parts, right, under)
        return
    side = block_of(ranks)
    tall, block = max(1, VALUES // side), min(VALUES, block_of(width))
    besides, chunks = sum(-(-height // tall) for height in table.heights), -(-width // block)
    launch(
        _kernel, (besides + ranks * chunks,), right, under, numbers, ranks, width, besides, chunks,
        PARTS=len(parts), FIELDS=FIELDS, SIDE=side, TALL=tall, BLOCK=block, num_warps=4,
    )  # fmt: skip


def _write(parts: Sequence[Part], right: torch.Tensor, under: torch.Tensor) -> None:
    """In plain torch: the definition."""
    right.zero_(), under.zero_()
    row = first = 0
    with torch.no_grad():
        for part in parts:
            if part.a is not None and part.b is not None:
                last = first + len(part.a)
                torch.mul(part.b, part.scale, out=right[row : row + part.shape[0], first:last])
                under[first:last] = part.a
                first = last
            row += part.shape[0]
