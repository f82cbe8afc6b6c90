"""The gate with its low products: by the twin and, in a process of its own, the Triton code in the interpreter."""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gate_lora_cases import Shape, check_gate_low, deterministic, same_gate

from core.kernels import gate_lora, reference, swiglu
from core.kernels.dispatch import use_triton

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
HAS_TRITON = importlib.util.find_spec("triton") is not None
# Arithmetic in bfloat16 is wrong in the interpreter.
DTYPES = [torch.float32, torch.float16] if INTERPRETED else [torch.float32, torch.float16, torch.bfloat16]
SHAPES = [
    Shape(1, 64, 8, 16),
    Shape(33, 96, 16, 32, pad=8, before=8),
    Shape(5, 1000, 8, 16, pad=24, kind="gelu_tanh"),  # several stretches
    Shape(3, 2311, 8, 24, pad=5, before=3),
    Shape(37, 65, 3, 5, pad=1, kind="gelu_tanh"),
    Shape(2, 160, 128, 72),
    Shape(4, 72, 136, 8, pad=8),  # wider than the kernels take
    Shape(4, 72, 8, 136, before=8),
    Shape(4, 40, 0, 8),
    Shape(4, 40, 8, 0, kind="gelu_tanh"),
    Shape(0, 40, 8, 16),
]


def test_the_interpreter_is_what_runs() -> None:
    assert use_triton(torch.zeros(1)) == INTERPRETED


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_are_as_exact_as_plain_torch(shape: Shape, dtype: torch.dtype) -> None:
    check_gate_low(shape, dtype, "cpu")


@pytest.mark.parametrize("seed", range(20))
def test_drawn_shapes(seed: int) -> None:
    pick = random.Random(seed)
    shape = Shape(
        pick.choice([1, 2, 7, 32, 35]),
        pick.choice([8 * pick.randint(1, 40), pick.randint(1, 300)]),
        pick.choice([8, 16, 24, pick.randint(1, 64)]),
        pick.choice([16, 32, pick.randint(1, 64)]),
        *pick.choice([(0, 0), (8, 0), (8, 16), (3, 5)]),
        kind=pick.choice(["silu", "gelu_tanh"]),
    )
    check_gate_low(shape, DTYPES[seed % len(DTYPES)], "cpu", seed)


def test_a_pass_gives_the_same_bits_again() -> None:
    for dtype in DTYPES:
        deterministic(Shape(5, 1000, 8, 16), dtype, "cpu")
        same_gate(Shape(5, 1000, 8, 16, kind="gelu_tanh"), dtype, "cpu")


def test_more_in_a_row_than_gate_and_up_is_not_read() -> None:
    rows, a, out = torch.randn(3, 90), torch.randn(8, 40), torch.empty(3, 48)
    rows[:, 80:] = torch.nan
    gate_lora.gate_low(rows, "silu", a, out)
    wanted = swiglu.gate(rows[:, :80], "silu", torch.empty(3, 40))
    torch.testing.assert_close(out, torch.cat((wanted, wanted @ a.T), dim=1))


def test_in_float64_the_gradient_is_autograds() -> None:
    rows, a, sb, dt = (torch.randn(*size, dtype=torch.float64) for size in ((5, 14), (3, 7), (14, 4), (5, 7)))
    leaf = rows.clone().requires_grad_()
    t = reference.geglu(*leaf.chunk(2, dim=1))
    (wanted,) = torch.autograd.grad(t, leaf, dt)
    both = torch.cat((rows, rows.new_full((5, 4), torch.nan)), dim=1)
    low = gate_lora.gate_low_backward_(dt, both, "gelu_tanh", a, sb)
    torch.testing.assert_close(both, torch.cat((wanted, wanted @ sb), dim=1))
    torch.testing.assert_close(dt, t)
    torch.testing.assert_close(low, t @ a.T)


@pytest.mark.parametrize("tokens", [1, 33, 500, 2048, 3712, 8192, 32768])
@pytest.mark.parametrize("width", [64, 4864, 14336])
def test_stretches_hold_every_column_once_and_their_sums_are_few(tokens: int, width: int) -> None:
    t, ranks = torch.empty(tokens, width, dtype=torch.bfloat16, device="meta"), 48
    steps, splits = gate_lora._stretches(t, gate_lora.BACKWARD, 100 * ranks // 6)
    wide = -(-width // gate_lora.BACKWARD.columns)
    assert (splits - 1) * steps < wide <= splits * steps
    if splits > 1:
        assert 8 * splits * ranks <= 0.041 * 12 * width
    if width == 14336 and tokens >= 2048:
        assert splits * -(-tokens // gate_lora.BACKWARD.tokens) >= 4 * 132


@pytest.mark.skipif(INTERPRETED or not HAS_TRITON, reason="the interpreter's own process, or triton is not installed")
def test_the_triton_code_passes_in_the_interpreter_and_sizes_compile_nothing_anew() -> None:
    for kernel in (gate_lora._forward, gate_lora._backward, gate_lora._sum):
        sizes = [p for p in kernel.params if not p.is_constexpr and not p.do_not_specialize]
        assert {p.name for p in sizes} <= {"t", "gate_up", "a", "sb", "low", "dlow", "parts"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", __file__],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed, 1 skipped" in done.stdout
