"""Drawn rows for the gate with its low products, in buffers full of NaN. Shared by CPU and GPU tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from kernel_cases import assert_rule

from core.kernels import gate_lora, reference

__all__ = ["Shape", "check_gate_low", "deterministic", "same_gate"]


@dataclass(frozen=True)
class Shape:
    """Tokens T, width I, ranks R and Rg; ``pad`` foreign columns behind every row, ``before`` in front of it."""

    tokens: int
    width: int
    rank: int
    gate_rank: int
    pad: int = 0
    before: int = 0
    kind: str = "silu"


def _laid(values: torch.Tensor, shape: Shape) -> torch.Tensor:
    """A copy whose rows lie between NaN."""
    height, width = values.shape
    room = values.new_full((height, shape.before + width + shape.pad), torch.nan)
    view = room[:, shape.before : shape.before + width]
    view.copy_(values)
    return view


def _untouched(view: torch.Tensor, shape: Shape) -> None:
    room = view._base
    assert room is not None
    assert room[:, : shape.before].isnan().all()
    assert room[:, shape.before + view.shape[1] :].isnan().all()


def _draw(shape: Shape, seed: int) -> list[torch.Tensor]:
    """``[g | u]``, dt, A and sB in float32; the products' results are of the size of their factors."""
    g = torch.Generator().manual_seed(seed)
    tokens, width = shape.tokens, shape.width
    rows = torch.randn(tokens, 2 * width, generator=g) * 1.5
    a = torch.randn(shape.rank, width, generator=g) * width**-0.5
    sb = torch.randn(2 * width, shape.gate_rank, generator=g) * width**-0.5
    return [rows, torch.randn(tokens, width, generator=g), a, sb]


def _results(where: Any, shape: Shape, drawn: list[torch.Tensor], laid: bool) -> list[torch.Tensor]:
    """t, low; then t again, dg, du, dlow and low of the backward pass. Results lie where NaN was."""
    lay: Callable[[torch.Tensor], torch.Tensor] = (lambda x: _laid(x, shape)) if laid else torch.clone
    rows, dt, a, sb = drawn
    width = shape.width
    gate_up, a, sb = lay(rows), lay(a), lay(sb)
    out = lay(rows.new_full((shape.tokens, width + shape.rank), torch.nan))
    assert where.gate_low(gate_up, shape.kind, a, out) is out
    t, both = lay(dt), lay(torch.cat((rows, rows.new_full((shape.tokens, shape.gate_rank), torch.nan)), dim=1))
    low = where.gate_low_backward_(t, both, shape.kind, a, sb)
    if laid:
        for view in (gate_up, a, sb, out, t, both):
            _untouched(view, shape)
        assert torch.equal(gate_up, rows)
    return [out[:, :width], out[:, width:], t, *both.split([width, width, shape.gate_rank], dim=1), low]


NAMES = ("t", "low", "t again", "dg", "du", "dlow", "low again")


def check_gate_low(shape: Shape, dtype: torch.dtype, device: str, seed: int = 0) -> None:
    """Asserts the rule for each result; a small case is drawn several times, and its errors lie together."""
    times = max(1, min(16, 8192 // max(1, shape.tokens * shape.width)))
    seen: list[list[tuple[torch.Tensor, ...]]] = []
    for number in range(times):
        drawn = [value.to(device, dtype) for value in _draw(shape, 16 * seed + number)]
        truth = _results(reference, shape, [value.double() for value in drawn], laid=False)
        plain = _results(reference, shape, drawn, laid=False)
        ours = _results(gate_lora, shape, drawn, laid=True)
        seen.append(list(zip(ours, plain, truth, strict=True)))
    for name, results in zip(NAMES, zip(*seen, strict=True), strict=True):
        fast, usual, wanted = (torch.cat(parts) for parts in zip(*results, strict=True))
        assert not wanted.numel() or wanted.any(), name
        assert_rule(f"{shape} {dtype} {name}", fast, usual, wanted, dtype)


def deterministic(shape: Shape, dtype: torch.dtype, device: str) -> None:
    """Asserts that a second pass gives the same bits."""
    drawn = [value.to(device, dtype) for value in _draw(shape, 1)]
    first, second = (_results(gate_lora, shape, drawn, laid=False) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def same_gate(shape: Shape, dtype: torch.dtype, device: str) -> None:
    """Asserts that recomputed t has the forward pass's bits, and that both passes take the same low of it."""
    drawn = [value.to(device, dtype) for value in _draw(shape, 2)]
    t, low, again, *_, low_again = _results(gate_lora, shape, drawn, laid=False)
    assert torch.equal(t, again)
    torch.testing.assert_close(low, low_again)
