"""One list of cases for all ops: how inputs are drawn, what is fast, what is its reference.

Shared by CPU and GPU tests. The rule is that of ``core.bench.kernels``, forward and for every gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from core.bench.kernels import errors
from core.kernels import cross_entropy, linear_cross_entropy, reference, rms_norm

__all__ = ["CASES", "WIDE_CASES", "Case", "assert_rule", "check", "label_ops", "move", "run"]

Inputs = list[Any]


@dataclass(frozen=True)
class Case:
    """An op under test. ``draw`` gives float32 inputs on the CPU; those that require grad are differentiated."""

    name: str
    fast: Callable[..., Any]
    reference: Callable[..., Any]
    draw: Callable[[torch.Generator], Inputs]


def _normal(generator: torch.Generator, *shape: int, grad: bool = True, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, generator=generator) * scale).requires_grad_(grad)


def _norm_case(rows: int, width: int, offset: float) -> Case:
    def draw(g: torch.Generator) -> Inputs:
        return [_normal(g, rows, width), _normal(g, width, grad=False), 1e-5, offset]

    return Case(f"rms_norm {rows}x{width} offset {offset:g}", rms_norm.rms_norm, reference.rms_norm, draw)


def _labels(generator: torch.Generator, tokens: int, vocabulary: int, ignored: float = 0.3) -> torch.Tensor:
    labels = torch.randint(0, vocabulary, (tokens,), generator=generator)
    return torch.where(torch.rand(tokens, generator=generator) < ignored, reference.IGNORED, labels)


def _head_case(tokens: int, width: int, vocabulary: int, scale: float, softcap: float, ignored: float = 0.3) -> Case:
    def draw(g: torch.Generator) -> Inputs:
        weight = _normal(g, vocabulary, width, grad=False, scale=0.2)
        labels = _labels(g, tokens, vocabulary, ignored)
        return [_normal(g, tokens, width), weight, labels, scale, softcap]

    name = f"linear_cross_entropy {tokens}x{width} V {vocabulary} scale {scale:g} cap {softcap:g} ignored {ignored:g}"
    return Case(name, linear_cross_entropy.linear_cross_entropy, reference.linear_cross_entropy, draw)


CASES = (
    _norm_case(1, 3, 0.0),
    _norm_case(3, 5, 1.0),
    _norm_case(7, 64, 0.0),
    _norm_case(5, 257, 1.0),
    _head_case(1, 8, 3, 1.0, 0.0, 0.0),
    _head_case(13, 16, 97, 1.0, 0.0),
    _head_case(9, 16, 130, 0.5, 3.0),
    _head_case(6, 16, 50, 1.0, 0.0, 1.0),
)

WIDE_CASES = (
    _norm_case(333, 4096, 0.0),
    _norm_case(3, 14337, 1.0),
    _head_case(301, 512, 32_003, 1.0, 0.0),
    _head_case(65, 128, 256_001, 1.0, 30.0),
)
"""Shapes as models have them, for a card."""


def run(
    function: Callable[..., Any], inputs: Inputs, dtype: torch.dtype, device: str
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Outputs, and gradients of the inputs that ask for one, of a fixed scalar of the outputs; all as float64."""
    moved = [move(value, dtype, device) for value in inputs]
    outputs = function(*moved)
    outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    generator = torch.Generator().manual_seed(11)
    seeds = [torch.randn(out.shape, generator=generator).to(device=device, dtype=out.dtype) for out in outputs]
    leaves = [value for value in moved if isinstance(value, torch.Tensor) and value.requires_grad]
    gradients = torch.autograd.grad(outputs, leaves, seeds)
    return [_exact(out) for out in outputs], [_exact(gradient) for gradient in gradients]


def move(value: Any, dtype: torch.dtype, device: str) -> Any:
    """A tensor in another place, and in another dtype where it is no integer; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    target = dtype if value.is_floating_point() else value.dtype
    return value.detach().to(device=device, dtype=target).requires_grad_(value.requires_grad)


def _exact(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().double().cpu()


def check(case: Case, dtype: torch.dtype, device: str, seed: int = 0) -> None:
    """Asserts the rule for one case in one dtype on one device. Inputs are rounded to the dtype before the truth."""
    inputs = case.draw(torch.Generator().manual_seed(seed))
    rounded = [move(move(value, dtype, "cpu"), torch.float32, "cpu") for value in inputs]
    truth = run(case.reference, rounded, torch.float64, device)
    plain = run(case.reference, rounded, dtype, device)
    fast = run(case.fast, rounded, dtype, device)
    for kind, wanted, theirs, ours in zip(("output", "gradient"), truth, plain, fast, strict=True):
        for index, (w, t, o) in enumerate(zip(wanted, theirs, ours, strict=True)):
            assert_rule(f"{case.name} {dtype} {kind} {index}", o, t, w, dtype)


def assert_rule(where: str, ours: torch.Tensor, theirs: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    """Our error against ``wanted`` (float64) beside plain torch's, as root mean square and as maximum."""
    assert ours.shape == wanted.shape, where
    if not ours.numel():
        return
    for error, usual, allowed in errors(ours, theirs, wanted.detach().double(), torch.finfo(dtype).eps):
        assert error <= allowed, (where, error, usual, allowed)


def label_ops() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The in-place gradient of cross-entropy and its reference, which the list above reaches only through the head."""
    return cross_entropy.cross_entropy_gradient_, reference.cross_entropy_gradient_
