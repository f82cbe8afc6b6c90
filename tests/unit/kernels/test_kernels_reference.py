"""The references against torch's own, the head's op in all its ways, and who decides which of both runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from core.kernels import dispatch, reference
from core.kernels.dispatch import reference_only, switched_off, triton, use_triton
from core.kernels.layer_norm import add_norm, layer_norm
from core.kernels.linear_cross_entropy import cross_entropy_in_tiles, linear_cross_entropy


def head(
    tokens: int = 9, width: int = 8, vocabulary: int = 21, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states that want a gradient, a frozen head, and labels."""
    hidden = torch.randn(tokens, width, dtype=dtype, requires_grad=True)
    return hidden, torch.randn(vocabulary, width, dtype=dtype), torch.randint(0, vocabulary, (tokens,))


def test_references_are_torchs_own_where_torch_has_them() -> None:
    x, weight = torch.randn(5, 12), torch.randn(12)
    torch.testing.assert_close(reference.rms_norm(x, weight, 1e-5), F.rms_norm(x, (12,), weight, 1e-5))
    bias = torch.randn(12)
    torch.testing.assert_close(reference.layer_norm(x, weight, bias, 1e-5), F.layer_norm(x, (12,), weight, bias, 1e-5))
    logits, labels = torch.randn(5, 12), torch.tensor([0, 11, -100, 3, 4])
    wanted = F.cross_entropy(logits, labels, reduction="sum")
    torch.testing.assert_close(reference.cross_entropy(logits, labels).sum(), wanted)


def test_part_of_a_head_may_be_turned() -> None:
    q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 1, 3, 8)
    angles = torch.randn(1, 3, 4)
    turned, _ = reference.rope(q, k, angles.cos(), angles.sin())
    assert torch.equal(turned[..., 4:], q[..., 4:])
    assert not torch.equal(turned[..., :4], q[..., :4])


@pytest.mark.parametrize(("rows", "bias", "residual"), [(5, True, True), (3, False, True), (4, True, False)])
def test_the_layer_norms_gradient_passes_gradcheck_in_float64(rows: int, bias: bool, residual: bool) -> None:
    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    inputs = [drawn(rows, 7), drawn(7), *([drawn(7)] if bias else []), *([drawn(rows, 7)] if residual else [])]

    def both(x: torch.Tensor, w: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b = rest[0] if bias else None
        if residual:
            return add_norm(x, rest[-1], w, b, 1e-5)
        return (layer_norm(x, w, b, 1e-5),)

    assert torch.autograd.gradcheck(both, inputs)


@pytest.mark.parametrize(("scale", "softcap", "ignored"), [(1.0, 0.0, 0), (0.5, 3.0, 4), (1.0, 0.0, 9)])
def test_the_heads_gradient_passes_gradcheck_in_float64(scale: float, softcap: float, ignored: int) -> None:
    hidden, weight, labels = head(dtype=torch.float64)
    labels[:ignored] = reference.IGNORED
    assert torch.autograd.gradcheck(lambda h: linear_cross_entropy(h, weight, labels, scale, softcap), hidden)
    both = (hidden, weight.detach().requires_grad_())
    assert torch.autograd.gradcheck(lambda h, w: linear_cross_entropy(h, w, labels, scale, softcap), both)


@pytest.mark.parametrize(("scale", "softcap", "ignored"), [(1.0, 0.0, 0), (0.5, 3.0, 5), (1.0, 0.0, 9)])
def test_so_does_that_of_a_head_in_tiles(
    scale: float, softcap: float, ignored: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of four, four and one tokens, chunks of three where tiles have eight rows, and a last one of five."""
    monkeypatch.setattr("core.kernels.linear_cross_entropy.TILED_SUMS", 4 * 3)
    monkeypatch.setattr("core.kernels.linear_cross_entropy.TILED_LOGITS", 3 * 8)
    hidden, weight, labels = head(width=3, dtype=torch.float64)
    labels[:ignored] = reference.IGNORED
    tiles = Read(weight, 8)
    assert torch.autograd.gradcheck(lambda h: cross_entropy_in_tiles(h, tiles, labels, scale, softcap), hidden)


class Sizes(TorchDispatchMode):
    """Notes what every operation gives: how many values, and where they lie."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[int, int]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.made.append((result.numel(), result.data_ptr()))
        return result


def test_chunks_change_nothing_and_no_tensor_of_all_logits_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, labels = head(43, 4, 50, torch.float64)
    whole = linear_cross_entropy(hidden, weight, labels)
    (wanted,) = torch.autograd.grad(whole.sum(), hidden)
    monkeypatch.setattr("core.kernels.linear_cross_entropy.LOGITS_AT_ONCE", 4 * 64)  # rows begin at multiples of 64
    with Sizes() as sizes:
        parts = linear_cross_entropy(hidden, weight, labels)
        (gradient,) = torch.autograd.grad(parts.sum(), hidden)
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(gradient, wanted)
    assert max(size for size, _ in sizes.made) <= 4 * 64


def test_a_head_can_be_walked_back_twice_where_the_graph_is_kept() -> None:
    hidden, weight, labels = head()
    loss = linear_cross_entropy(hidden, weight, labels).sum()
    (first,) = torch.autograd.grad(loss, hidden, torch.tensor(3.0), retain_graph=True)
    (second,) = torch.autograd.grad(loss, hidden, torch.tensor(5.0))
    torch.testing.assert_close(second / 5, first / 3)


def test_the_heads_gradient_is_scaled_where_it_lies() -> None:
    hidden, weight, labels = head()
    loss = linear_cross_entropy(hidden, weight, labels)
    with Sizes() as sizes:
        (gradient,) = torch.autograd.grad(loss.sum() * 0.5, hidden)
    assert {place for size, place in sizes.made if size == hidden.numel()} == {gradient.data_ptr()}


class Read:
    """A head in tiles of so many rows, and how often it was read."""

    def __init__(self, weight: torch.Tensor, rows: int) -> None:
        self.times, self._weight, self._rows = 0, weight, rows

    def __call__(self) -> Iterator[tuple[int, torch.Tensor]]:
        self.times += 1
        yield from (
            (first, self._weight[first : first + self._rows]) for first in range(0, len(self._weight), self._rows)
        )


@pytest.mark.parametrize(("scale", "softcap", "low"), [(1.0, 0.0, 0.0), (0.5, 3.0, 0.0), (1.0, 0.0, -1e4)])
def test_a_head_in_tiles_gives_loss_and_gradient_of_the_whole(
    scale: float, softcap: float, low: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of 11 tokens, tiles of 16 rows of which the last has two, chunks of five tokens; where nothing is a
    target, logits far below zero overflow nothing."""
    hidden, weight, labels = head(43, 4, 50, torch.float64)
    labels[5:9] = reference.IGNORED
    hidden, weight = (hidden.detach() + low).requires_grad_(), weight.abs() if low else weight
    weights = torch.linspace(-1, 2, 43, dtype=torch.float64)
    whole = linear_cross_entropy(hidden, weight, labels, scale, softcap)
    (wanted,) = torch.autograd.grad((whole * weights).sum(), hidden)
    monkeypatch.setattr("core.kernels.linear_cross_entropy.TILED_SUMS", 11 * 4)
    monkeypatch.setattr("core.kernels.linear_cross_entropy.TILED_LOGITS", 5 * 16)
    tiles = Read(weight, 16)
    with Sizes() as sizes:
        losses = cross_entropy_in_tiles(hidden, tiles, labels, scale, softcap)
        (gradient,) = torch.autograd.grad((losses * weights).sum(), hidden)
    torch.testing.assert_close((losses, gradient), (whole.detach(), wanted), atol=1e-10, rtol=1e-10)
    assert tiles.times == 4, "once a block"
    assert max(size for size, _ in sizes.made) <= 43 * 4, "hidden states are the largest that is made"
    with torch.no_grad():
        torch.testing.assert_close(cross_entropy_in_tiles(hidden, tiles, labels, scale, softcap), losses.detach())


def test_a_head_in_tiles_keeps_the_digits_of_what_is_nearly_known() -> None:
    """A label with most of the probability is not rounded to 16 bits together with what it is the rest of."""
    hidden, weight, labels = head(43, 32, 50)
    hidden = (0.25 * weight[labels]).bfloat16().requires_grad_()
    weight = weight.bfloat16()
    (wanted,) = torch.autograd.grad(
        reference.linear_cross_entropy(hidden.double(), weight.double(), labels).sum(), hidden
    )
    made = [linear_cross_entropy(hidden, weight, labels), cross_entropy_in_tiles(hidden, Read(weight, 16), labels)]
    whole, tiled = (torch.autograd.grad(losses.sum(), hidden)[0] for losses in made)
    off = [float((one - wanted).double().norm() / wanted.double().norm()) for one in (whole, tiled)]
    assert off[1] <= 1.5 * off[0], off


def test_a_trained_heads_gradient_is_the_definitions_and_no_tensor_of_all_logits_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each token's loss has a weight of its own."""
    hidden, weight, labels = head(43, 4, 50, torch.float64)
    weight.requires_grad_()
    weights = torch.linspace(-1, 2, 43, dtype=torch.float64)
    definition = reference.linear_cross_entropy(hidden, weight, labels)
    wanted = torch.autograd.grad((definition * weights).sum(), (hidden, weight))
    monkeypatch.setattr("core.kernels.linear_cross_entropy.LOGITS_AT_ONCE", 4 * 64)
    with Sizes() as sizes:
        losses = linear_cross_entropy(hidden, weight, labels)
        gradients = torch.autograd.grad((losses * weights).sum(), (hidden, weight))
    torch.testing.assert_close(losses, definition)
    torch.testing.assert_close(gradients, wanted)
    assert max(size for size, _ in sizes.made) <= 5 * 50


@pytest.mark.parametrize(("told", "runs"), [("plain", False), ("", triton is not None)])
def test_plain_in_the_environment_means_never(told: str, runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is read once, when the module is imported: here a second time, beside the one in use."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("LUTHIER_KERNELS", told)
    spec = importlib.util.spec_from_file_location("another_dispatch", dispatch.__file__)
    assert spec is not None
    assert spec.loader is not None
    another = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(another)
    monkeypatch.delenv("LUTHIER_KERNELS")
    assert another.use_triton(torch.zeros(1)) == runs


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
