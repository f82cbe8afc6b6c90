"""The gate of an MLP with the adapters' low products taken in the same pass.

For rows ``[g | u]``, the down projection's A ``[R, I]`` and the gate's and up's scaled B ``sB [2I, Rg]``::

    forward    t = f(g) · u                                low  = t A'
    backward   t = f(g) · u,  dg = dt · u · f'(g),         low  = t A'
               du = dt · f(g)                              dlow = [dg | du] sB

By themselves the products read whole rows again, for a result of a few columns: forward I of 4I values a token,
backward 3I of 9I. Here they take the values that the gate holds in registers, rounded as they are stored, so that they
are the separate products up to the order of summation. f and f' are those of ``core.kernels.swiglu``.

A program takes a few tokens and one stretch of the columns. Where there are several stretches, their sums lie in a
float32 buffer ``[stretches, T, R + Rg]`` until a second kernel adds them up, always in the same order: a pass gives the
same bits whenever it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.kernels import reference
from core.kernels.dispatch import block_of, jit, launch, rows_run, tl
from core.kernels.swiglu import _activation, gate, gate_backward_

__all__ = ["Tiles", "gate_low", "gate_low_backward_"]

WORD = 8
"""Where sizes and strides are multiples of it they are told in such units: so loads are known to be of 16 bytes."""

WIDEST_RANK = 128
"""A wider product is one for the library."""

PROGRAMS = 1024
"""So many at least, where the columns give them: four or more for each multiprocessor of a large card."""


@dataclass(frozen=True)
class Tiles:
    """Tokens and columns of one step of a program, its warps, and how many steps are loaded ahead.

    A tile has at least eight values a thread: none is then held twice, and what is written in place is read before.
    """

    tokens: int
    columns: int
    warps: int
    stages: int


FORWARD, BACKWARD, SMALL = Tiles(32, 64, 4, 2), Tiles(32, 64, 4, 2), Tiles(32, 32, 4, 1)
"""Measured by ``tests/gpu/time_gate_lora.py``; the small one is for 32 bits and for ranks above 64."""

VARYING = (
    "tokens", "units", "t_row", "gate_up_row", "a_row", "sb_row", "low_row", "dlow_row", "rank", "gate_units", "both",
    "steps", "splits",
)  # fmt: skip


@jit
def _strip(a, number, columns, a_row, rank, width):  # type: ignore[no-untyped-def]
    """A's columns, ``[columns, R]``."""
    inside = (number < rank)[:, None] & (columns < width)[None, :]
    return tl.trans(tl.load(a + number.to(tl.int64)[:, None] * a_row + columns[None, :], mask=inside, other=0.0))


@jit
def _band(sb, columns, inside, number, sb_row, rank):  # type: ignore[no-untyped-def]
    """sB's rows, ``[columns, Rg]``."""
    inside = inside[:, None] & (number < rank)[None, :]
    return tl.load(sb + columns.to(tl.int64)[:, None] * sb_row + number[None, :], mask=inside, other=0.0)


@jit
def _keep(sums, at, row, tokens, number, rank, stride):  # type: ignore[no-untyped-def]
    """A program's sums where they belong: the result's rows, or the buffer's."""
    inside = (row < tokens)[:, None] & (number < rank)[None, :]
    tl.store(at + row[:, None] * stride + number[None, :], sums, mask=inside)


@jit(varying=VARYING)
def _forward(  # type: ignore[no-untyped-def]
    t, gate_up, a, low, tokens, units, t_row, gate_up_row, a_row, low_row, rank, steps,
    UNIT: tl.constexpr, GELU: tl.constexpr, RANK: tl.constexpr,
    TOKENS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    width = units * UNIT
    row = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    first, number = tl.program_id(1) * steps * COLUMNS, tl.arange(0, RANK)
    sums = tl.zeros((TOKENS, RANK), tl.float32)
    for step in tl.range(0, steps, num_stages=STAGES):
        columns = first + step * COLUMNS + tl.arange(0, COLUMNS)
        inside = (row < tokens)[:, None] & (columns < width)[None, :]
        left = gate_up + row[:, None] * (gate_up_row * UNIT) + columns[None, :]
        g = tl.load(left, mask=inside, other=0.0).to(tl.float32)
        u = tl.load(left + width, mask=inside, other=0.0).to(tl.float32)
        value, _slope = _activation(g, GELU)
        h = (value * u).to(t.dtype.element_ty)
        tl.store(t + row[:, None] * (t_row * UNIT) + columns[None, :], h, mask=inside)
        sums = tl.dot(h, _strip(a, number, columns, a_row * UNIT, rank, width), sums, input_precision="ieee")
    _keep(sums, low + tl.program_id(1).to(tl.int64) * tokens * low_row, row, tokens, number, rank, low_row)


@jit(varying=VARYING)
def _backward(  # type: ignore[no-untyped-def]
    t, gate_up, a, sb, low, dlow, tokens, units, t_row, gate_up_row, a_row, sb_row, low_row, dlow_row,
    rank, gate_units, steps,
    UNIT: tl.constexpr, GELU: tl.constexpr, RANK: tl.constexpr, GATE_RANK: tl.constexpr,
    TOKENS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    width, gate_rank = units * UNIT, gate_units * UNIT
    row = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    first, number, other = tl.program_id(1) * steps * COLUMNS, tl.arange(0, RANK), tl.arange(0, GATE_RANK)
    sums, dsums = tl.zeros((TOKENS, RANK), tl.float32), tl.zeros((TOKENS, GATE_RANK), tl.float32)
    for step in tl.range(0, steps, num_stages=STAGES):
        columns = first + step * COLUMNS + tl.arange(0, COLUMNS)
        within = columns < width
        inside = (row < tokens)[:, None] & within[None, :]
        left = gate_up + row[:, None] * (gate_up_row * UNIT) + columns[None, :]
        middle = t + row[:, None] * (t_row * UNIT) + columns[None, :]
        d = tl.load(middle, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(left, mask=inside, other=0.0).to(tl.float32)
        u = tl.load(left + width, mask=inside, other=0.0).to(tl.float32)
        value, slope = _activation(g, GELU)
        h = (value * u).to(t.dtype.element_ty)
        dg, du = (d * u * slope).to(t.dtype.element_ty), (d * value).to(t.dtype.element_ty)
        tl.store(middle, h, mask=inside)
        tl.store(left, dg, mask=inside)
        tl.store(left + width, du, mask=inside)
        sums = tl.dot(h, _strip(a, number, columns, a_row * UNIT, rank, width), sums, input_precision="ieee")
        upper = _band(sb, columns, within, other, sb_row * UNIT, gate_rank)
        dsums = tl.dot(dg, upper, dsums, input_precision="ieee")
        lower = _band(sb, columns + width, within, other, sb_row * UNIT, gate_rank)
        dsums = tl.dot(du, lower, dsums, input_precision="ieee")
    split = tl.program_id(1).to(tl.int64) * tokens
    _keep(sums, low + split * low_row, row, tokens, number, rank, low_row)
    _keep(dsums, dlow + split * dlow_row, row, tokens, other, gate_rank, dlow_row)


@jit(varying=VARYING)
def _sum(  # type: ignore[no-untyped-def]
    parts, low, dlow, tokens, splits, rank, both, low_row, dlow_row, TALL: tl.constexpr, SIDE: tl.constexpr
):  # fmt: skip
    """The stretches' sums ``[splits, T, both]`` added up: the first ``rank`` columns to low, the others to dlow."""
    row, column = tl.program_id(0).to(tl.int64) * TALL + tl.arange(0, TALL), tl.arange(0, SIDE)
    inside = (row < tokens)[:, None] & (column < both)[None, :]
    place = parts + row[:, None] * both + column[None, :]
    total = tl.zeros((TALL, SIDE), tl.float32)
    for _split in range(splits):
        total += tl.load(place, mask=inside, other=0.0)
        place += tokens.to(tl.int64) * both
    tl.store(low + row[:, None] * low_row + column[None, :], total, mask=inside & (column < rank)[None, :])
    beside = dlow + row[:, None] * dlow_row + (column - rank)[None, :]
    tl.store(beside, total, mask=inside & (column >= rank)[None, :])


def gate_low(gate_up: torch.Tensor, kind: str, a: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """``t = f(gate) · up`` and ``t a'``, side by side in ``out``; without autograd. See ``reference.gate_low``.

    Args:
        gate_up: ``[T, 2I or more]``, rows ``[gate | up]``. ``kind`` is ``silu`` or ``gelu_tanh``.
        a: ``[R, I]``; ``out``: ``[T, I + R]``. Rows of all may lie apart.
    """
    if not rows_run(gate_up, a, out) or not out.shape[0]:
        return reference.gate_low(gate_up, kind, a, out)
    rank, width = a.shape
    t, low = out[:, :width], out[:, width:]
    if not 0 < rank <= WIDEST_RANK:
        gate(gate_up[:, : 2 * width], kind, t)
        low.copy_(torch.mm(t, a.T))
        return out
    tiles = _tiles(FORWARD, t, rank)
    steps, splits = _stretches(t, tiles, 100 * rank // 3)
    parts = _parts(t, splits, rank)
    at = low if parts is None else parts
    unit = _unit((width,), t, gate_up, a)
    launch(
        _forward, (-(-t.shape[0] // tiles.tokens), splits),
        t, gate_up, a, at, t.shape[0], width // unit, t.stride(0) // unit, gate_up.stride(0) // unit,
        a.stride(0) // unit, at.stride(-2), rank, steps,
        UNIT=unit, GELU=kind == "gelu_tanh", RANK=max(16, block_of(rank)),
        TOKENS=tiles.tokens, COLUMNS=tiles.columns, STAGES=tiles.stages, num_warps=tiles.warps,
    )  # fmt: skip
    if parts is not None:
        _add_up(parts, low, low)
    return out


def gate_low_backward_(
    t: torch.Tensor, gate_up: torch.Tensor, kind: str, a: torch.Tensor, sb: torch.Tensor
) -> torch.Tensor:
    """In place, ``dlow = [dgate | dup] sb``; returns ``low = t a' [T, R]``. See ``reference.gate_low_backward_``.

    Args:
        t: ``[T, I]``, dt on entry, then ``f(gate) · up``.
        gate_up: ``[T, 2I + Rg]``: ``[gate | up | -]`` becomes ``[dgate | dup | dlow]``.
        a: ``[R, I]``; ``sb``: ``[2I, Rg]``. Rows of all may lie apart.
    """
    if not rows_run(t, gate_up, a, sb) or not t.shape[0]:
        return reference.gate_low_backward_(t, gate_up, kind, a, sb)
    (rank, width), (inner, gate_rank) = a.shape, sb.shape
    dlow = gate_up[:, inner:]
    if not (0 < rank <= WIDEST_RANK and 0 < gate_rank <= WIDEST_RANK):
        gate_backward_(t, gate_up[:, :inner], kind)
        dlow.copy_(torch.mm(gate_up[:, :inner], sb))
        return torch.mm(t, a.T)
    low = t.new_empty(t.shape[0], rank)
    tiles = _tiles(BACKWARD, t, max(rank, gate_rank))
    steps, splits = _stretches(t, tiles, 100 * (rank + gate_rank) // 6)
    parts = _parts(t, splits, rank + gate_rank)
    at, dat = (low, dlow) if parts is None else (parts, parts[..., rank:])
    unit = _unit((width, gate_rank), t, gate_up, a, sb)
    launch(
        _backward, (-(-t.shape[0] // tiles.tokens), splits),
        t, gate_up, a, sb, at, dat, t.shape[0], width // unit, t.stride(0) // unit, gate_up.stride(0) // unit,
        a.stride(0) // unit, sb.stride(0) // unit, at.stride(-2), dat.stride(-2), rank, gate_rank // unit, steps,
        UNIT=unit, GELU=kind == "gelu_tanh", RANK=max(16, block_of(rank)), GATE_RANK=max(16, block_of(gate_rank)),
        TOKENS=tiles.tokens, COLUMNS=tiles.columns, STAGES=tiles.stages, num_warps=tiles.warps,
    )  # fmt: skip
    if parts is not None:
        _add_up(parts, low, dlow)
    return low


def _tiles(usual: Tiles, t: torch.Tensor, rank: int) -> Tiles:
    return SMALL if t.element_size() > 2 or rank > 64 else usual


def _stretches(t: torch.Tensor, tiles: Tiles, least: int) -> tuple[int, int]:
    """Steps of one program and into how many stretches the columns go, none narrower than ``least``.

    That keeps what is written and read again of sums below a twenty-fifth of what the pass moves anyway.
    """
    tokens, width = t.shape
    tall, wide = -(-tokens // tiles.tokens), -(-width // tiles.columns)
    splits = max(1, min(-(-PROGRAMS // tall), wide, width // least))
    steps = -(-wide // splits)
    return steps, -(-wide // steps)


def _unit(sizes: tuple[int, ...], *rows: torch.Tensor) -> int:
    return WORD if all(size % WORD == 0 for size in (*sizes, *(tensor.stride(0) for tensor in rows))) else 1


def _parts(t: torch.Tensor, splits: int, ranks: int) -> torch.Tensor | None:
    """The buffer for sums of several stretches; one stretch writes its own where they belong."""
    return t.new_empty(splits, t.shape[0], ranks, dtype=torch.float32) if splits > 1 else None


def _add_up(parts: torch.Tensor, low: torch.Tensor, dlow: torch.Tensor) -> None:
    splits, tokens, both = parts.shape
    side = block_of(both)
    tall = max(1, 1024 // side)
    launch(
        _sum, (-(-tokens // tall),),
        parts, low, dlow, tokens, splits, low.shape[1], both, low.stride(0), dlow.stride(0),
        TALL=tall, SIDE=side, num_warps=4,
    )  # fmt: skip
