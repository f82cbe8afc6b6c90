"""A stack's tensors as kernels read them: a table on the card with ``FIELDS`` integers for each projection.

    packed  absmax  nested_absmax  nested_code  offset  code  A  B      addresses; 0 where there is none
    scale                                                               float32, its bits
    height  row  rank  r                                                rows of W, the first of them, ranks before, rank

A kernel finds its projection by its program's number (``part_of``), so that a stack is one launch with few arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from core.kernels.dispatch import jit, tl, use_triton
from core.kernels.weights import nf4, nf4_stack
from core.kernels.weights.nf4_reference import Nf4
from core.kernels.weights.nf4_stack import addresses, bits_of, field

FIELDS = 13
HIGH = 16
"""What heights of NF4 weights are multiples of."""


class Part(nf4_stack.Part, Protocol):
    """A projection of the stack: ``core.kernels.lora.Projection``."""

    @property
    def shape(self) -> tuple[int, int]:
        """O and D."""


@dataclass(frozen=True)
class Table:
    """``numbers`` is None where adapters are not read as they lie; ``like`` is the first weight where all are NF4 of
    one kind."""

    adapters: tuple[int, ...]
    """Addresses of every A and B, which may be moved; the weights' tensors stay."""
    numbers: torch.Tensor | None
    like: Nf4 | None
    heights: tuple[int, ...]


@jit
def part_of(table, program, TALL: tl.constexpr, PARTS: tl.constexpr, FIELDS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The projection's place in the table, and the program's number in it, where each has a program for TALL rows."""
    mine, start, before = table, 0, 0
    for part in tl.static_range(1, PARTS):
        before += tl.cdiv(field(table, (part - 1) * FIELDS + 9), TALL)
        mine = tl.where(program >= before, table + part * FIELDS, mine)
        start = tl.where(program >= before, before, start)
    return mine, program - start


def table_of(parts: Sequence[Part], device: torch.device) -> Table:
    """The table of a stack on a card (or in the interpreter)."""
    pairs = [tensor for part in parts for tensor in (part.a, part.b) if tensor is not None]
    plain = all(tensor.dtype == torch.float32 and tensor.is_contiguous() for tensor in pairs)
    weights = [part.held for part in parts if isinstance(part.held, Nf4)]
    like = weights[0] if len(weights) == len(parts) and _alike(weights, device) else None
    heights, told = tuple(part.shape[0] for part in parts), addresses(parts)
    if not plain or not use_triton(torch.empty(0, device=device)):
        return Table(told, None, None, heights)
    numbers, row, rank = [], 0, 0
    for part in parts:
        held, r = part.held, 0 if part.b is None else part.b.shape[1]
        of_w = (
            (held.packed, held.absmax, held.nested_absmax, held.nested_code, held.offset, held.code)
            if isinstance(held, Nf4)
            else (None,) * 6
        )
        places = [0 if tensor is None else tensor.data_ptr() for tensor in (*of_w, part.a, part.b)]
        numbers.append([*places, bits_of(part.scale), part.shape[0], row, rank, r])
        row, rank = row + part.shape[0], rank + r
    table = torch.tensor(numbers, dtype=torch.int64, pin_memory=device.type == "cuda")  # the copy is asynchronous
    return Table(told, table.to(device, non_blocking=True), like, heights)


def _alike(weights: Sequence[Nf4], device: torch.device) -> bool:
    """Whether a kernel compiled for the first fits all: words of eight values, counted in 32 bits, and wide stores."""
    kinds = {(w.shape[1], w.blocksize, w.nested_blocksize, w.offset is None) for w in weights}
    words = all(w.shape[1] % nf4.WORD == 0 and w.shape[0] % HIGH == 0 and w.packed.data_ptr() % 4 == 0 for w in weights)
    small = sum(w.shape[0] for w in weights) * weights[0].shape[1] < 1 << 34
    return len(kinds) == 1 and words and small and all(w.packed.device == device for w in weights)
