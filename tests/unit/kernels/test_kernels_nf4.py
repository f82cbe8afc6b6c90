"""NF4 dequantisation and the bordered matrix: bit for bit what bitsandbytes and plain assembly give.

Runs twice: with the textbook twins, and (in a process of its own) with the Triton code in Triton's interpreter.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from nf4_cases import BLOCKSIZES, assembled, bordered, draw, draw_stack, empty_border, parts_of, same_bits
from peft import LoraConfig, get_peft_model
from torch import nn

from core.kernels import reference
from core.kernels.dispatch import use_triton
from core.kernels.lora import Projection, Stack
from core.kernels.weights import nf4
from core.kernels.weights.nf4 import Nf4, Place, border, dequantize
from core.kernels.weights.nf4_stack import Table, border_all
from core.model.layers import peft_bnb

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
HAS_TRITON = importlib.util.find_spec("triton") is not None
# The interpreter cuts bfloat16 off instead of rounding it.
DTYPES = [torch.float32, torch.float16] if INTERPRETED else [torch.float32, torch.float16, torch.bfloat16]
STACKS = [
    ([64, 24, 24], 128, [16, 16, 16]),
    ([5, 3, 7], 72, [8, 0, 3]),
    ([9], 33, [4]),
    ([3], 1032, [0]),
    ([6], 1040, [5]),
    ([5, 2], 64, [300, 260]),
]
"""Rows, width and ranks; of the last the border is wider than what one program writes of W."""


def shapes(count: int) -> list[tuple[int, int]]:
    """Half of them with rows of whole words, some wider than a program; every third is odd in all ways."""
    drawer = random.Random(3)
    found = [(1, 3), (3, 64), (2, 1032), (5, 4104), (9, 1)]
    while len(found) < count:
        width = drawer.choice([64 * drawer.randint(1, 20), 8 * drawer.randint(1, 150), drawer.randint(1, 700)])
        found.append((drawer.randint(1, 40), width))
    return found


def test_the_interpreter_is_what_runs() -> None:
    assert use_triton(torch.zeros(1)) == INTERPRETED


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("nested", [True, False])
def test_dequantised_bits_are_those_of_bitsandbytes(dtype: torch.dtype, nested: bool) -> None:
    torch.manual_seed(1)
    for number, shape in enumerate(shapes(9 if INTERPRETED else 120)):
        blocksize = BLOCKSIZES[number % len(BLOCKSIZES)] if number % 2 else 64
        drawn = draw(shape, dtype, blocksize, nested)
        assert drawn.dense.abs().max() > 0
        assert same_bits(dequantize(drawn.weight), drawn.dense), (shape, blocksize)


@pytest.mark.parametrize("lookup", ["gather", "load", "select"])
def test_every_look_up_gives_the_same(lookup: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nf4, "LOOKUP", lookup)
    for shape in [(7, 192), (3, 1032), (6, 37)]:
        drawn = draw(shape, torch.float16)
        assert same_bits(dequantize(drawn.weight), drawn.dense)


@pytest.mark.parametrize(("columns", "offset"), [(1040, 0), (1040, 8), (1037, 0), (1037, 5)])
def test_it_writes_into_rows_that_lie_apart(columns: int, offset: int) -> None:
    drawn = draw((6, 1024), torch.float16)
    room = torch.full((6, columns), 7.0, dtype=torch.float16)
    view = room[:, offset : offset + 1024]
    assert dequantize(drawn.weight, view) is view
    assert same_bits(view.contiguous(), drawn.dense)
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
    shifted = Nf4(**{**drawn.weight.__dict__, "packed": held})
    assert same_bits(dequantize(shifted), drawn.dense)


@pytest.mark.parametrize("function", [border, reference.border])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("stack", STACKS, ids=str)
def test_the_bordered_matrix_is_the_assembled_one(stack: Any, dtype: torch.dtype, function: Any) -> None:
    if INTERPRETED and max(stack[2]) > 100 and dtype != DTYPES[-1]:
        pytest.skip("one dtype of it is enough for the interpreter, which takes seconds a row")
    torch.manual_seed(2)
    drawn = draw_stack(*stack, dtype)
    wanted = assembled(drawn, dtype)
    assert same_bits(bordered(function, drawn, dtype), wanted)
    plain = copy.copy(drawn)
    object.__setattr__(plain, "weights", drawn.dense)
    assert same_bits(bordered(function, plain, dtype), wanted)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("stack", STACKS, ids=str)
def test_a_stack_is_written_at_once_or_not_at_all(stack: Any, dtype: torch.dtype) -> None:
    if INTERPRETED and max(stack[2]) > 100 and dtype != DTYPES[-1]:
        pytest.skip("one dtype of it is enough for the interpreter, which takes seconds a row")
    torch.manual_seed(2)
    drawn = draw_stack(*stack, dtype)
    kept: list[Table] = []
    out = empty_border(drawn, dtype)
    if border_all(parts_of(drawn), out, kept) != (INTERPRETED and stack[1] % 8 == 0):
        raise AssertionError("by words, and only where kernels run")
    assert same_bits(out, assembled(drawn, dtype)) if INTERPRETED and stack[1] % 8 == 0 else out.isnan().all()


@pytest.mark.skipif(not INTERPRETED, reason="no kernel runs here")
def test_an_adapter_that_was_moved_is_found_where_it_is() -> None:
    torch.manual_seed(4)
    drawn, kept = draw_stack([12, 4], 64, [8, 8], torch.float16), list[Table]()
    out = empty_border(drawn, torch.float16)
    assert border_all(parts_of(drawn), out, kept)
    table = kept[0]
    assert border_all(parts_of(drawn), out, kept)
    assert kept[0] is table, "made once"
    drawn.adapters[1] = tuple(torch.randn_like(tensor) for tensor in drawn.adapters[1] if tensor is not None)  # type: ignore[call-overload]
    assert border_all(parts_of(drawn), out, kept)
    assert kept[0] is not table
    assert same_bits(out, assembled(drawn, torch.float16))


@pytest.mark.skipif(not INTERPRETED, reason="no kernel runs here")
def test_what_differs_within_a_stack_is_written_part_by_part() -> None:
    torch.manual_seed(5)
    drawn = draw_stack([12, 4], 64, [8, 8], torch.float16)
    first, (weight, a, b, scale) = parts_of(drawn)
    for other in (
        (None, a, b, scale),
        (weight, a.half(), b.half(), scale),
        (weight, a.T.contiguous().T, b, scale),
        (draw((4, 64), torch.float16, nested=False).weight, a, b, scale),
        (draw((4, 64), torch.float16, blocksize=128).weight, a, b, scale),
    ):
        out, kept = empty_border(drawn, torch.float16), list[Table]()
        for _ in range(2):
            assert not border_all([first, other], out, kept)
        assert out.isnan().all()
    stack = Stack(tuple(
        Projection(lambda w=w: reference.dequantize(w), None, a, b, s, w.shape, w)  # type: ignore[misc]
        for w, a, b, s in [first, (draw((4, 64), torch.float16, nested=False).weight, a, b, scale)]
    ))  # fmt: skip
    m = stack.matrix(torch.empty(0, dtype=torch.float16))
    assert not m[:16, :64].isnan().any()
    assert torch.equal(m[16:24, :64], first[1].half())


def test_the_bordered_matrix_in_float64_keeps_all_digits() -> None:
    weight, a, b = (torch.randn(5, 9, dtype=torch.float64) for _ in range(3))
    a, b = a[:3].requires_grad_(), b[:, :3].clone().requires_grad_()
    out = torch.full((13, 17), float("nan"), dtype=torch.float64)
    border(weight, a, b, 1 / 3, Place(out, 0, 0, 5, last=True))
    assert torch.equal(out[:5, :9], weight)
    assert torch.equal(out[:5, 9:12], b.detach() * (1 / 3))
    assert torch.equal(out[5:8, :9], a.detach())
    assert not out[:5, 12:].any()
    assert not out[8:, :9].any()


def layer(quant_type: str = "nf4", nested: bool = True) -> Any:
    """A 4-bit layer, quantised by its way to the device."""
    made = Linear4bit(
        128, 48, bias=False, compute_dtype=torch.float32, compress_statistics=nested, quant_type=quant_type
    )
    return made.to("cpu")


def adapted(base: nn.Module) -> Any:
    """The wrapped projection under peft."""
    holder = nn.Sequential()
    holder.add_module("q_proj", base)
    model: Any = get_peft_model(holder, LoraConfig(r=4, target_modules=["q_proj"]))
    return model.base_model.model.q_proj


@pytest.mark.parametrize("nested", [True, False])
def test_a_wrapped_projection_reads_as_nf4_once(nested: bool) -> None:
    base = layer(nested=nested)
    for module in (adapted(base), base):
        first, again = peft_bnb.read_projection(module), peft_bnb.read_projection(module)
        assert first is not None
        assert again is not None
        assert first.nf4 is not None
        assert first.nf4 is again.nf4
        wanted = peft_bnb.dequantize_4bit(base.weight.data, base.weight.quant_state)
        assert wanted.norm() > 0
        assert same_bits(first.weight(), wanted)
        assert first.shape == first.nf4.shape == (48, 128)


def test_a_weight_that_was_loaded_anew_is_read_anew() -> None:
    base, other = layer(), layer()
    before = peft_bnb.read_projection(base)
    base.weight = other.weight
    after = peft_bnb.read_projection(base)
    assert before is not None
    assert after is not None
    assert same_bits(after.weight(), peft_bnb.dequantize_4bit(other.weight.data, other.weight.quant_state))
    assert not torch.equal(before.weight(), after.weight())


def test_what_is_not_nf4_gives_its_weight() -> None:
    other = layer("fp4")
    read = peft_bnb.read_projection(other)
    assert read is not None
    assert read.nf4 is None
    assert same_bits(read.weight(), peft_bnb.dequantize_4bit(other.weight.data, other.weight.quant_state))
    plain = nn.Linear(8, 4)
    read = peft_bnb.read_projection(plain)
    assert read is not None
    assert read.nf4 is None
    assert read.weight() is plain.weight


@pytest.mark.skipif(INTERPRETED or not HAS_TRITON, reason="the interpreter's own process, or triton is not installed")
def test_the_triton_code_passes_in_the_interpreter() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", __file__],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed, 4 skipped" in done.stdout  # this test itself, and the widest border in float32
