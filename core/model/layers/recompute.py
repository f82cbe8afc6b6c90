"""A layer whose activations are made again in the backward pass, its input kept on the card or in host memory.

Recomputing (Chen et al. 2016, arXiv:1604.06174) keeps one row of D values a token instead of about eleven, and runs
the layer forward once more, except for what nothing reads then: the gated product and the down projection.

In host memory, a layer's input goes out on a stream of its own while the next layers compute, and comes back one layer
ahead of its use::

    forward    compute  L0    L1    L2    ...          backward   compute  L2    L1    L0
               out         x0    x1    x2                          in     x1    x0

Each layer has one pinned buffer, used again by every pass (more where passes overlap). Of the inputs that are on
their way out two are alive at a time; they are let go only after the copy's event, on the compute stream, so that no
memory waits for the host.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

Run = Callable[..., torch.Tensor]


class ActivationStore:
    """Keeps one layer's input from its forward to its backward pass, where it is."""

    def put(self, x: torch.Tensor) -> Any:
        """What ``take`` needs; a tensor is kept by autograd, anything else as it is."""
        return x

    def take(self, kept: Any) -> torch.Tensor:
        """The input again, and its memory released in the store."""
        tensor: torch.Tensor = kept
        return tensor

    def let_go(self) -> None:
        """Nothing on its way is kept any longer."""


class _Lane:
    """What the host stores of one model share: two streams, and the inputs that are on their way out."""

    def __init__(self, device: torch.device) -> None:
        self.out = torch.cuda.Stream(device)
        self.back = torch.cuda.Stream(device)
        self.leaving: list[tuple[torch.Tensor, torch.cuda.Event]] = []

    def let_go(self, most: int) -> None:
        """Lets go of all but the last ``most`` inputs; the compute stream waits for their copies."""
        while len(self.leaving) > most:
            tensor, copied = self.leaving.pop(0)
            copied.wait(torch.cuda.current_stream(tensor.device))


class _Parked:
    """One pass's input of one layer in pinned host memory, until it is taken or its pass is given up."""

    def __init__(
        self, x: torch.Tensor, host: torch.Tensor, copied: torch.cuda.Event, store: HostActivationStore
    ) -> None:
        self.shape, self.host, self.copied, self.store = x.shape, host, copied, store
        self.device = x.device
        self.coming: tuple[torch.Tensor, torch.cuda.Event] | None = None

    def fetch(self, lane: _Lane) -> tuple[torch.Tensor, torch.cuda.Event]:
        """Starts the copy back, once; the input and the event of its arrival."""
        if self.coming is None:
            # The memory comes from the compute stream: what used it before there must be over when the copy begins.
            tensor = torch.empty(self.shape, dtype=self.host.dtype, device=self.device)
            lane.back.wait_stream(torch.cuda.current_stream(self.device))
            lane.back.wait_event(self.copied)
            with torch.cuda.stream(lane.back):
                tensor.copy_(self.host[: tensor.numel()].view(self.shape), non_blocking=True)
                arrived = torch.cuda.Event()
                arrived.record()
            self.coming = (tensor, arrived)
        return self.coming

    def __del__(self) -> None:
        if self.coming is not None:  # its memory goes back to the compute stream, which must not be ahead of the copy
            self.coming[1].wait(torch.cuda.current_stream(self.device))
        self.store.free.append(self.host)


class HostActivationStore(ActivationStore):
    """One layer's place in pinned host memory. ``before`` is the store of the layer before it.

    A pass that is still on its way keeps its buffer, so two forward passes may stand before one backward pass.
    """

    def __init__(self, lane: _Lane, before: HostActivationStore | None) -> None:
        self._lane = lane
        self._before = before
        self.free: list[torch.Tensor] = []
        self._last: Callable[[], _Parked | None] = lambda: None

    @staticmethod
    def row(count: int, device: torch.device) -> list[HostActivationStore]:
        """Stores for ``count`` layers, first to last."""
        lane, stores = _Lane(device), list[HostActivationStore]()
        for _ in range(count):
            stores.append(HostActivationStore(lane, stores[-1] if stores else None))
        return stores

    def put(self, x: torch.Tensor) -> _Parked:
        """Starts the copy to the host."""
        x = x.detach()
        host = self._buffer(x)
        self._lane.let_go(1)
        self._lane.out.wait_stream(torch.cuda.current_stream(x.device))
        self._lane.out.wait_stream(self._lane.back)  # whoever had the buffer before may still be read from it
        with torch.cuda.stream(self._lane.out):
            host[: x.numel()].view(x.shape).copy_(x, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record()
        self._lane.leaving.append((x, copied))
        parked = _Parked(x, host, copied, self)
        self._last = weakref.ref(parked)
        return parked

    def take(self, kept: Any) -> torch.Tensor:
        """Waits for the copy back, and starts that of the layer before."""
        parked: _Parked = kept
        self._lane.let_go(0)
        tensor, arrived = parked.fetch(self._lane)
        ahead = self._before._last() if self._before is not None else None
        if ahead is not None:
            ahead.fetch(self._lane)
        arrived.wait(torch.cuda.current_stream(tensor.device))
        return tensor

    def let_go(self) -> None:
        """Inputs on their way out are released when they have arrived."""
        self._lane.let_go(0)

    def _buffer(self, x: torch.Tensor) -> torch.Tensor:
        while self.free:
            host = self.free.pop()
            if host.numel() >= x.numel() and host.dtype == x.dtype:
                return host
        return torch.empty(x.numel(), dtype=x.dtype, pin_memory=True)


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, run: Run, store: ActivationStore, stand_in: torch.Tensor, *adapters: torch.Tensor
    ) -> torch.Tensor:
        kept = store.put(x)
        here = isinstance(kept, torch.Tensor)
        ctx.save_for_backward(kept if here else stand_in, *adapters)
        ctx.run, ctx.store, ctx.parked = run, store, None if here else kept
        return run(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        kept, *adapters = ctx.saved_tensors
        x = ctx.store.take(kept if ctx.parked is None else ctx.parked).detach()
        ctx.parked = None
        x.requires_grad_(ctx.needs_input_grad[0])
        with torch.enable_grad():
            y = ctx.run(x, wanted=False)
        owed = [tensor for tensor in (x, *adapters) if tensor.requires_grad]
        found = iter(torch.autograd.grad(y, owed, dy))
        dx, *rest = [next(found) if tensor.requires_grad else None for tensor in (x, *adapters)]
        return dx, None, None, None, *rest


def recomputed(run: Run, x: torch.Tensor, adapters: Sequence[torch.Tensor], store: ActivationStore) -> torch.Tensor:
    """``run(x)``, of which only x is kept, in ``store``.

    Args:
        run: ``run(x, wanted=True)`` gives the layer's output ``[T, D]`` and draws nothing at random; with
            ``wanted=False`` its values are not asked for.
        adapters: every tensor in ``run`` that a gradient is owed to.
    """
    stand_in = x.new_empty(0)
    result: torch.Tensor = _Recomputed.apply(x, run, store, stand_in, *adapters)
    return result
