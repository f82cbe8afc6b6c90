"""The references against torch and against numerical differentiation; our autograd functions in float64."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from kernel_cases import CASES, Case, check, label_ops
from torch.nn import functional as F

from core.kernels import reference
from core.kernels.dispatch import block_of, reference_only, switched_off, triton, use_triton, warps_for
from core.kernels.linear_cross_entropy import LOGITS_AT_ONCE, chunk_tokens, linear_cross_entropy
from core.machine.locations import REPOSITORY


@pytest.mark.parametrize("side", ["fast", "reference"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gradients_pass_gradcheck_in_float64(case: Case, side: str) -> None:
    inputs: list[Any] = []
    for value in case.draw(torch.Generator().manual_seed(1)):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            value = value.detach().double().requires_grad_(value.requires_grad)
        inputs.append(value)
    function = case.fast if side == "fast" else case.reference
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_without_a_card_the_op_is_as_exact_as_its_reference(case: Case, dtype: torch.dtype) -> None:
    check(case, dtype, "cpu")


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_gradient_of_logits_is_autograds(softcap: float) -> None:
    _, plain = label_ops()
    logits = torch.randn(7, 31, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 30, -100, 5, 5, -100, 12])
    losses = reference.cross_entropy(logits, labels, 0.5, softcap)
    (wanted,) = torch.autograd.grad(losses.sum(), logits)
    written = logits.detach().clone()
    torch.testing.assert_close(plain(written, labels, 0.5, softcap), losses.detach())
    torch.testing.assert_close(written, wanted)


def test_references_are_torchs_own_where_torch_has_them() -> None:
    x, weight = torch.randn(5, 12), torch.randn(12)
    torch.testing.assert_close(reference.rms_norm(x, weight, 1e-5), F.rms_norm(x, (12,), weight, 1e-5))
    logits, labels = torch.randn(5, 12), torch.tensor([0, 11, -100, 3, 4])
    wanted = F.cross_entropy(logits, labels, reduction="sum")
    torch.testing.assert_close(reference.cross_entropy(logits, labels).sum(), wanted)


def test_part_of_a_head_may_be_turned() -> None:
    q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 1, 3, 8)
    angles = torch.randn(1, 3, 4)
    turned, _ = reference.rope(q, k, angles.cos(), angles.sin())
    assert torch.equal(turned[..., 4:], q[..., 4:])
    torch.testing.assert_close(turned.norm(dim=-1).shape, q.norm(dim=-1).shape)
    assert not torch.equal(turned[..., :4], q[..., :4])


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = torch.randn(23, 8, dtype=torch.float64, requires_grad=True)
    weight, labels = torch.randn(11, 8, dtype=torch.float64), torch.randint(0, 11, (23,))
    whole = linear_cross_entropy(hidden, weight, labels)
    (wanted,) = torch.autograd.grad(whole, hidden)
    monkeypatch.setattr("core.kernels.linear_cross_entropy.LOGITS_AT_ONCE", 5 * 11)
    parts = linear_cross_entropy(hidden, weight, labels)
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(torch.autograd.grad(parts, hidden)[0], wanted)


def test_no_tensor_of_all_logits_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.kernels.linear_cross_entropy.LOGITS_AT_ONCE", 4 * 50)
    seen: list[int] = []

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            seen.append(result.numel() if isinstance(result, torch.Tensor) else 0)
            return result

    hidden, weight = torch.randn(40, 4, requires_grad=True), torch.randn(50, 4)
    with Sizes():
        linear_cross_entropy(hidden, weight, torch.randint(0, 50, (40,))).backward()
    assert max(seen) <= 4 * 50


def test_a_trained_head_gets_its_gradient() -> None:
    hidden, weight = torch.randn(5, 4, requires_grad=True), torch.randn(7, 4, requires_grad=True)
    linear_cross_entropy(hidden, weight, torch.randint(0, 7, (5,))).backward()
    assert weight.grad is not None
    assert weight.grad.norm() > 0


def test_sizes() -> None:
    assert [block_of(n) for n in (1, 2, 3, 64, 65)] == [1, 2, 4, 64, 128]
    assert [warps_for(n) for n in (1, 256, 4096, 1 << 20)] == [1, 1, 16, 16]
    assert chunk_tokens(4096, 128_256) == LOGITS_AT_ONCE // 128_256
    assert chunk_tokens(3, 10) == 3


def test_plain_in_the_environment_means_never() -> None:
    """The environment is read once, when a process begins."""
    asks = "import torch; from core.kernels.dispatch import use_triton; print(use_triton(torch.zeros(1)))"
    for word, expected in (("plain", "False"), ("", str(triton is not None))):
        told = {**os.environ, "TRITON_INTERPRET": "1", "LUTHIER_KERNELS": word, "PYTHONPATH": str(REPOSITORY)}
        found = subprocess.run([sys.executable, "-c", asks], env=told, capture_output=True, text=True, check=True)
        assert found.stdout.split() == [expected]


def test_the_reference_may_be_asked_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with reference_only():
        assert switched_off()
        assert not use_triton(torch.zeros(1))
        with pytest.raises(ValueError, match="inside"), reference_only():
            raise ValueError("inside")
        assert switched_off()
    assert not switched_off()
    assert use_triton(torch.zeros(1)) == (triton is not None)
