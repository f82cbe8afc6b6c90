"""Drawn NF4 weights and bordered matrices, for the CPU's and the card's tests of ``core.kernels.weights.nf4``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit

from core.kernels.weights.nf4 import Nf4, Place
from core.kernels.weights.nf4_stack import Part

BLOCKSIZES = (64, 128, 256, 512, 1024, 2048, 4096)


@dataclass(frozen=True)
class Drawn:
    """An NF4 weight and what bitsandbytes makes of it."""

    weight: Nf4
    dense: torch.Tensor


def draw(
    shape: tuple[int, int], dtype: torch.dtype, blocksize: int = 64, nested: bool = True, device: str = "cpu"
) -> Drawn:
    """A random weight whose blocks differ in size, quantised by bitsandbytes.

    It is quantised flat: with rows that are no multiple of the block, bitsandbytes' own way for CPUs with AVX-512
    counts blocks by row.
    """
    flat = (torch.randn(shape, device=device) * torch.rand(shape[0], 1, device=device) * 0.1).to(dtype).reshape(-1)
    packed, state = quantize_4bit(flat, blocksize=blocksize, compress_statistics=nested, quant_type="nf4")
    # For odd counts on the CPU it would compile its own fallback anew for each shape.
    with torch.compiler.set_stance("force_eager"):
        dense = dequantize_4bit(packed, state).reshape(shape)
    return Drawn(nf4_of(packed, state, shape), dense)


def nf4_of(packed: torch.Tensor, state: Any, shape: tuple[int, int]) -> Nf4:
    """The tensors of bitsandbytes' quantisation state."""
    inner = state.state2
    nested = (inner.absmax, inner.code, inner.blocksize) if inner else (None, None, 1)
    return Nf4(packed, state.absmax, state.code, state.blocksize, *nested, state.offset, shape, state.dtype)


@dataclass(frozen=True)
class Stacked:
    """Projections that share their input, each with its adapter (None without) and scale."""

    weights: list[Any]  # Nf4 or tensors
    dense: list[torch.Tensor]
    adapters: list[tuple[torch.Tensor | None, torch.Tensor | None]]
    scales: list[float]


def draw_stack(heights: list[int], width: int, ranks: list[int], dtype: torch.dtype, device: str = "cpu") -> Stacked:
    """NF4 projections of these heights and ranks, A and B in float32."""
    drawn = [draw((height, width), dtype, device=device) for height in heights]
    adapters: list[tuple[torch.Tensor | None, torch.Tensor | None]] = []
    for height, rank in zip(heights, ranks, strict=True):
        pair = (torch.randn(rank, width, device=device), torch.randn(height, rank, device=device))
        adapters.append(pair if rank else (None, None))
    scales = [0.7 + 0.3 * number for number in range(len(heights))]
    return Stacked([d.weight for d in drawn], [d.dense for d in drawn], adapters, scales)


def bordered(border: Any, stack: Stacked, dtype: torch.dtype) -> torch.Tensor:
    """The bordered matrix as ``border`` writes it; what it leaves alone is NaN."""
    rows = _sizes(stack)[0]
    out = empty_border(stack, dtype)
    row = before = 0
    for number, (weight, (a, b)) in enumerate(zip(stack.weights, stack.adapters, strict=True)):
        last = number == len(stack.weights) - 1
        border(weight, a, b, stack.scales[number], Place(out, row, before, rows, last))
        row, before = row + weight.shape[0], before + (0 if a is None else a.shape[0])
    return out


def parts_of(stack: Stacked) -> list[Part]:
    """As ``border_all`` takes them."""
    return [(weight, *pair, scale) for weight, pair, scale in zip(
        stack.weights, stack.adapters, stack.scales, strict=True)]  # fmt: skip


def empty_border(stack: Stacked, dtype: torch.dtype) -> torch.Tensor:
    """The bordered matrix before anything is written: NaN."""
    rows, width, rank = _sizes(stack)
    padded = -(-rank // 8) * 8
    return torch.full((rows + padded, width + padded), float("nan"), dtype=dtype, device=stack.dense[0].device)


def assembled(stack: Stacked, dtype: torch.dtype) -> torch.Tensor:
    """The same matrix by ``block_diag`` and ``cat``, with NaN in its corner."""
    _, width, rank = _sizes(stack)
    padding = -rank % 8
    like = stack.dense[0]
    scaled = [
        torch.zeros(weight.shape[0], 0, device=like.device) if b is None else b * scale
        for weight, (_, b), scale in zip(stack.weights, stack.adapters, stack.scales, strict=True)
    ]
    beside = torch.nn.functional.pad(torch.block_diag(*scaled), (0, padding)).to(dtype)
    lows = [a for a, _ in stack.adapters if a is not None]
    below = torch.cat([*lows, torch.zeros(padding, width, device=like.device)]).to(dtype)
    corner = torch.full((below.shape[0], beside.shape[1]), float("nan"), dtype=dtype, device=like.device)
    upper = torch.cat([torch.cat(stack.dense).to(dtype), beside], dim=1)
    return torch.cat([upper, torch.cat([below, corner], dim=1)])


def _sizes(stack: Stacked) -> tuple[int, int, int]:
    rows = sum(weight.shape[0] for weight in stack.weights)
    return rows, stack.weights[0].shape[1], sum(0 if a is None else a.shape[0] for a, _ in stack.adapters)


def same_bits(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Equal bit for bit, but for the sign of zero; NaN where NaN is wanted and nowhere else."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    return bool(torch.equal(found.isnan(), wanted.isnan()) and torch.equal(found.nan_to_num(), wanted.nan_to_num()))
