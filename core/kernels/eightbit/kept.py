"""A kept layer's ``[gate | up]`` for its backward pass in one byte a value, where its products are in eight bits.

A row's halves are cut into blocks of ``BLOCK`` columns, each with its own scale in float32::

    scale = max |x| / 127          q = round(x / scale), ties to even

Only gradients see the rounding (gate's slope, up, and t of the down projection's adapter): the forward pass goes on
with the 16-bit values. A block with an infinity or NaN in it gives NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.kernels.dispatch import jit, tl
from core.kernels.eightbit import reference
from core.kernels.eightbit.formats import FORMATS
from core.kernels.eightbit.rows import factors_of, most_of, to_eight

BLOCK = 128
"""Columns of one scale."""
INT8 = FORMATS["int8"]


@dataclass(frozen=True)
class Kept:
    """``values`` int8 ``[T, 2I]``, ``scales`` float32 ``[T, 2 ⌈I / BLOCK⌉]``."""

    values: torch.Tensor
    scales: torch.Tensor

    @staticmethod
    def room(rows: torch.Tensor) -> Kept:
        """Empty, for ``[gate | up]`` ``[T, 2I]``."""
        (tokens, width), device = rows.shape, rows.device
        values = torch.empty(tokens, width, dtype=torch.int8, device=device)
        return Kept(values, torch.empty(tokens, 2 * -(-width // 2 // BLOCK), dtype=torch.float32, device=device))

    def fill(self, rows: torch.Tensor) -> None:
        """In plain torch: the definition."""
        for values, scales, half in zip(*(one.chunk(2, 1) for one in (self.values, self.scales, rows)), strict=True):
            made = reference.quantise_rows(_blocks(half).flatten(0, 1), INT8)
            values.copy_(made.values.view(len(rows), -1)[:, : half.shape[1]])
            scales.copy_(made.scales.view(len(rows), -1))

    def wide(self) -> torch.Tensor:
        """What they stand for, float32 ``[T, 2I]``."""
        halves = zip(self.values.chunk(2, 1), self.scales.chunk(2, 1), strict=True)
        made = [(_blocks(half.float()) * scales[:, :, None]).flatten(1)[:, : half.shape[1]] for half, scales in halves]
        return torch.cat(made, 1)


def _blocks(half: torch.Tensor) -> torch.Tensor:
    """``[T, ⌈I / BLOCK⌉, BLOCK]`` of ``[T, I]``, zeros behind its end."""
    return torch.nn.functional.pad(half, (0, -half.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))


@jit
def _blocked(x, SIZE: tl.constexpr, BLOCK: tl.constexpr, TINY: tl.constexpr):  # type: ignore[no-untyped-def]
    """``(8-bit values [SIZE / BLOCK, BLOCK], their scales)`` of SIZE values in float32."""
    x = tl.reshape(x, (SIZE // BLOCK, BLOCK))
    scale, inverse = factors_of(tl.max(most_of(x), axis=1), 127.0, TINY)
    return to_eight(x * inverse[:, None], tl.int8, True, False), scale


@jit
def _there(inside, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    return tl.max(tl.reshape(inside.to(tl.int32), (SIZE // BLOCK, BLOCK)), axis=1) > 0


@jit
def keep(x, values, scales, column, inside, SIZE: tl.constexpr, BLOCK: tl.constexpr, TINY: tl.constexpr):  # type: ignore[no-untyped-def]
    """Stores a program's SIZE values ``x`` in float32; ``column`` is its first, a multiple of BLOCK."""
    made, scale = _blocked(x, SIZE, BLOCK, TINY)
    tl.store(values + column + tl.arange(0, SIZE), tl.reshape(made, (SIZE,)), mask=inside)
    number = column // BLOCK + tl.arange(0, SIZE // BLOCK)
    tl.store(scales + number, scale, mask=_there(inside, SIZE, BLOCK))


@jit
def restored(values, scales, column, inside, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The values of ``keep`` in float32."""
    number = column // BLOCK + tl.arange(0, SIZE // BLOCK)
    scale = tl.load(scales + number, mask=_there(inside, SIZE, BLOCK), other=0.0)
    x = tl.load(values + column + tl.arange(0, SIZE), mask=inside, other=0).to(tl.float32)
    return tl.reshape(tl.reshape(x, (SIZE // BLOCK, BLOCK)) * scale[:, None], (SIZE,))


@jit
def as_kept(x, SIZE: tl.constexpr, BLOCK: tl.constexpr, TINY: tl.constexpr):  # type: ignore[no-untyped-def]
    """``x`` as ``restored`` would give it."""
    made, scale = _blocked(x, SIZE, BLOCK, TINY)
    return tl.reshape(made.to(tl.float32) * scale[:, None], (SIZE,))
