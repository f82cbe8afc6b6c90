"""The Triton code itself on small shapes, run by Triton's interpreter. Collected by ``test_kernels_triton.py``."""

from __future__ import annotations

import os

import pytest
import torch
from kernel_cases import CASES, Case, check, label_ops
from row_cases import FAMILIES, check_rows, tiny_sizes

from core.kernels import cross_entropy, reference
from core.kernels.dispatch import use_triton
from core.kernels.trial_kernel import adds_one


def test_the_interpreter_is_what_runs() -> None:
    assert os.environ["TRITON_INTERPRET"] == "1"
    assert use_triton(torch.zeros(1))
    assert not use_triton(torch.zeros(1, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernel_is_as_exact_as_plain_torch(case: Case, dtype: torch.dtype) -> None:
    check(case, dtype, "cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_six_drawn_shapes(family: str, dtype: torch.dtype) -> None:
    for number in range(6):
        check_rows(family, tiny_sizes, 500 + number, dtype, "cpu")


@pytest.mark.parametrize("vocabulary", [2049, 4096, 9001, 49_153, 200_001])
def test_vocabularies_of_many_blocks(vocabulary: int) -> None:
    fast, plain = label_ops()
    logits = torch.randn(3, vocabulary, generator=torch.Generator().manual_seed(vocabulary)) * 3
    labels = torch.tensor([vocabulary - 1, -100, 2048])
    ours, theirs = logits.clone(), logits.clone()
    torch.testing.assert_close(fast(ours, labels), plain(theirs, labels))
    torch.testing.assert_close(ours, theirs)
    exact = reference.cross_entropy(logits.double(), labels)
    error = (cross_entropy.cross_entropy(logits, labels) - exact).abs().max()
    usual = (reference.cross_entropy(logits, labels) - exact).abs().max()
    assert error <= 1.5 * usual + 0.5 * torch.finfo(torch.float32).eps * exact.abs().max()


@pytest.mark.parametrize(("scale", "softcap"), [(1.0, 0.0), (0.7, 2.0)])
def test_logits_become_their_gradient(scale: float, softcap: float) -> None:
    fast, plain = label_ops()
    logits = torch.randn(6, 9001)  # wider than one block
    labels = torch.tensor([0, 9000, -100, 17, 4096, 8192])
    ours, theirs = logits.clone(), logits.clone()
    torch.testing.assert_close(fast(ours, labels, scale, softcap), plain(theirs, labels, scale, softcap))
    torch.testing.assert_close(ours, theirs)
    assert not ours[2].any()


def test_the_kernel_of_the_trial_adds_one() -> None:
    assert adds_one("cpu")
