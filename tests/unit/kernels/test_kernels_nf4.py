"""NF4 dequantisation and the bordered matrix: bit for bit what bitsandbytes and plain assembly give.

Runs twice: with the references, and (started by ``test_kernels_triton``) as Triton code in Triton's interpreter.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
import torch
from nf4_cases import check_dequantised, check_stack, draw, draw_stack, same_bits, shapes

from core.kernels.lora import Projection, Stack
from core.kernels.weights import nf4
from core.kernels.weights.nf4 import dequantize
from core.kernels.weights.nf4_stack import Table, border_all

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# The interpreter cuts bfloat16 off instead of rounding it.
DTYPES = [torch.float32, torch.float16] if INTERPRETED else [torch.float32, torch.float16, torch.bfloat16]
SHAPES = shapes([(1, 3), (3, 64), (2, 1032), (5, 4104), (9, 1)], 4 if INTERPRETED else 20, 40, 1280)
STACKS = [
    ([20, 8, 5], 128, [8, 16, 8]) if INTERPRETED else ([64, 24, 24], 128, [16, 16, 16]),
    ([5, 3, 7], 72, [8, 0, 3]),
    ([9], 33, [4]),
    ([3], 1032, [0]),
    ([6], 1040, [5]),
    ([2, 1], 64, [600, 520]),
]
"""Rows, width and ranks; of the last the border is wider than what one program writes of W."""
NARROW = ([2, 1], 64, [40, 30])
"""The last where a program writes 64 columns of W: the interpreter takes a second for a few dozen programs."""
BORDERED = [(stack, dtype) for stack in [*STACKS[:-1], NARROW if INTERPRETED else STACKS[-1]] for dtype in DTYPES]
if INTERPRETED:  # what is rounded at every width, and the first in the other dtype too
    BORDERED = [*BORDERED[:2], *BORDERED[3::2]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("nested", [True, False])
def test_dequantised_bits_are_those_of_bitsandbytes(dtype: torch.dtype, nested: bool) -> None:
    check_dequantised(SHAPES, dtype, nested)


@pytest.mark.parametrize(("columns", "offset"), [(1040, 8), (1037, 5)])
def test_rows_that_begin_anywhere_get_the_same_bits(columns: int, offset: int) -> None:
    drawn = draw((6, 1024), torch.float16)
    room = torch.full((6, columns), 7.0, dtype=torch.float16)
    view = room[:, offset : offset + 1024]
    assert same_bits(dequantize(drawn.weight, view).contiguous(), drawn.dense)
    assert (room[:, :offset] == 7).all()
    assert (room[:, offset + 1024 :] == 7).all()


def test_another_dtype_holds_the_rounded_values() -> None:
    drawn = draw((5, 136), torch.float16)
    for dtype in (torch.float32, torch.float64):
        out = torch.empty(5, 136, dtype=dtype)
        assert same_bits(dequantize(drawn.weight, out), drawn.dense.to(dtype))


def test_packed_bytes_may_begin_anywhere() -> None:
    drawn = draw((4, 128), torch.float32)
    held = torch.empty(4 * 64 + 3, dtype=torch.uint8)[3:]
    held.copy_(drawn.weight.packed.view(-1))
    assert held.data_ptr() % 4
    assert same_bits(dequantize(replace(drawn.weight, packed=held)), drawn.dense)


@pytest.mark.parametrize(("stack", "dtype"), BORDERED)
def test_the_bordered_matrix_is_the_assembled_one(
    stack: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stack is NARROW:
        monkeypatch.setattr(nf4, "WORDS", 8)
    check_stack(stack, dtype, kernels=INTERPRETED)


@pytest.mark.skipif(not INTERPRETED, reason="no kernel runs here")
def test_an_adapter_that_was_moved_is_read_where_it_is() -> None:
    torch.manual_seed(4)
    drawn, kept = draw_stack([12, 4], 64, [8, 8], torch.float16), list[Table]()
    out = drawn.empty()
    assert border_all(drawn.stack.parts, out, kept)
    table = kept[0]
    assert border_all(drawn.stack.parts, out, kept)
    assert kept[0] is table, "made once"
    first, second = drawn.stack.parts
    assert second.a is not None
    moved = replace(second, a=second.a.clone())
    second.a.fill_(7)
    assert border_all((first, moved), out, kept)
    assert kept[0] is not table
    assert same_bits(out, drawn.wanted)


@pytest.mark.parametrize("nested", [True] if INTERPRETED else [True, False])
def test_what_differs_within_a_stack_is_written_part_by_part(nested: bool) -> None:
    torch.manual_seed(5)
    drawn = draw_stack([12, 4], 64, [8, 8], torch.float16)
    others = [draw((height, 64), torch.float16, nested=nested).weight for height in (12, 4)]
    first, second = (replace(part, held=held) for part, held in zip(drawn.stack.parts, others, strict=True))
    assert second.a is not None
    assert second.b is not None
    for other in (
        drawn.plain.parts[1],
        replace(second, a=second.a.half(), b=second.b.half()),
        replace(second, a=second.a.T.contiguous().T),
        replace(second, held=draw((4, 64), torch.float16, nested=not nested).weight),
        replace(second, held=draw((4, 64), torch.float16, nested=nested, blocksize=128).weight),
        second,
    ):
        out, kept = drawn.empty(), list[Table]()
        for _ in range(2):
            assert border_all((first, other), out, kept) == (INTERPRETED and other is second)
        assert out.isnan().all() or other is second
        m = Stack((first, other)).bordering(torch.empty(0, dtype=torch.float16), None)[0].whole
        assert torch.equal(m[12:16, :64], other.weight())
        assert torch.equal(m[:12, :64], first.weight())


def test_the_bordered_matrix_in_float64_keeps_all_digits() -> None:
    weight, a, b = (torch.randn(5, 9, dtype=torch.float64) for _ in range(3))
    a, b = a[:3].requires_grad_(), b[:, :3].clone().requires_grad_()
    m = Stack((Projection(lambda: weight, None, a, b, 1 / 3, (5, 9)),)).bordering(weight, None)[0].whole
    assert m.shape == (13, 17)
    assert torch.equal(m[:5, :9], weight)
    assert torch.equal(m[:5, 9:12], b.detach() * (1 / 3))
    assert torch.equal(m[5:8, :9], a.detach())
    assert not m[:5, 12:].any()
    assert not m[8:, :9].any()
