"""Drawn NF4 weights and bordered matrices, for the CPU's and the card's tests of ``core.kernels.weights.nf4``."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit

from core.kernels.lora import Projection, Stack
from core.kernels.weights.forms import HELD_FORMS
from core.kernels.weights.nf4 import dequantize
from core.kernels.weights.nf4_reference import Nf4
from core.kernels.weights.nf4_stack import Table, border_all

BLOCKSIZES = (64, 128, 256, 512, 1024, 2048, 4096)


def shapes(first: list[tuple[int, int]], count: int, height: int, width: int) -> list[tuple[int, int]]:
    """``first`` and drawn ones: widths of whole blocks, of whole words, and any."""
    drawer = random.Random(3)
    widths = [lambda: 64 * drawer.randint(1, width // 64), lambda: 8 * drawer.randint(1, width // 8),
              lambda: drawer.randint(1, width)]  # fmt: skip
    return [*first, *((drawer.randint(1, height), drawer.choice(widths)()) for _ in range(count))]


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
    """Projections that share their input, in NF4 and as they are, and their bordered matrix by ``cat``."""

    stack: Stack
    plain: Stack
    wanted: torch.Tensor
    """NaN in its corner."""

    def empty(self) -> torch.Tensor:
        """The bordered matrix before anything is written: NaN."""
        return torch.full_like(self.wanted, float("nan"))


def draw_stack(heights: list[int], width: int, ranks: list[int], dtype: torch.dtype, device: str = "cpu") -> Stacked:
    """NF4 projections of these heights and ranks, A and B in float32, each with a scale of its own."""
    drawn = [draw((height, width), dtype, device=device) for height in heights]
    nf4, plain = list[Projection](), list[Projection]()
    for number, (one, rank) in enumerate(zip(drawn, ranks, strict=True)):
        height, scale = one.weight.shape[0], 0.7 + 0.3 * number
        pair = (torch.randn(rank, width, device=device), torch.randn(height, rank, device=device))
        a, b = pair if rank else (None, None)
        nf4.append(Projection(one.weight, None, a, b, scale, one.weight.shape, HELD_FORMS["nf4"]))
        plain.append(Projection(lambda dense=one.dense: dense, None, a, b, scale, one.weight.shape))  # type: ignore[misc]
    stack = Stack(tuple(nf4))
    return Stacked(stack, Stack(tuple(plain)), assembled(stack, [one.dense for one in drawn], dtype))


def assembled(stack: Stack, dense: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """M by ``block_diag`` and ``cat``, with NaN in its corner."""
    device, width = dense[0].device, stack.width
    scaled = [torch.zeros(p.shape[0], 0, device=device) if p.b is None else p.b * p.scale for p in stack.parts]
    padding = stack.rank - sum(part.rank for part in stack.parts)
    beside = torch.nn.functional.pad(torch.block_diag(*scaled), (0, padding)).to(dtype)
    lows = [part.a for part in stack.parts if part.a is not None]
    below = torch.cat([*lows, torch.zeros(padding, width, device=device)]).to(dtype)
    corner = torch.full((below.shape[0], beside.shape[1]), float("nan"), dtype=dtype, device=device)
    upper = torch.cat([torch.cat(dense).to(dtype), beside], dim=1)
    return torch.cat([upper, torch.cat([below, corner], dim=1)])


def same_bits(actual: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Equal bit for bit, but for the sign of zero; NaN where NaN is wanted and nowhere else."""
    if actual.shape != wanted.shape or actual.dtype != wanted.dtype:
        return False
    return bool(torch.equal(actual.isnan(), wanted.isnan()) and torch.equal(actual.nan_to_num(), wanted.nan_to_num()))


def check_dequantised(of: list[tuple[int, int]], dtype: torch.dtype, nested: bool, device: str = "cpu") -> None:
    """Weights of these shapes, whole and into rows that lie apart, are bitsandbytes' bit for bit."""
    torch.manual_seed(1)
    for number, shape in enumerate(of):
        blocksize = BLOCKSIZES[number % len(BLOCKSIZES)] if number % 2 else 64
        drawn = draw(shape, dtype, blocksize, nested, device)
        assert drawn.dense.abs().max() > 0
        assert same_bits(dequantize(drawn.weight), drawn.dense), (shape, blocksize)
        room = torch.full((shape[0], shape[1] + 24), 7.0, dtype=dtype, device=device)
        view = room[:, 8 : 8 + shape[1]]
        assert dequantize(drawn.weight, view) is view
        assert same_bits(view.contiguous(), drawn.dense), (shape, blocksize)
        assert (room[:, :8] == 7).all()
        assert (room[:, 8 + shape[1] :] == 7).all()


def check_stack(stack: Any, dtype: torch.dtype, device: str = "cpu", kernels: bool = True) -> None:
    """In one launch where kernels run and rows are whole words, or not at all; part by part in any form."""
    torch.manual_seed(2)
    drawn, kept = draw_stack(*stack, dtype, device=device), list[Table]()
    at_once = drawn.empty()
    written = border_all(drawn.stack.parts, at_once, kept)
    assert written == (kernels and stack[1] % 8 == 0)
    assert same_bits(at_once, drawn.wanted) if written else at_once.isnan().all()
    factors = 0.5 + torch.rand(drawn.stack.rows, device=device)
    for one in (drawn.stack, drawn.plain):
        by_parts = drawn.empty()
        one.write_by_parts(by_parts)
        assert same_bits(by_parts, drawn.wanted)
        one.write_by_parts(by_parts, factors)
        check_scaled(drawn, by_parts, factors)
    if border_all(drawn.stack.parts, at_once, kept, factors):
        check_scaled(drawn, at_once, factors)


def check_scaled(drawn: Stacked, found: torch.Tensor, factors: torch.Tensor) -> None:
    """Rows of ``[W, sB]`` times their factors (DoRA), to the rounding of weight and product; the others as they are."""
    rows, eps = drawn.stack.rows, torch.finfo(found.dtype).eps
    wanted = drawn.wanted[:rows].double() * factors[:, None].double()
    torch.testing.assert_close(found[:rows].double(), wanted, rtol=1.1 * eps, atol=1e-7)
    assert same_bits(found[rows:], drawn.wanted[rows:])
