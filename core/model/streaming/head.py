"""A frozen head over the vocabulary in host memory, of which tiles of rows come to the card while others are used.

The loss reads it once for each block of tokens (``core.kernels.linear_cross_entropy``); whoever asks for logits, as an
answer that is being written does, reads it once each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from core.model.streaming.host_pages import Span, pin_part
from core.model.streaming.ring import Ring
from core.model.streaming.rows import stand_in

TILE_BYTES = 32 * 2**20
"""Each of two tiles on the card."""


class HostHead:
    """A table ``[V, D]`` on the host, and its tiles' way to the card."""

    def __init__(self, table: torch.Tensor, device: torch.device) -> None:
        row, flat = table[:1].nbytes, table.view(-1).view(torch.uint8)
        self.table, self._rows = table, max(1, TILE_BYTES // row)
        spans = [Span((part,), pinned=True) for part in flat.split(self._rows * row)]
        if device.type == "cuda" and not flat.is_pinned():
            try:
                pin_part(flat, spans[0], flat)  # which the ring lets go of when no copy reads it
            except RuntimeError:  # the system pins no more: tiles go through small buffers
                spans = [replace(span, pinned=False) for span in spans]
        self.ring = Ring(spans, device)

    def tiles(self) -> Iterator[tuple[int, torch.Tensor]]:
        """Rows ``[rows, D]`` on the card and the number of the first, to be used before the next are asked for."""
        for number, span in enumerate(self.ring.spans):
            self.ring.need(number, back=False, alone=True)
            slot = self.ring.slots[number % len(self.ring.slots)]
            yield number * self._rows, slot[: span.size].view(self.table.dtype).view(-1, self.table.shape[1])


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, head: HostHead) -> torch.Tensor:
        ctx.head = head
        return torch.cat([hidden @ tile.T for _, tile in head.tiles()], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        parts = (grad[..., first : first + len(tile)] @ tile for first, tile in ctx.head.tiles())
        result = next(parts)
        for part in parts:
            result += part
        return result, None


class _HostLinear(nn.Linear):
    host_head: HostHead

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[..., D]`` to ``[..., V]``."""
        logits: torch.Tensor = _Logits.apply(hidden.to(self.host_head.table.dtype), self.host_head)
        return logits

    def __deepcopy__(self, _known: Any) -> nn.Linear:
        table = self.host_head.table
        with torch.device("meta"):
            copied = nn.Linear(table.shape[1], table.shape[0], bias=False)
        copied.weight = nn.Parameter(table.to(self.weight.device, copy=True), requires_grad=False)
        return copied.train(self.training)


def head_on_host(head: nn.Linear, table: torch.Tensor, device: torch.device) -> nn.Linear:
    """A head that shares all attributes of ``head``, which has no bias, and computes with ``table``. Its weight is a
    stand-in without numbers; a copy of it, which is to be trained, is a usual one again."""
    head.weight.data = stand_in(table, device)
    new: nn.Linear = object.__new__(_HostLinear)
    new.__dict__ = head.__dict__
    new.__dict__["host_head"] = HostHead(table, device)
    return new


def host_head_of(head: Any) -> HostHead | None:
    """The head's way from the host; None where it lies on the card."""
    return head.host_head if isinstance(head, _HostLinear) else None
