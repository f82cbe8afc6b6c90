"""On a card: the gate with the adapters' low products, against float64 and beside the separate kernels.

    pytest -m gpu tests/gpu/test_gate_lora_gpu.py

Rows lie between NaN, which must still be there afterwards; shapes are drawn as in the unit tests.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parents[1] / "unit" / "kernels")]

from gate_lora_cases import Shape, check_gate_low, deterministic, same_gate  # noqa: E402

from core.kernels import gate_lora, swiglu  # noqa: E402
from core.kernels.dispatch import use_triton  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA card"),
]
DTYPES = [torch.bfloat16, torch.float16, torch.float32]
SHAPES = [
    Shape(1, 14336, 16, 32),
    Shape(517, 14336, 16, 32, pad=16),
    Shape(333, 4864, 8, 16, pad=64, before=16),
    Shape(129, 8960, 64, 64, kind="gelu_tanh"),
    Shape(3, 1000, 128, 128, pad=8),
    Shape(2049, 2312, 40, 56, kind="gelu_tanh"),
    Shape(65, 9217, 8, 16),
    Shape(31, 1021, 16, 32, pad=5, before=3, kind="gelu_tanh"),
    Shape(70, 777, 5, 9, pad=1),
    Shape(7, 640, 136, 16),
    Shape(7, 640, 16, 0),
]


def drawn_shapes(count: int) -> list[Shape]:
    """Few distinct ranks and alignments, each of which is a kernel to compile."""
    pick = random.Random(9)
    return [
        Shape(
            pick.choice([1, 2, 31, 32, 33, 127, 300]),
            pick.choice([8 * pick.randint(1, 700), pick.randint(1, 5000)]),
            pick.choice([8, 16, 32, 64]),
            pick.choice([16, 32, 48, 64]),
            *pick.choice([(0, 0), (16, 0), (8, 24), (3, 5)]),
            kind=pick.choice(["silu", "gelu_tanh"]),
        )
        for _ in range(count)
    ]


def skip_without(dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("no bfloat16 on this card")
    assert use_triton(torch.empty(0, dtype=dtype, device="cuda"))


@pytest.fixture(autouse=True)
def exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain torch's float32 products are the measure: not in TF32."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_are_as_exact_as_plain_torch(shape: Shape, dtype: torch.dtype) -> None:
    skip_without(dtype)
    check_gate_low(shape, dtype, "cuda")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_drawn_shapes(dtype: torch.dtype) -> None:
    skip_without(dtype)
    for number, shape in enumerate(drawn_shapes(40 if dtype == torch.bfloat16 else 12)):
        check_gate_low(shape, dtype, "cuda", number)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_pass_gives_the_same_bits_again(dtype: torch.dtype) -> None:
    skip_without(dtype)
    deterministic(Shape(2000, 4864, 16, 32), dtype, "cuda")
    same_gate(Shape(300, 4864, 16, 32), dtype, "cuda")


def test_the_gate_itself_is_that_of_its_own_kernel() -> None:
    rows, a = torch.randn(300, 2 * 4864, device="cuda").half(), torch.randn(16, 4864, device="cuda").half()
    out = gate_lora.gate_low(rows, "silu", a, rows.new_empty(300, 4880))
    alone = swiglu.gate(rows, "silu", rows.new_empty(300, 4864))
    torch.testing.assert_close(out[:, :4864], alone, rtol=2**-10, atol=0)


def test_many_token_counts_are_one_kernel() -> None:
    cache = gate_lora._backward.device_caches[torch.cuda.current_device()][0]
    check_gate_low(Shape(1, 4864, 16, 32), torch.float16, "cuda")
    before = len(cache)
    for tokens in (2, 16, 17, 128, 1000):
        check_gate_low(Shape(tokens, 4864, 16, 32), torch.float16, "cuda")
    assert len(cache) == before > 0
