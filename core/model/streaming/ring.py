"""Slots on the card through which layers' weights go: the next layer is copied on its own stream while one computes.

Streamed layer k always lies in slot ``k mod S``, so the addresses that kernels were told never change. With two slots::

    forward    compute  L0    L1    L2    L3        backward   compute  L3    L2    L1    L0
               copy          L2    L3                          copy                L1    L0

A layer asks (``need``) before it is computed, recomputed, or goes backward. All kernels of the layers before it are in
the compute stream by then, so the copy into the slot of an earlier layer waits for an event at that point, and the
compute stream waits for the event behind the copy: the host waits for neither. What lies in the slots when a pass
turns round is used again without a copy.

Memory that could not be pinned goes through two small pinned buffers, filled by a thread (``_Staging``). On the CPU the
slots are host memory too, and copies are immediate.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from statistics import median
from typing import Any

import torch

from core.model.streaming.host_pages import Span

SLOTS = 2
TRIED = 3
"""Copies of which the median counts: the first may find others not begun yet, the last find them done."""
STAGED_BYTES = 16 * 2**20
"""Each of two buffers between plain host memory and the card."""


class Ring:
    """The slots, and which layer lies in each."""

    def __init__(self, spans: Sequence[Span], device: torch.device) -> None:
        self.spans = spans
        count, size = min(SLOTS, len(spans)), max(span.size for span in spans)
        self.slots = [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(count)]
        self._held = [-1] * count
        self._coming: list[Future[Any] | None] = [None] * count
        self._at = -1
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        staged = self._stream is not None and not all(span.pinned for span in spans)
        self._staging = _Staging() if staged else None
        self.copied_bytes = 0
        """So far."""

    @property
    def host_bytes(self) -> int:
        """What the layers take of the machine's memory."""
        return sum(span.size for span in self.spans)

    @property
    def plain_bytes(self) -> int:
        """What of it is not pinned beside a card."""
        return sum(len(part) for span in self.spans if not span.pinned for part in span.parts if not part.is_pinned())

    def need(self, number: int, back: bool, alone: bool = False) -> None:
        """Returns when work that is enqueued next may read this layer, and starts the copy of the one after it.

        Args:
            number: among the streamed layers.
            back: whether a backward pass asks.
            alone: whether it is a forward pass behind which none comes.
        """
        turned = number != self._at
        self.hold(number)
        if turned:
            following = number - 1 if back else number + 1
            if following == len(self.spans) and alone:
                following = 0  # where the next pass begins
            if 0 <= following < len(self.spans) and following % len(self.slots) != number % len(self.slots):
                self._fetch(following)

    def hold(self, number: int) -> None:
        """The same without a copy ahead, for whoever reads a single layer."""
        self._at = number
        self._fetch(number)
        coming = self._coming[number % len(self.slots)]
        if coming is not None and self._stream is not None:
            coming.result().wait(torch.cuda.current_stream(self._device))

    def rate(self) -> float:
        """Bytes a second to the card, by copies of one layer; 0 without a card."""
        if self._stream is None:
            return 0.0
        seconds = []
        for _ in range(TRIED):
            self._held, self._at = [-1] * len(self.slots), -1
            self._stream.synchronize()
            torch.cuda.synchronize(self._device)
            begun = time.perf_counter()
            self.hold(0)
            torch.cuda.synchronize(self._device)
            seconds.append(time.perf_counter() - begun)
        return self.spans[0].size / median(seconds)

    def _fetch(self, number: int) -> None:
        place = number % len(self.slots)
        if self._held[place] == number:
            return
        self._held[place] = -1
        span, slot = self.spans[number], self.slots[place]
        self.copied_bytes += span.size
        if self._stream is None:
            _copy(span, slot)
        else:
            read = torch.cuda.Event()
            read.record(torch.cuda.current_stream(self._device))  # behind all that reads the slot now
            self._coming[place] = self._send(span, slot, read)
        self._held[place] = number

    def _send(self, span: Span, slot: torch.Tensor, read: torch.cuda.Event) -> Future[Any]:
        """Enqueues the copy behind ``read``; its result is the event of its arrival."""

        def copy() -> torch.cuda.Event:
            assert self._stream is not None
            with torch.cuda.device(self._device), torch.cuda.stream(self._stream), torch.no_grad():
                self._stream.wait_event(read)
                _copy(span, slot) if span.pinned or self._staging is None else self._staging.copy(span, slot)
                arrived = torch.cuda.Event()
                arrived.record(self._stream)
            return arrived

        if self._staging is not None:  # all by one thread, in the order in which they were asked for
            return self._staging.thread.submit(copy)
        done: Future[Any] = Future()
        done.set_result(copy())
        return done

    def __del__(self) -> None:
        stream: torch.cuda.Stream | None = getattr(self, "_stream", None)
        if stream is not None:  # the slots' memory may go to somebody else
            if self._staging is not None:
                self._staging.thread.shutdown(wait=True)
            stream.synchronize()


class _Staging:
    """A thread that copies plain host memory through two pinned buffers."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="weights")
        self._buffers = [_buffer(), _buffer()]
        self._sent = [torch.cuda.Event(), torch.cuda.Event()]
        self._turn = 0

    def copy(self, span: Span, slot: torch.Tensor) -> None:
        """Enqueues copies on the current stream; waits where a buffer is still read."""
        start = 0
        for part in span.parts:
            for piece in part.split(STAGED_BYTES):
                buffer, sent = self._buffers[self._turn], self._sent[self._turn]
                self._turn = 1 - self._turn
                sent.synchronize()
                buffer[: len(piece)].copy_(piece)
                slot[start : start + len(piece)].copy_(buffer[: len(piece)], non_blocking=True)
                sent.record()
                start += len(piece)


def _buffer() -> torch.Tensor:
    try:
        return torch.empty(STAGED_BYTES, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:  # not even these: the driver stages them itself
        return torch.empty(STAGED_BYTES, dtype=torch.uint8)


def _copy(span: Span, slot: torch.Tensor) -> None:
    start = 0
    for part in span.parts:
        slot[start : start + len(part)].copy_(part, non_blocking=True)
        start += len(part)
