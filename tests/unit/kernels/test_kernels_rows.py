"""Functions without autograd on drawn shapes, here by their references; the Triton code runs elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from row_cases import FAMILIES, check_rows, some_sizes, tiny_sizes
from torch.utils._python_dispatch import TorchDispatchMode

from core.kernels import linear_cross_entropy, reference, rms_norm

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_twelve_drawn_shapes_as_models_have_them(family: str, dtype: torch.dtype) -> None:
    for number in range(12):
        check_rows(family, some_sizes, 100 * DTYPES.index(dtype) + number, dtype, "cpu")


@pytest.mark.parametrize("family", FAMILIES)
def test_sixty_drawn_small_shapes(family: str) -> None:
    for number in range(60):
        check_rows(family, tiny_sizes, 1000 + number, DTYPES[number % 3], "cpu")


def test_a_head_can_be_walked_back_twice_where_the_graph_is_kept() -> None:
    hidden, weight = torch.randn(9, 8, requires_grad=True), torch.randn(21, 8)
    loss = linear_cross_entropy.linear_cross_entropy(hidden, weight, torch.randint(0, 21, (9,)))
    (first,) = torch.autograd.grad(loss, hidden, torch.tensor(3.0), retain_graph=True)
    (second,) = torch.autograd.grad(loss, hidden, torch.tensor(5.0))
    torch.testing.assert_close(second / 5, first / 3)


def test_the_heads_gradient_is_scaled_where_it_lies() -> None:
    made: list[int] = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            made.append(result.data_ptr() if isinstance(result, torch.Tensor) and result.numel() == 72 else 0)
            return result

    hidden, weight = torch.randn(9, 8, requires_grad=True), torch.randn(21, 8)
    loss = linear_cross_entropy.linear_cross_entropy(hidden, weight, torch.randint(0, 21, (9,)))
    with Sizes():
        (gradient,) = torch.autograd.grad(loss * 0.5, hidden)
    assert set(made) == {0, gradient.data_ptr()}


def test_all_labels_ignored_gives_nothing() -> None:
    hidden, weight = torch.randn(9, 8, requires_grad=True), torch.randn(21, 8)
    loss = linear_cross_entropy.linear_cross_entropy(hidden, weight, torch.full((9,), reference.IGNORED))
    (gradient,) = torch.autograd.grad(loss, hidden)
    assert loss.item() == 0.0
    assert not gradient.any()


@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES], ids=str)
def test_s_is_wide(dtype: torch.dtype) -> None:
    x = torch.randn(3, 2, 8, dtype=dtype)
    _, h, s = rms_norm.normalize(x, torch.ones(8, dtype=dtype), 1e-6)
    assert h is x
    assert s.dtype == reference.wide(dtype)
    assert s.shape == (6,)
