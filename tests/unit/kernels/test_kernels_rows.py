"""Ops on drawn shapes and the loss over wide vocabularies, as exact as plain torch.

Runs twice: by the references, and (started by ``test_kernels_triton``) as Triton code in Triton's interpreter.
"""

from __future__ import annotations

import os

import pytest
import torch
from kernel_cases import FAMILIES, assert_rule, check_rows, tiny_sizes

from core.kernels import cross_entropy, layer_norm, reference, rms_norm
from core.kernels.dispatch import use_triton
from core.kernels.trial_kernel import adds_one

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# The interpreter cuts bfloat16 off instead of rounding it.
DTYPES = (torch.float32, torch.float16) if INTERPRETED else (torch.float32, torch.float16, torch.bfloat16)
DRAWN = (1, 5, 6) if INTERPRETED else (0, 1, 2, 5, 7, 10, 14, 17, 19)
"""Cases of each op by default: among them are all its branches, and no token at all."""
MORE = tuple(number for number in range(4 if INTERPRETED else 20) if number not in DRAWN)


def test_the_interpreter_is_what_runs() -> None:
    assert use_triton(torch.zeros(1)) == INTERPRETED
    assert not use_triton(torch.zeros(1, dtype=torch.float64))
    assert not INTERPRETED or adds_one("cpu")


@pytest.mark.parametrize("numbers", [DRAWN, pytest.param(MORE, marks=pytest.mark.slow)], ids=["some", "the others"])
@pytest.mark.parametrize("family", FAMILIES)
def test_drawn_shapes(family: str, numbers: tuple[int, ...]) -> None:
    """The interpreter takes long: there each shape is tried in one of the dtypes."""
    for number in numbers:
        for dtype in DTYPES[number % 2 :][:1] if INTERPRETED else DTYPES:
            check_rows(family, tiny_sizes, 300 + number, dtype, "cpu")


@pytest.mark.parametrize(
    ("vocabulary", "scale", "softcap"),
    [(2049, 1.0, 0.0), (4096, 1.0, 0.0), (9001, 0.7, 2.0), (49_153, 1.0, 0.0), (200_001, 1.0, 0.0)],
)
def test_vocabularies_of_many_blocks(vocabulary: int, scale: float, softcap: float) -> None:
    logits = torch.randn(4, vocabulary, generator=torch.Generator().manual_seed(vocabulary)) * 3
    labels = torch.tensor([vocabulary - 1, -100, 2048, 0])
    ours, theirs = logits.clone(), logits.clone()
    losses = reference.cross_entropy_gradient_(theirs, labels, scale, softcap)
    torch.testing.assert_close(cross_entropy.cross_entropy_gradient_(ours, labels, scale, softcap), losses)
    torch.testing.assert_close(ours, theirs)
    assert not ours[1].any()
    alone = cross_entropy.cross_entropy(logits, labels, scale, softcap)
    plain, exact = (reference.cross_entropy(part, labels, scale, softcap) for part in (logits, logits.double()))
    assert_rule(f"V {vocabulary}", alone, plain, exact, torch.float32)


def test_layer_norms_weights_may_be_wider_than_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under mixed precision: rows in half precision, weights and their gradients in float32."""
    monkeypatch.setattr(layer_norm, "PROGRAMS", 4)  # each takes several groups of rows
    generator = torch.Generator().manual_seed(4)
    x, residual, dy = (torch.randn(600, 48, generator=generator).half() for _ in range(3))
    w, b = (torch.randn(48, generator=generator).requires_grad_() for _ in range(2))
    leaves = (x.requires_grad_(), residual.requires_grad_(), w, b)
    y = layer_norm.layer_norm(x, w, b, 1e-12, residual)
    exact = reference.layer_norm((x + residual).double(), w.double(), b.double(), 1e-12)
    assert y.dtype == torch.float16
    torch.testing.assert_close(y.double(), exact, rtol=1e-3, atol=1e-3)
    found, wanted = (torch.autograd.grad(out, leaves, dy.to(out)) for out in (y, exact))
    assert [one.dtype for one in found] == [one.dtype for one in leaves]
    for one, other in zip(found, wanted, strict=True):
        assert (one.double() - other.double()).norm() <= 1e-3 * other.double().norm()
    again = torch.autograd.grad(layer_norm.layer_norm(x, w, b, 1e-12, residual), leaves, dy)
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))


@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES], ids=str)
def test_s_is_wide(dtype: torch.dtype) -> None:
    x = torch.randn(3, 2, 8, dtype=dtype)
    _, h, s = rms_norm.normalize(x, torch.ones(8, dtype=dtype), 1e-6)
    assert h is x
    assert s.dtype == reference.wide(dtype)
    assert s.shape == (6,)
