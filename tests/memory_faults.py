"""Memory that runs out where a test wants it to: torch's own error at the n-th call of a function."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from core.model.layers.checkpointing import checkpointing_layers
from core.train import run as run_module

CLOSE = 1e-6
"""Of the norm: the same sums in another order."""


@dataclass
class Fault:
    """Raises torch's own error at chosen calls, counted from 1."""

    at: tuple[int, ...]
    calls: int = 0
    raised: list[float] = field(default_factory=list)

    def __call__(self, *_: Any) -> None:
        self.calls += 1
        if self.calls in self.at:
            self.raised.append(time.monotonic())
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB (injected).")


Inject = Callable[[pytest.MonkeyPatch, Fault], None]


def with_trainer(patch: pytest.MonkeyPatch, then: Callable[[Any], None]) -> None:
    """``then(trainer)`` as soon as a run has one."""
    honest = run_module.prepare

    def prepare(*arguments: Any, **options: Any) -> Any:
        subject, plan = honest(*arguments, **options)
        then(subject.trainer)
        return subject, plan

    patch.setattr(run_module, "prepare", prepare)


def forward(layer: int) -> Inject:
    """Before a layer's forward pass in training."""

    def inject(patch: pytest.MonkeyPatch, fault: Fault) -> None:
        def hook(*_: Any) -> None:
            if torch.is_grad_enabled():
                fault()

        with_trainer(patch, lambda made: checkpointing_layers(made.model)[layer].register_forward_pre_hook(hook))

    return inject


def backward(layer: int) -> Inject:
    """When the backward pass reaches a layer's output."""

    def inject(patch: pytest.MonkeyPatch, fault: Fault) -> None:
        def hook(_module: Any, _given: Any, output: Any) -> None:
            hidden = output[0] if isinstance(output, tuple) else output
            if hidden.requires_grad:
                hidden.register_hook(lambda gradient: fault())

        with_trainer(patch, lambda made: checkpointing_layers(made.model)[layer].register_forward_hook(hook))

    return inject


def before(owner: Any, name: str, only: Callable[..., bool] = lambda *_: True) -> Inject:
    """Before each call of a function."""

    def inject(patch: pytest.MonkeyPatch, fault: Fault) -> None:
        honest = getattr(owner, name)

        def called(*arguments: Any, **options: Any) -> Any:
            if only(*arguments):
                fault()
            return honest(*arguments, **options)

        patch.setattr(owner, name, called)

    return inject


def after_step(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    """At the end of an optimiser's step: weights are moved and moments made."""
    honest = torch.optim.AdamW.step

    def step(self: Any, closure: Any = None) -> Any:
        done = honest(self, closure)
        fault()
        return done

    patch.setattr(torch.optim.AdamW, "step", step)


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """How far apart two adapters are, of the norm of the second."""
    assert one.keys() == other.keys()
    gap = torch.cat([(one[name] - other[name]).flatten() for name in other])
    return float(gap.norm() / torch.cat([tensor.flatten() for tensor in other.values()]).norm())
