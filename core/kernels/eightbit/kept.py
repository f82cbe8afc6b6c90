"""A kept layer's ``[gate | up]`` for its backward pass in one byte a value, where its products are in eight bits.

A row's halves are cut into blocks of ``BLOCK`` columns, each with its own scale in float32::

    scale = max |x| · (1 / 127)          q = round(x · (127 / max |x|)), ties to even

Only gradients see the rounding (gate's slope, up, and t of the down projection's adapter): the forward pass goes on
with the 16-bit values. A block with an infinity or NaN in it gives NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.kernels.dispatch import jit, tl
from core.kernels.eightbit import reference
from core.kernels.eightbit.formats import FORMATS
from core.kernels.eightbit.rows import factors_of, size_of, to_eight

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
def columns_of(first, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Columns ``[SIZE / BLOCK, BLOCK]`` of a program that begins at ``first``, a multiple of BLOCK."""
    return first + tl.arange(0, SIZE // BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]


@jit
def _blocked(x, TINY: tl.constexpr):  # type: ignore[no-untyped-def]
    """``(8-bit values, a scale a row)`` of ``x`` in float32."""
    scale, inverse = factors_of(tl.max(size_of(x), axis=1), 127.0, TINY)
    return to_eight(x * inverse[:, None], tl.int8, True, False), scale


@jit
def _float_of(whole):  # type: ignore[no-untyped-def]
    """int8 to float32 by what 1.5 · 2^23 has in its lowest bits: a conversion takes four times as long as a sum."""
    return (whole.to(tl.int32) + 0x4B400000).to(tl.float32, bitcast=True) - 12582912.0


@jit
def keep(x, values, scales, first, width, SIZE: tl.constexpr, BLOCK: tl.constexpr, TINY: tl.constexpr):  # type: ignore[no-untyped-def]
    """Stores a row's SIZE values ``x`` in float32, at ``columns_of(first)``."""
    made, scale = _blocked(x, TINY)
    columns = columns_of(first, SIZE, BLOCK)
    tl.store(values + columns, made, mask=columns < width)
    number = tl.arange(0, SIZE // BLOCK)
    tl.store(scales + first // BLOCK + number, scale, mask=first + number * BLOCK < width)


@jit
def restored(values, scales, first, width, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The values of ``keep`` in float32."""
    columns, number = columns_of(first, SIZE, BLOCK), tl.arange(0, SIZE // BLOCK)
    scale = tl.load(scales + first // BLOCK + number, mask=first + number * BLOCK < width, other=0.0)
    return _float_of(tl.load(values + columns, mask=columns < width, other=0)) * scale[:, None]


@jit
def as_kept(x, TINY: tl.constexpr):  # type: ignore[no-untyped-def]
    """``x`` as ``restored`` would give it."""
    made, scale = _blocked(x, TINY)
    return _float_of(made) * scale[:, None]
