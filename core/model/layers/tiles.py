"""A decoder layer over long rows: all of it but attention a tile of tokens at a time.

What is wide in the sequence beside a layer's input x and output y are the heads ``[q | k | v]``, attention's result a,
and within a tile everything else. Forward::

    tiles   [q | k | v] = first(x)          all        a = attend(q, k, v)          tiles   y = second(a, x)

A recomputed layer keeps x alone, on the card or in host memory, whence it comes a tile at a time. Backward::

    tiles   [q | k | v] = first(x)          all        a = attend(q, k, v)
    tiles   second(a, x) and, at once, its backward pass: da, and the residual's dh
    groups  dq, dk, dv of da, group of heads after group of heads, over q, k and v
    tiles   first(x) once more and its backward pass: dx of these and dh, over dh

Heads know nothing of each other: by groups what attention's backward pass takes beside its results is a part of the
whole, and each group's a and da go with it. Adapter gradients are summed over tiles in their own dtype (float32), from
the first tile to the last. Matrices (M of ``core.kernels.lora``) are made once for all tiles of a half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from core.kernels.lora import Stack
from core.kernels.lora_mlp import Mlp, lora_mlp
from core.kernels.lora_qkv import Heads, Norm, lora_qkv
from core.model.layers.recompute import ActivationStore, spans

MOST_GROUPS = 8
"""Groups of heads in which attention is computed: each fills a card with rows so long."""
Tensors = tuple[torch.Tensor, ...]
Tiles = Iterable[tuple[slice, torch.Tensor]]
Attend = Callable[[Tensors], torch.Tensor]
"""Of heads ``[T, some heads, size]``: ``[T, the query ones · size]``."""


@dataclass(frozen=True)
class Halves:
    """A layer's two halves and the attention between them, for one pass. ``angles`` are ``[1, T, turned columns]``."""

    norm: Norm
    qkv: Stack
    heads: Heads
    mlp: Mlp
    angles: tuple[torch.Tensor, torch.Tensor]
    attend: Attend
    tile: int
    """Tokens of a tile."""
    together: bool = False
    """Whether attention is computed for all heads at once."""

    def first(self) -> Callable[[torch.Tensor, slice], Tensors]:
        """``(q, k, v, x)`` of a tile x and where it is."""
        stack = self.qkv.held()

        def run(x: torch.Tensor, rows: slice) -> Tensors:
            cos, sin = (angle[:, rows] for angle in self.angles)
            return lora_qkv(x, self.norm, stack, self.heads, (cos, sin))

        return run

    def second(self) -> Callable[[torch.Tensor, torch.Tensor, bool], torch.Tensor]:
        """y of tiles a and x; without values where it is not wanted."""
        mlp = self.mlp.held()
        return lambda a, x, wanted: lora_mlp(a, x, mlp, wanted)

    def groups(self, rows: torch.Tensor) -> list[Tensors]:
        """``(q, k, v)`` of each group of heads, views of ``rows [T, columns]``."""
        keys = self.heads.key
        most = 1 if self.together else MOST_GROUPS
        count = next(count for count in range(min(most, keys), 0, -1) if keys % count == 0)
        # ``data`` counts no changes: a group's gradient is written over it while those of others are still to come.
        parts = [part.tensor_split(count, dim=1) for part in self.heads.cut(rows.data)]
        return list(zip(*parts, strict=True))

    def projected(self, tiles: Tiles, like: torch.Tensor, length: int) -> torch.Tensor:
        """``[q | k | v]`` of all tokens."""
        all_rows, run = like.new_empty(length, self.heads.columns), self.first()
        for rows, x in tiles:
            for part, place in zip(run(x, rows), self.heads.cut(all_rows[rows]), strict=False):
                place.copy_(part)
        return all_rows


Begin = Callable[[bool], Halves]
"""Called before a pass reads weights: whether it is a backward one."""


def _joined(results: Sequence[torch.Tensor], rows: slice) -> torch.Tensor:
    """Attention's rows of all groups; a view where there is one."""
    return results[0][rows] if len(results) == 1 else torch.cat([result[rows] for result in results], 1)


def _part(tile: torch.Tensor, results: Sequence[torch.Tensor], rows: slice) -> None:
    """Writes a tile of all heads to its rows of each group."""
    for place, part in zip(results, tile.split([one.shape[1] for one in results], 1), strict=True):
        place[rows] = part


def forward_in_tiles(x: torch.Tensor, halves: Halves) -> torch.Tensor:
    """The layer's output, without autograd."""
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        all_rows = halves.projected(((rows, x[rows]) for rows in spans(len(x), halves.tile)), x, len(x))
        results = [halves.attend(group) for group in halves.groups(all_rows)]
        del all_rows
        y, run = torch.empty_like(x), halves.second()
        for rows in spans(len(x), halves.tile):
            y[rows] = run(_joined(results, rows), x[rows], True)
    return y


class _Sums:
    """Gradients of adapters, summed over tiles."""

    def __init__(self, adapters: Sequence[torch.Tensor]) -> None:
        self.owed = [adapter for adapter in adapters if adapter.requires_grad]
        self._adapters, self._sums = adapters, list[torch.Tensor]()

    def add(self, gradients: Sequence[torch.Tensor]) -> None:
        """Those of one more tile, in the order of ``owed``."""
        if not self._sums:
            self._sums = list(gradients)
            return
        for known, gradient in zip(self._sums, gradients, strict=True):
            known.add_(gradient)

    def all(self) -> list[torch.Tensor | None]:
        """One for each adapter, None where it is not trained."""
        sums = iter(self._sums)
        return [next(sums, None) if adapter.requires_grad else None for adapter in self._adapters]


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, begin: Begin, store: ActivationStore, stand_in: torch.Tensor,
        *_adapters: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        kept = store.put(x)
        here = isinstance(kept, torch.Tensor)
        ctx.save_for_backward(kept if here else stand_in)
        ctx.begin, ctx.store, ctx.host_input = begin, store, None if here else kept
        return forward_in_tiles(x, begin(False))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        source = kept if ctx.host_input is None else ctx.host_input
        with torch.autocast(dy.device.type, enabled=False):
            back = _Backward(ctx.begin(True), partial(ctx.store.tiles, source), ctx.needs_input_grad[0])
            dx = back.run(dy.contiguous())
        ctx.host_input = None
        return dx, None, None, None, *back.gradients()


class _Backward:
    """The backward pass of one layer; ``tiles`` gives its input's rows, as often as asked."""

    def __init__(self, halves: Halves, tiles: Callable[[int], Tiles], wants_input: bool) -> None:
        self._halves, self._wants_input = halves, wants_input
        self._tiles = lambda: tiles(halves.tile)
        self._front, self._behind = _Sums(halves.qkv.adapters), _Sums(halves.mlp.adapters)

    def gradients(self) -> list[torch.Tensor | None]:
        """Of the adapters, after ``run``."""
        return [*self._front.all(), *self._behind.all()]

    def run(self, dy: torch.Tensor) -> torch.Tensor | None:
        """dx ``[T, D]``; None where nobody wants it."""
        halves, through = self._halves, self._wants_input or bool(self._front.owed)
        with torch.no_grad():
            heads = halves.projected(self._tiles(), dy, len(dy))
        with torch.enable_grad():
            groups = [tuple(part.requires_grad_(through) for part in group) for group in halves.groups(heads)]
            results = [halves.attend(group) for group in groups]
        dh, da = self._second(dy, [result.detach() for result in results], through)
        if not through:
            return None
        while groups:
            group = groups.pop(0)
            gradients = torch.autograd.grad(results.pop(0), group, da.pop(0))
            for place, gradient in zip(group, gradients, strict=True):
                place.data.copy_(gradient)
            del gradients, gradient
        return self._first(heads, dh)

    def _second(
        self, dy: torch.Tensor, results: list[torch.Tensor], through: bool
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """``(dh [T, D], da of each group)`` of the second half; nothing in them where nobody wants them."""
        run = self._halves.second()
        dh = torch.empty_like(dy if through else dy[:0])
        da = [torch.empty_like(result) for result in results] if through else []
        for rows, tile in self._tiles():
            a, x = (part.detach().requires_grad_(through) for part in (_joined(results, rows), tile))
            with torch.enable_grad():
                y = run(a, x, False)
            owed = [a, x] if through else []
            gradients = torch.autograd.grad(y, [*owed, *self._behind.owed], dy[rows])
            if through:
                dh[rows] = gradients[1]
                _part(gradients[0], da, rows)
            self._behind.add(gradients[len(owed) :])
            del a, x, y, owed, gradients  # before the next tile's
        return dh, da

    def _first(self, heads: torch.Tensor, dh: torch.Tensor) -> torch.Tensor | None:
        """dx over ``dh``, of the first half; ``heads`` are gradients by now."""
        halves, run = self._halves, self._halves.first()
        for rows, tile in self._tiles():
            x = tile.detach().requires_grad_(self._wants_input)
            with torch.enable_grad():
                results = run(x, rows)
            owed = [x] if self._wants_input else []
            given = [*halves.heads.cut(heads[rows]), dh[rows]]
            gradients = torch.autograd.grad(results, [*owed, *self._front.owed], given)
            if self._wants_input:
                dh[rows] = gradients[0]
            self._front.add(gradients[len(owed) :])
            del x, results, owed, given, gradients
        return dh if self._wants_input else None


def tiled(x: torch.Tensor, begin: Begin, adapters: Sequence[torch.Tensor], store: ActivationStore) -> torch.Tensor:
    """The layer's output ``[T, D]``, of which only x is kept, in ``store``.

    Args:
        begin: makes what a pass computes with.
        adapters: those of its two halves, in order.
    """
    result: torch.Tensor = _Tiled.apply(x, begin, store, x.new_empty(0), *adapters)
    return result
