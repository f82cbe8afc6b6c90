"""A layer whose activations are made again in the backward pass, its input kept on the card or in host memory.

Recomputing (Chen et al. 2016, arXiv:1604.06174) keeps one row of D values a token instead of about eleven, and runs
the layer forward once more, except for what nothing reads then: the gated product and the down projection.

In host memory, a layer's input goes out on a stream of its own while the next layers compute, and comes back one layer
ahead of its use::

    forward    compute  L0    L1    L2    ...          backward   compute  L2    L1    L0
               out         x0    x1    x2                          in     x1    x0

Each layer has one pinned buffer, used again by every pass. Of the inputs that are on their way out two are alive at a
time; they are let go only after the copy's event, on the compute stream, so that no memory waits for the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

__all__ = ["HostShelf", "Shelf", "recomputed"]

Run = Callable[..., torch.Tensor]


class Shelf:
    """Keeps one layer's input from its forward to its backward pass, where it is."""

    def put(self, x: torch.Tensor) -> Any:
        """What ``take`` needs; a tensor is kept by autograd, anything else as it is."""
        return x

    def take(self, kept: Any) -> torch.Tensor:
        """The input again, and its memory released on the shelf."""
        tensor: torch.Tensor = kept
        return tensor


class _Lane:
    """What the host shelves of one model share: two streams, and the inputs that are on their way out."""

    def __init__(self, device: torch.device) -> None:
        self.out = torch.cuda.Stream(device)
        self.back = torch.cuda.Stream(device)
        self.leaving: list[tuple[torch.Tensor, torch.cuda.Event]] = []

    def let_go(self, most: int) -> None:
        """Lets go of all but the last ``most`` inputs; the compute stream waits for their copies."""
        while len(self.leaving) > most:
            tensor, copied = self.leaving.pop(0)
            copied.wait(torch.cuda.current_stream(tensor.device))


class HostShelf(Shelf):
    """One layer's place in pinned host memory. ``before`` is the shelf of the layer before it."""

    def __init__(self, lane: _Lane, before: HostShelf | None) -> None:
        self._lane = lane
        self._before = before
        self._host = torch.empty(0)
        self._shape: torch.Size | None = None
        self._copied: torch.cuda.Event | None = None
        self._coming: tuple[torch.Tensor, torch.cuda.Event] | None = None

    @staticmethod
    def row(count: int, device: torch.device) -> list[HostShelf]:
        """Shelves for ``count`` layers, first to last."""
        lane, shelves = _Lane(device), list[HostShelf]()
        for _ in range(count):
            shelves.append(HostShelf(lane, shelves[-1] if shelves else None))
        return shelves

    def put(self, x: torch.Tensor) -> None:
        """Starts the copy to the host."""
        x = x.detach()
        if self._host.numel() < x.numel() or self._host.dtype != x.dtype:
            self._host = torch.empty(x.numel(), dtype=x.dtype, pin_memory=True)
        self._lane.let_go(1)
        compute = torch.cuda.current_stream(x.device)
        self._lane.out.wait_stream(compute)
        with torch.cuda.stream(self._lane.out):
            self._host[: x.numel()].view(x.shape).copy_(x, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()
        self._lane.leaving.append((x, self._copied))
        self._shape, self._coming = x.shape, None

    def take(self, kept: Any) -> torch.Tensor:  # noqa: ARG002 - the input is here, not with autograd
        """Waits for the copy back, and starts that of the layer before."""
        self._lane.let_go(0)
        self._fetch()
        assert self._coming is not None
        tensor, arrived = self._coming
        self._coming, self._shape = None, None
        if self._before is not None:
            self._before._fetch()
        arrived.wait(torch.cuda.current_stream(tensor.device))
        return tensor

    def _fetch(self) -> None:
        if self._coming is not None or self._shape is None or self._copied is None:
            return
        lane = self._lane
        # The memory comes from the compute stream: what used it before there must be over when the copy begins.
        tensor = torch.empty(self._shape, dtype=self._host.dtype, device=lane.back.device)
        lane.back.wait_stream(torch.cuda.current_stream(tensor.device))
        lane.back.wait_event(self._copied)
        with torch.cuda.stream(lane.back):
            tensor.copy_(self._host[: tensor.numel()].view(self._shape), non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        self._coming = (tensor, arrived)


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, run: Run, shelf: Shelf, stand_in: torch.Tensor, *adapters: torch.Tensor
    ) -> torch.Tensor:
        kept = shelf.put(x)
        if isinstance(kept, torch.Tensor):
            ctx.save_for_backward(kept, *adapters)
        else:
            ctx.save_for_backward(stand_in, *adapters)
        ctx.run, ctx.shelf = run, shelf
        return run(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        kept, *adapters = ctx.saved_tensors
        x = ctx.shelf.take(kept).detach()
        x.requires_grad_(ctx.needs_input_grad[0])
        with torch.enable_grad():
            y = ctx.run(x, wanted=False)
        owed = [tensor for tensor in (x, *adapters) if tensor.requires_grad]
        found = iter(torch.autograd.grad(y, owed, dy))
        dx, *rest = [next(found) if tensor.requires_grad else None for tensor in (x, *adapters)]
        return dx, None, None, None, *rest


def recomputed(run: Run, x: torch.Tensor, adapters: Sequence[torch.Tensor], shelf: Shelf) -> torch.Tensor:
    """``run(x)``, of which only x is kept, on ``shelf``.

    Args:
        run: ``run(x, wanted=True)`` gives the layer's output ``[T, D]`` and draws nothing at random; with
            ``wanted=False`` its values are not asked for.
        adapters: every tensor in ``run`` that a gradient is owed to.
    """
    stand_in = x.new_empty(0)
    result: torch.Tensor = _Recomputed.apply(x, run, shelf, stand_in, *adapters)
    return result
