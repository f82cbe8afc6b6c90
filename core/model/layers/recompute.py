"""Recomputes a layer in the backward pass from its input, kept on the card or in host memory.

Recomputing (Chen et al. 2016, arXiv:1604.06174) keeps D values a token instead of about eleven times as many, and runs
the layer forward again, without the gated product and the down projection, which the backward pass does not read.

To host memory, an input is copied on its own stream while the next layers compute; it returns one layer ahead of use::

    forward    compute  L0    L1    L2    ...          backward   compute  L2    L1    L0
               out         x0    x1    x2                          in     x1    x0

Each layer has one pinned buffer, reused by every micro-batch (more where several are pending). At most two inputs are
being copied out; each is released after the copy's event on the compute stream, so the host never waits. Where a layer
is computed tile by tile (``core.model.layers.tiles``) its input comes back so too, each tile while one is computed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from core.model.streaming.host_pages import PAGE_BYTES, memory

Run = Callable[..., torch.Tensor]


class ActivationStore:
    """Keeps one layer's input on the card from its forward to its backward pass."""

    def put(self, x: torch.Tensor) -> Any:
        """What ``take`` needs; autograd keeps it if it is a tensor."""
        return x

    def take(self, kept: Any) -> torch.Tensor:
        """The input; the store releases its memory."""
        tensor: torch.Tensor = kept
        return tensor

    def tiles(self, kept: Any, size: int) -> Iterator[tuple[slice, torch.Tensor]]:
        """The input's rows from first to last, ``size`` at a time, and where they are. May be asked for again."""
        for rows in spans(len(kept), size):
            yield rows, kept[rows]

    def let_go(self) -> None:
        """Releases inputs that are being copied."""


def spans(rows: int, size: int) -> Iterator[slice]:
    """So many rows, ``size`` at a time."""
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


class _CopyStreams:
    """What the host stores of a model share: two streams, and the inputs being copied out."""

    def __init__(self, device: torch.device) -> None:
        self.out = torch.cuda.Stream(device)
        self.back = torch.cuda.Stream(device)
        self.outgoing: list[tuple[torch.Tensor, torch.cuda.Event]] = []

    def let_go(self, most: int) -> None:
        """Releases all but the last ``most`` inputs; the compute stream waits for their copies."""
        while len(self.outgoing) > most:
            tensor, copied = self.outgoing.pop(0)
            copied.wait(torch.cuda.current_stream(tensor.device))


class HostRows:
    """Room for rows in pages of host memory, each of as many whole rows as it holds; pinned as far as that is allowed.

    torch rounds pinned memory up to a power of two: pages are one, and only a shorter last one is rounded.
    """

    def __init__(self) -> None:
        self._pages: list[torch.Tensor] = []

    def hold(self, x: torch.Tensor) -> None:
        """Makes room for rows such as ``x``'s."""
        row = x[:1].nbytes
        for number, rows in enumerate(spans(len(x), rows_of_page(row))):
            size = (rows.stop - rows.start) * row
            size = PAGE_BYTES if rows.stop < len(x) and size < PAGE_BYTES else size
            if number == len(self._pages):
                self._pages.append(_page(size))
            elif len(self._pages[number]) < size:
                self._pages[number] = _page(size)

    def pieces(self, rows: slice, like: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The rows' places here, each with that in ``like``, which is these rows elsewhere."""
        row, done = like[:1].nbytes, rows.start
        a_page = rows_of_page(row)
        while done < rows.stop:
            page, first = divmod(done, a_page)
            count = min(a_page - first, rows.stop - done)
            there = like[done - rows.start :][:count]
            here = self._pages[page][first * row : (first + count) * row]
            yield here.view(like.dtype).view(there.shape), there
            done += count


def rows_of_page(row_bytes: int) -> int:
    """How many rows lie in one page."""
    return max(1, PAGE_BYTES // max(1, row_bytes))


def _page(size: int) -> torch.Tensor:
    try:
        return memory(size, pinned=True)
    except RuntimeError:  # the system pins no more: the driver stages the copies itself
        return memory(size, pinned=False)


class _HostInput:
    """A layer's input in host memory, until it is taken or its micro-batch is abandoned."""

    def __init__(self, x: torch.Tensor, host: HostRows, copied: torch.cuda.Event, store: HostActivationStore) -> None:
        self.shape, self.dtype, self.device = x.shape, x.dtype, x.device
        self.host, self.copied, self.store = host, copied, store
        self.coming: tuple[torch.Tensor, torch.cuda.Event] | None = None

    def fetch(self, streams: _CopyStreams) -> tuple[torch.Tensor, torch.cuda.Event]:
        """Starts the copy back, once; returns the input and the event of its arrival."""
        if self.coming is None:
            self.coming = self.send(slice(0, self.shape[0]), streams)
        return self.coming

    def send(self, rows: slice, streams: _CopyStreams) -> tuple[torch.Tensor, torch.cuda.Event]:
        """Starts a copy of these rows; returns them and the event of their arrival."""
        # Allocated on the compute stream, whose earlier use of the memory must end before the copy.
        tensor = torch.empty(rows.stop - rows.start, *self.shape[1:], dtype=self.dtype, device=self.device)
        streams.back.wait_stream(torch.cuda.current_stream(self.device))
        streams.back.wait_event(self.copied)
        with torch.cuda.stream(streams.back):
            for here, there in self.host.pieces(rows, tensor):
                there.copy_(here, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        return tensor, arrived

    def __del__(self) -> None:
        if self.coming is not None:  # freed on the compute stream, which must not be ahead of the copy
            self.coming[1].wait(torch.cuda.current_stream(self.device))
        self.store.free.append(self.host)


class HostActivationStore(ActivationStore):
    """Keeps a layer's inputs in pinned host memory. ``before`` is the store of the previous layer.

    Each pending input has a buffer of its own, so several forward passes may precede a backward pass.
    """

    def __init__(self, streams: _CopyStreams, before: HostActivationStore | None) -> None:
        self._streams = streams
        self._before = before
        self.free: list[HostRows] = []
        self._last: Callable[[], _HostInput | None] = lambda: None

    @staticmethod
    def row(count: int, device: torch.device) -> list[HostActivationStore]:
        """Stores for ``count`` layers, first to last."""
        streams, stores = _CopyStreams(device), list[HostActivationStore]()
        for _ in range(count):
            stores.append(HostActivationStore(streams, stores[-1] if stores else None))
        return stores

    def put(self, x: torch.Tensor) -> _HostInput:
        """Starts the copy to the host."""
        x = x.detach()
        host = self.free.pop() if self.free else HostRows()
        host.hold(x)
        self._streams.let_go(1)
        self._streams.out.wait_stream(torch.cuda.current_stream(x.device))
        self._streams.out.wait_stream(self._streams.back)  # the buffer may still be read for its previous input
        with torch.cuda.stream(self._streams.out):
            for here, there in host.pieces(slice(0, len(x)), x):
                here.copy_(there, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record()
        self._streams.outgoing.append((x, copied))
        host_input = _HostInput(x, host, copied, self)
        self._last = weakref.ref(host_input)
        return host_input

    def take(self, kept: Any) -> torch.Tensor:
        """Waits for the copy back, and starts that of the previous layer."""
        host_input: _HostInput = kept
        self._streams.let_go(0)
        tensor, arrived = host_input.fetch(self._streams)
        ahead = self._before._last() if self._before is not None else None
        if ahead is not None:
            ahead.fetch(self._streams)
        arrived.wait(torch.cuda.current_stream(tensor.device))
        return tensor

    def tiles(self, kept: Any, size: int) -> Iterator[tuple[slice, torch.Tensor]]:
        """Each tile comes while the one before it is computed."""
        host_input: _HostInput = kept
        self._streams.let_go(0)
        compute = torch.cuda.current_stream(host_input.device)
        order = list(spans(host_input.shape[0], size))
        coming = host_input.send(order[0], self._streams)
        try:
            for rows, following in zip(order, [*order[1:], None], strict=True):
                tensor, arrived = coming
                if following is not None:
                    coming = host_input.send(following, self._streams)
                arrived.wait(compute)
                yield rows, tensor
        finally:
            coming[1].wait(compute)  # left early: its memory goes back to the compute stream

    def let_go(self) -> None:
        """Releases inputs that are being copied out, after their copies."""
        self._streams.let_go(0)


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, run: Run, store: ActivationStore, stand_in: torch.Tensor, *adapters: torch.Tensor
    ) -> torch.Tensor:
        kept = store.put(x)
        here = isinstance(kept, torch.Tensor)
        ctx.save_for_backward(kept if here else stand_in, *adapters)
        ctx.run, ctx.store, ctx.host_input = run, store, None if here else kept
        return run(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        kept, *adapters = ctx.saved_tensors
        x = ctx.store.take(kept if ctx.host_input is None else ctx.host_input).detach()
        ctx.host_input = None
        x.requires_grad_(ctx.needs_input_grad[0])
        with torch.enable_grad():
            y = ctx.run(x, wanted=False)
        owed = [tensor for tensor in (x, *adapters) if tensor.requires_grad]
        gradients = iter(torch.autograd.grad(y, owed, dy))
        dx, *rest = [next(gradients) if tensor.requires_grad else None for tensor in (x, *adapters)]
        return dx, None, None, None, *rest


def recomputed(run: Run, x: torch.Tensor, adapters: Sequence[torch.Tensor], store: ActivationStore) -> torch.Tensor:
    """``run(x)``, of which only x is kept, in ``store``.

    Args:
        run: ``run(x, wanted=True)`` returns the layer's output ``[T, D]`` and uses no randomness; with
            ``wanted=False`` only its backward pass is needed, not its values.
        adapters: every tensor in ``run`` that needs a gradient.
    """
    stand_in = x.new_empty(0)
    result: torch.Tensor = _Recomputed.apply(x, run, store, stand_in, *adapters)
    return result
