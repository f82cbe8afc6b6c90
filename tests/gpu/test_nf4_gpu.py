"""On a card: NF4 dequantisation and the bordered matrix, bit for bit against bitsandbytes' own kernels.

    pytest -m gpu tests/gpu/test_nf4_gpu.py

Shapes and stacks are drawn as in the unit tests.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parents[1] / "unit" / "kernels")]

from nf4_cases import check_dequantised, check_stack, draw, same_bits, shapes  # noqa: E402

from core.kernels.dispatch import use_triton  # noqa: E402
from core.kernels.weights import nf4_reference  # noqa: E402
from core.kernels.weights.nf4 import dequantize  # noqa: E402
from core.kernels.weights.nf4_reference import Nf4  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA card"),
]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
MISTRAL = [(14336, 4096), (4096, 14336), (4096, 4096), (1024, 4096)]
SHAPES = shapes([*MISTRAL, (3, 5), (2047, 1029), (1, 32768)], 23, 3000, 5760)
STACKS = [
    ([4096, 1024, 1024], 4096, [16, 16, 16]),
    ([14336, 14336], 4096, [16, 16]),
    ([4096], 14336, [16]),
    ([512, 128, 128], 896, [8, 8, 8]),
    ([65, 3, 7], 72, [8, 0, 3]),
    ([33], 1021, [4]),
    ([9, 5], 640, [700, 500]),
]


def skip_without(dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("no bfloat16 on this card")
    assert use_triton(torch.empty(0, dtype=dtype, device="cuda"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("nested", [True, False])
def test_dequantised_bits_are_those_of_bitsandbytes(dtype: torch.dtype, nested: bool) -> None:
    skip_without(dtype)
    check_dequantised(SHAPES, dtype, nested, "cuda")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("stack", STACKS, ids=str)
def test_the_bordered_matrix_is_the_assembled_one(stack: Any, dtype: torch.dtype) -> None:
    skip_without(dtype)
    check_stack(stack, dtype, "cuda")


def test_more_values_than_32_bits_can_count() -> None:
    """Rows at both ends against the reference: blocks and words are then numbered far beyond the first."""
    if torch.cuda.mem_get_info()[0] < 12 << 30:
        pytest.skip("too little memory")
    rows, few, width = 262_208, 64, 8192
    blocks = -(-rows * width // 64)
    drawn = draw((few, 64), torch.float16, nested=False, device="cuda").weight
    packed = torch.randint(0, 256, (rows * width // 2,), dtype=torch.uint8, device="cuda")
    absmax = torch.rand(blocks, device="cuda")
    found = dequantize(Nf4(packed, absmax, drawn.code, 64, None, None, 1, None, (rows, width), torch.float16))
    count = few * width
    for rows_at, bytes_at, blocks_at in [
        (slice(None, few), slice(None, count // 2), slice(None, count // 64)),
        (slice(-few, None), slice(-count // 2, None), slice(-count // 64, None)),
    ]:
        part = Nf4(
            packed[bytes_at], absmax[blocks_at], drawn.code, 64, None, None, 1, None, (few, width), torch.float16
        )
        assert same_bits(found[rows_at], nf4_reference.dequantize(part))
