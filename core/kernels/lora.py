"""Frozen projections with their LoRA adapters, as products with one bordered matrix.

Projections that share their input (q, k and v; gate and up) are stacked. With W ``[O, D]`` their weights one below
the other, A ``[R, D]`` likewise, and sB ``[O, R]`` block-diagonal with each adapter's scale in it::

    M = [[ W , sB ],        low  = x A'            y  = x W' + low (sB)'   = [x, low] [W, sB]'
         [ A ,  0 ]]        dlow = dy (sB)         dx = dy W + dlow A      = [dy, dlow] [W; A]

                            dA   = dlow' x         dB = s · dy' low        dW is never needed

So the adapter adds R columns to one large product and no second pass over y or dx; R stays the inner size, and
``s B A`` is never formed. What is multiplied lies in buffers with room for those columns: ``[x, low]`` is
``[T, D + R]``, ``[dy, dlow]`` is ``[T, O + R]``. M is made anew for each pass over the layer: a 4-bit weight is not
kept in 16 bits (but see ``Stack.keeping``). The adapter's gradients are summed and kept in float32. R is the ranks' sum
rounded up so that every row of M and of the buffers begins on a cache line and the large product's inner size is whole
tiles (measured on an H200: 1.8 % of a step, against a multiple of 8); what is rounded up holds zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from core.kernels.reference import wide
from core.kernels.weights.forms import PLAIN, HeldForm
from core.kernels.weights.nf4_stack import Table

WORD_BYTES = 16
"""What a GPU's thread moves at once."""
TILE = 64
"""Values of 16 bits in a cache line, and the inner size of the matrix units' tiles."""
NARROW = 1024
"""Below this width a whole tile of zeros would cost more than it brings."""


@dataclass(frozen=True)
class Projection:
    """``y = x W' + bias + scale · (x A') B'``; A ``[R, D]`` and B ``[O, R]`` are None where no adapter sits.

    ``held`` is the frozen weight as its form keeps it: a function that gives it, or its quantised tensors.
    """

    held: Any
    bias: torch.Tensor | None
    a: torch.Tensor | None
    b: torch.Tensor | None
    scale: float
    shape: tuple[int, int]
    form: HeldForm = PLAIN

    def weight(self) -> torch.Tensor:
        """W ``[O, D]``, made wide anew where it is held in fewer bits."""
        return self.form.widen(self.held, None)

    @property
    def rank(self) -> int:
        """R, 0 without an adapter."""
        return 0 if self.a is None else int(self.a.shape[0])


@dataclass(frozen=True)
class Normed:
    """What a norm made of rows h: ``x = h · s · w``, s ``[T]`` a row and w ``[D]`` a column."""

    s: torch.Tensor
    w: torch.Tensor

    def product(self, dlow: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """``dlow' x`` ``[R, D]`` from h ``[T, D]``: both factors go to the small sides, and x is not made again."""
        s = self.s[:, None]
        # Of small rows s is in the hundreds, which float16's exponent has no room for beside a scaled loss.
        mean = s.mean() if dlow.dtype == torch.float16 else None
        scaled = torch.mul(dlow, s if mean is None else s / mean, out=torch.empty_like(dlow))
        product = _wide_product(scaled.T, h) * self.w
        return product if mean is None else product * mean


@dataclass(frozen=True)
class Stack:
    """Projections of one input, their outputs side by side. No autograd: whoever calls writes the backward pass."""

    parts: tuple[Projection, ...]
    again: list[torch.Tensor] | None = None
    """Where M waits from a forward pass for the backward pass that follows at once; None: it is made anew."""
    tables: list[Table] = field(default_factory=list, compare=False)
    """What the launch that writes M is told, kept from call to call."""

    def keeping(self) -> Stack:
        """The same projections for one forward and one backward pass, between which M is kept."""
        return replace(self, again=[])

    @cached_property
    def rows(self) -> int:
        """O: outputs of all projections."""
        return sum(part.shape[0] for part in self.parts)

    @cached_property
    def width(self) -> int:
        """D."""
        return self.parts[0].shape[1]

    @cached_property
    def thin(self) -> int:
        """The ranks' sum, rounded up to a multiple of 8: what is kept of ``low``."""
        return -(-sum(part.rank for part in self.parts) // 8) * 8

    @cached_property
    def rank(self) -> int:
        """R: the columns of a border."""
        return self.thin if self.width < NARROW else -(-self.thin // TILE) * TILE

    @property
    def adapters(self) -> list[torch.Tensor]:
        """A and B of each projection that has them, in order: what a gradient is owed to."""
        return [tensor for part in self.parts for tensor in (part.a, part.b) if tensor is not None]

    def matrix(self, like: torch.Tensor) -> torch.Tensor:
        """M ``[O + R, D + R]`` in ``like``'s dtype; its last corner holds nothing."""
        if self.again:
            return self.again.pop()
        m = like.new_empty(self.rows + self.rank, self.width + self.rank)
        at_once = self.parts[0].form.border_all
        if at_once is None or not at_once(self.parts, m, self.tables):
            self.write_by_parts(m)
        if self.again is not None:
            self.again.append(m)
        return m

    def write_by_parts(self, m: torch.Tensor) -> None:
        """M in plain torch, whatever the forms: its definition, and the path without kernels."""
        row = rank = 0
        with torch.no_grad():
            m[: self.rows, self.width :] = 0
            for part in self.parts:
                rows, columns = slice(row, row + part.shape[0]), slice(self.width + rank, self.width + rank + part.rank)
                part.form.widen(part.held, m[rows, : self.width])
                if part.a is not None and part.b is not None:
                    m[rows, columns] = part.b.to(wide(part.b.dtype)) * part.scale
                    m[self.rows + rank : self.rows + rank + part.rank, : self.width] = part.a
                row, rank = row + part.shape[0], rank + part.rank
            m[self.rows + rank :, : self.width] = 0

    def room(self, like: torch.Tensor, width: int) -> torch.Tensor:
        """An empty ``[T, width + R]`` for T rows of ``like``."""
        return like.new_empty(like.shape[0], width + self.rank)

    def bordered(self, rows: torch.Tensor) -> torch.Tensor:
        """``rows [T, width]`` in the first columns of such a room."""
        room = self.room(rows, rows.shape[1])
        place = room[:, : rows.shape[1]]
        if _in_words(rows) and _in_words(place):
            # As values of 16 bytes, whatever they mean: a copy between rows of two strides moves a value at a time.
            place.view(torch.complex128).copy_(rows.view(torch.complex128))
        else:
            place.copy_(rows)
        return room

    def project(self, x: torch.Tensor, m: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """y ``[T, O]`` of ``x [T, D + R]``, whose last R columns are filled with ``low`` here."""
        self.low(x, m)
        weight = m[: self.rows].T
        if all(part.bias is None for part in self.parts):
            return torch.mm(x, weight, out=out)
        biases = [x.new_zeros(p.shape[0]) if p.bias is None else p.bias.to(x.dtype) for p in self.parts]
        return torch.addmm(biases[0] if len(biases) == 1 else torch.cat(biases), x, weight, out=out)

    def low(self, x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        """``x A'`` ``[T, R]``, written into the last columns of ``x [T, D + R]``."""
        low = x[:, self.width :]
        return torch.mm(x[:, : self.width], m[self.rows :, : self.width].T, out=low) if self.rank else low

    def kept(self, low: torch.Tensor) -> torch.Tensor:
        """Of ``low [T, R]`` what ``gradients`` reads, in memory of its own."""
        return low[:, : self.thin].clone()

    def pull_low(self, dy: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        """``dy (sB)`` ``[T, R]``, written into the last columns of ``dy [T, O + R]``."""
        dlow = dy[:, self.rows :]
        return torch.mm(dy[:, : self.rows], m[: self.rows, self.width :], out=dlow) if self.rank else dlow

    def pull(self, dy: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        """dx ``[T, D]`` of ``dy [T, O + R]``, whose last columns ``pull_low`` has filled."""
        return torch.mm(dy, m[:, : self.width])

    def gradients(
        self, x: torch.Tensor, low: torch.Tensor, dy: torch.Tensor, normed: Normed | None = None
    ) -> list[torch.Tensor]:
        """dA and dB in the order of ``adapters``, of ``x [T, D]``, ``kept(low)`` and ``dy [T, O + R]``.

        With ``normed`` x is what the norm was given, h.
        """
        if not self.rank:
            return []
        dlow = dy[:, self.rows : self.rows + self.thin]
        da = _wide_product(dlow.T, x) if normed is None else normed.product(dlow, x)
        db = _wide_product(dy[:, : self.rows].T, low)
        return self._laid(da, db)

    def _laid(self, da: torch.Tensor, db: torch.Tensor) -> list[torch.Tensor]:
        """Their parts, scaled, each whole, all in one block.

        Alone nearly every one is under a mebibyte, and torch's allocator keeps such small ones in memory of their own,
        which no activation ever gets: 0.16 GiB over a 7B's adapters (c10/cuda/CUDACachingAllocator, kSmallSize).
        """
        ranks, size = self._places[-1][1:]
        width, apart = self.width, db.stride(0)
        block = da.new_empty(size)
        block[: ranks * width].view(ranks, width).copy_(da[:ranks])
        gradients: list[torch.Tensor] = []
        for part, (row, rank, start) in zip(self.parts, self._places, strict=False):
            if part.a is not None and part.b is not None:
                (rows, _), columns = part.shape, part.rank
                place = block.as_strided((rows, columns), (columns, 1), start)
                torch.mul(db.as_strided((rows, columns), (apart, 1), row * apart + rank), part.scale, out=place)
                first = block.as_strided((columns, width), (width, 1), rank * width)
                gradients += [_as(first, part.a), _as(place, part.b)]
        return gradients

    @cached_property
    def _places(self) -> list[tuple[int, int, int]]:
        """Of each part its row, its rank and where its dB begins in the block, and at last where all of them end."""
        row, rank, start = 0, 0, sum(part.rank for part in self.parts) * self.width
        places = [(row, rank, start)]
        for part in self.parts:
            row, rank, start = row + part.shape[0], rank + part.rank, start + part.shape[0] * part.rank
            places.append((row, rank, start))
        return places


def uncast(backward: Callable[..., Any]) -> Any:
    """A backward pass in the precisions that it chooses itself, whatever autocast its caller stands in."""

    @wraps(backward)
    def chosen(ctx: Any, first: torch.Tensor, *rest: torch.Tensor) -> Any:
        if not torch.is_autocast_enabled(first.device.type):
            return backward(ctx, first, *rest)
        with torch.autocast(first.device.type, enabled=False):
            return backward(ctx, first, *rest)

    return chosen


def _as(gradient: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    return gradient if gradient.dtype == of.dtype else gradient.to(of.dtype)


def _wide_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``left right`` summed and kept in float32, where the inputs are half precision and the device can."""
    if left.is_cuda and left.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(left, right, out_dtype=torch.float32)
    return torch.mm(left, right)


def _in_words(rows: torch.Tensor) -> bool:
    """Whether every row begins and ends at a multiple of 16 bytes."""
    a_word = WORD_BYTES // rows.element_size()
    begins = rows.data_ptr() % WORD_BYTES == 0 and rows.stride(0) % a_word == 0
    return rows.is_cuda and rows.stride(1) == 1 and rows.shape[1] % a_word == 0 and begins


class _LoraLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, stack: Stack, *_adapters: torch.Tensor) -> torch.Tensor:
        m = stack.matrix(x)
        bordered = stack.bordered(x)
        y = stack.project(bordered, m)
        ctx.save_for_backward(x, stack.kept(bordered[:, stack.width :]))
        ctx.stack = stack
        return y

    @staticmethod
    @uncast
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        stack: Stack = ctx.stack
        x, low = ctx.saved_tensors
        m = stack.matrix(x)
        bordered = stack.bordered(dy)
        stack.pull_low(bordered, m)
        dx = stack.pull(bordered, m) if ctx.needs_input_grad[0] else None
        return dx, None, *stack.gradients(x, low, bordered)


def lora_linears(x: torch.Tensor, projections: Sequence[Projection]) -> torch.Tensor:
    """The projections of ``x [..., D]`` side by side, ``[..., O]``. Their biases are frozen."""
    stack = Stack(tuple(projections))
    flat: torch.Tensor = _LoraLinear.apply(x.reshape(-1, x.shape[-1]), stack, *stack.adapters)
    return flat.view(*x.shape[:-1], stack.rows)
