"""Which layers stream, and how each asks for its weights, whoever computes it.

transformers' own layers ask by hooks: before they run, and, through a node of autograd behind them, before their
backward pass. A fast layer over them asks itself (``core.model.layers.surgery``); single readers of a matrix, such as
the start of an adapter, call ``bring``.
"""

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from core.model.streaming.ring import Ring

Ready = Callable[[bool, bool], None]
"""Called before a layer's weights are read, returns when they may be: whether a backward pass asks, and whether it is a
forward pass behind which none comes."""


class Streamed:
    """One streamed layer: its number in the ring."""

    def __init__(self, ring: Ring, number: int) -> None:
        self.ring, self.number = ring, number

    def __call__(self, back: bool, alone: bool) -> None:
        self.ring.need(self.number, back, alone)

    def hold(self) -> None:
        """For a single reader."""
        self.ring.hold(self.number)


class Hook:
    """A hook of ours on a layer, which computes nothing: a fast layer may take its place."""

    def __init__(self, ready: Streamed) -> None:
        self._ready = ready

    def __call__(self, _layer: nn.Module, _inputs: Any, *output: Any) -> Any:
        if not output:
            self._ready(False, not torch.is_grad_enabled())
            return None
        (given,) = output
        if isinstance(given, tuple):
            return (awaited(given[0], self._ready), *given[1:])
        return awaited(given, self._ready)


class _Awaited(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, ready: Ready) -> torch.Tensor:
        ctx.ready = ready
        return y.view_as(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.ready(True, False)
        return dy, None


def awaited(y: torch.Tensor, ready: Ready) -> torch.Tensor:
    """A layer's result, before whose backward pass its weights are asked for."""
    result: torch.Tensor = _Awaited.apply(y, ready) if y.requires_grad else y
    return result


_LAYERS: WeakKeyDictionary[nn.Module, Streamed] = WeakKeyDictionary()
_MATRICES: WeakKeyDictionary[nn.Module, Streamed] = WeakKeyDictionary()


def stream(layer: nn.Module, matrices: Iterable[nn.Module], streamed: Streamed) -> None:
    """Has a layer ask for its weights from now on."""
    hook = Hook(streamed)
    layer.register_forward_pre_hook(hook)
    layer.register_forward_hook(hook)
    _LAYERS[layer] = streamed
    for matrix in matrices:
        _MATRICES[matrix] = streamed


def ready_of(layer: nn.Module) -> Ready | None:
    """What to call before a layer's weights are read; None where they always lie on the card."""
    return _LAYERS.get(layer)


def bring(matrix: nn.Module) -> None:
    """Has one matrix's weight in its place, for whoever reads it now; nothing where it always is."""
    if (streamed := _MATRICES.get(matrix)) is not None:
        streamed.hold()


def bringer(model: nn.Module) -> Callable[[str], None]:
    """``bring`` by the name of a tensor in the model's state."""
    matrices = {name: module for name, module in model.named_modules() if module in _MATRICES}

    def by_name(name: str) -> None:
        while name and name not in matrices:
            name = name.rpartition(".")[0]
        if name:
            bring(matrices[name])

    return by_name


def ring_of(model: nn.Module) -> Ring | None:
    """What a model's layers stream through; None where all of them lie on the card."""
    return next((_MATRICES[module].ring for module in model.modules() if module in _MATRICES), None)


def spread(layers: int, streamed: int) -> list[bool]:
    """Which layers stream: evenly spread, so that each copy hides behind as many resident layers as there are."""
    return [(index + 1) * streamed // layers > index * streamed // layers for index in range(layers)]
