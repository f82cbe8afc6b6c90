"""Frozen projections with their LoRA adapters, as products with one bordered matrix.

Projections that share their input (q, k and v; gate and up) are stacked. With W ``[O, D]`` their weights one below
the other, A ``[R, D]`` likewise, and sB ``[O, R]`` block-diagonal with each adapter's scale in it::

    M = [[ W , sB ],        low  = x A'            y  = x W' + low (sB)'   = [x, low] [W, sB]'
         [ A ,  0 ]]        dlow = dy (sB)         dx = dy W + dlow A      = [dy, dlow] [W; A]

                            dA   = dlow' x         dB = s · dy' low        dW is never needed

So the adapter adds R columns to one large product, y and dx are written once, and ``s B A`` is never formed. The
factors lie in buffers with room for the columns: ``[x, low]`` is ``[T, D + R]``, ``[dy, dlow]`` is ``[T, O + R]``. M is
rebuilt for each forward and backward of a layer, since a 4-bit weight is not kept in 16 bits (but see
``Stack.keeping``). The adapter's gradients are summed and kept in float32. R is the sum of ranks, padded with zeros so
that rows of M and of the buffers begin on a cache line and the inner size is whole tiles (on an H200 1.8 % of a step
faster than a multiple of 8). With DoRA rows of ``[W, sB]`` are multiplied by g (``core.kernels.weights.magnitudes``),
which the forward pass keeps for the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from core.kernels.dispatch import dense_rows, uncast
from core.kernels.eightbit.arithmetics import SIXTEEN, Arithmetic
from core.kernels.eightbit.reference import Quantised
from core.kernels.eightbit.weights import Extent, extent_of
from core.kernels.reference import wide
from core.kernels.weights.bordered import Bordered, Matrix, Rows, copy_rows
from core.kernels.weights.forms import PLAIN, HeldForm
from core.kernels.weights.magnitudes import column_dots, row_norms, row_squares
from core.kernels.weights.nf4_reference import Nf4

TILE = 64
"""16-bit values in a cache line, and the inner size of the matrix units' tiles."""
NARROW = 1024
"""Below this width padding to a whole tile costs more than it gains."""


@dataclass(frozen=True)
class Projection:
    """``y = x W' + bias + scale · (x A') B'``; A ``[R, D]`` and B ``[O, R]`` are None where no adapter sits.

    ``held`` is the frozen weight in its form: a function that returns it, or its quantised tensors. With ``start``,
    frozen A0 and B0 of the same shapes, W is less ``scale · B0 A0`` (``core.model.pissa``). With ``magnitude`` (DoRA's
    m ``[O]``) all but the bias is multiplied by ``m / norms of W + scale · B A``.
    """

    held: Any
    bias: torch.Tensor | None
    a: torch.Tensor | None
    b: torch.Tensor | None
    scale: float
    shape: tuple[int, int]
    form: HeldForm = PLAIN
    start: tuple[torch.Tensor, torch.Tensor] | None = None
    magnitude: torch.Tensor | None = None
    apart: bool = False
    """Whether its result is rounded before another is added, as one with a magnitude is: the same bits without it."""

    @cached_property
    def squares(self) -> torch.Tensor:
        """``|W|²`` of each row: W is frozen, so once a run."""
        return row_squares(self.weight())

    @cached_property
    def extent(self) -> Extent:
        """The largest magnitudes of W's rows and columns, once a run."""
        return extent_of(self.frozen())

    def frozen(self) -> Nf4 | torch.Tensor:
        """W as it is held: NF4's tensors, else made whole."""
        return self.held if isinstance(self.held, Nf4) else self.weight().detach()

    @property
    def adapters(self) -> list[torch.Tensor]:
        """A, B and m, those that it has."""
        return [tensor for tensor in (self.a, self.b, self.magnitude) if tensor is not None]

    def weight(self) -> torch.Tensor:
        """W ``[O, D]``, dequantised where it is quantised."""
        return self.form.widen(self.held, None)

    @property
    def rank(self) -> int:
        """R, 0 without an adapter."""
        return 0 if self.a is None else int(self.a.shape[0])


@dataclass(frozen=True)
class Normed:
    """A norm's factors: ``x = h · s · w`` with s ``[T]`` for rows and w ``[D]`` for columns."""

    s: torch.Tensor
    w: torch.Tensor

    def product(self, dlow: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """``dlow' x`` ``[R, D]`` from h ``[T, D]``, without recomputing x."""
        s = self.s[:, None]
        # For small rows s is in the hundreds: with a scaled loss the product would overflow float16.
        mean = s.mean() if dlow.dtype == torch.float16 else None
        scaled = torch.mul(dlow, s if mean is None else s / mean, out=torch.empty_like(dlow))
        product = _wide_product(scaled.T, h) * self.w
        return product if mean is None else product * mean


@dataclass(frozen=True)
class Scaled:
    """What DoRA's gradients need: g ``[O]``, and ``Σ_t dy ⊙ y`` ``[O]`` of a stack's results."""

    g: torch.Tensor
    dots: torch.Tensor

    @staticmethod
    def of(g: torch.Tensor | None, dy: torch.Tensor, y: torch.Tensor) -> Scaled | None:
        """From a stack's results ``y [T, O]`` and their gradient; None without DoRA."""
        return None if g is None else Scaled(g, column_dots(dy, y))


@dataclass(frozen=True)
class Stack:
    """Projections of one input, their outputs side by side; without autograd."""

    parts: tuple[Projection, ...]
    again: list[tuple[Matrix, torch.Tensor | None]] | None = None
    """Keeps M and g from a forward pass to the backward pass that follows at once; None: M is rebuilt."""
    stays: bool = False
    """Whether that one is for every pass of this copy, not for one."""
    arithmetic: Arithmetic = SIXTEEN
    tables: list[Any] = field(default_factory=list, compare=False)
    """What the arithmetic keeps of this stack, such as arguments of the kernel that writes M."""

    def keeping(self) -> Stack:
        """A copy for one forward and one backward pass, with M kept in between."""
        return replace(self, again=[])

    def held(self) -> Stack:
        """A copy for passes over many tiles of tokens, with M kept for as long as the copy is there."""
        return replace(self, again=[], stays=True)

    def computed_in(self, arithmetic: Arithmetic) -> Stack:
        """A copy whose frozen products are computed so, where that serves this stack."""
        return replace(self, arithmetic=arithmetic, tables=[]) if arithmetic.serves(self) else self

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
        """The sum of ranks, rounded up to a multiple of 8: the columns of ``low`` that are kept."""
        return -(-sum(part.rank for part in self.parts) // 8) * 8

    @cached_property
    def rank(self) -> int:
        """R: the columns beside W."""
        return self.thin if self.width < NARROW else -(-self.thin // TILE) * TILE

    @property
    def adapters(self) -> list[torch.Tensor]:
        """A, B and m of each projection that has them, in order."""
        return [tensor for part in self.parts for tensor in part.adapters]

    @cached_property
    def scaled(self) -> bool:
        """Whether any projection has a magnitude (DoRA)."""
        return any(part.magnitude is not None for part in self.parts)

    def matrix(self, like: torch.Tensor, g: torch.Tensor | None = None) -> tuple[Matrix, torch.Tensor | None]:
        """M in ``like``'s dtype, as the arithmetic has it; and g, None without magnitudes.

        Args:
            g: where the forward pass of the same tensors has told it.
        """
        if self.again:
            return self.again[0] if self.stays else self.again.pop()
        made = self.arithmetic.matrix(self, like, g)
        if self.again is not None:
            self.again.append(made)
        return made

    def bordering(self, like: torch.Tensor, g: torch.Tensor | None) -> tuple[Bordered, torch.Tensor | None]:
        """M ``[O + R, D + R]`` in 16 bits."""
        m = like.new_empty(self.rows + self.rank, self.width + self.rank)
        at_once = self._write(m, g)
        if self.scaled and g is None:
            g = self.factors(m)
            # From the weight's own digits again, where that is one launch: rounded once, so that small changes of m
            # are not lost in the rounding of each weight.
            if not at_once or not self._write(m, g):
                m[: self.rows].mul_(g[:, None])
        return Bordered(m, self.rows, self.width), g

    def factors(self, m: torch.Tensor) -> torch.Tensor:
        """g ``[O]`` of M without magnitudes; 1 for projections that have none."""
        low, b = m[self.rows : self.rows + self.thin, : self.width], m[: self.rows, self.width :][:, : self.thin]
        # W A' above A A', of all parts: what is not a part's own meets the zeros of sB.
        products = _wide_product(m[: self.rows + self.thin, : self.width], low.T)
        norms = row_norms(self.squares, b, products[: self.rows], products[self.rows :])
        own = zip(self.parts, norms.split([part.shape[0] for part in self.parts]), strict=True)
        return torch.cat([n if part.magnitude is None else part.magnitude.detach() for part, n in own]) / norms

    @cached_property
    def squares(self) -> torch.Tensor:
        """``|W|²`` of each row; 1 where it is not needed."""
        some = next(part.squares for part in self.parts if part.magnitude is not None)
        return torch.cat([some.new_ones(p.shape[0]) if p.magnitude is None else p.squares for p in self.parts])

    def _write(self, m: torch.Tensor, g: torch.Tensor | None) -> bool:
        """Writes M; whether in one launch."""
        form, row = self.parts[0].form, 0
        at_once = form.border_all is not None and form.border_all(self.parts, m, self.tables, g)
        if not at_once:
            self.write_by_parts(m, g)
        with torch.no_grad():
            for part in self.parts:
                if part.start is not None:  # scale · B0 A0 is taken from W: summed in float32, rounded once
                    a, b = (tensor.to(m.dtype) for tensor in part.start)
                    m[row : row + part.shape[0], : self.width].addmm_(b, a, alpha=-part.scale)
                row += part.shape[0]
        return at_once

    def write_by_parts(self, m: torch.Tensor, g: torch.Tensor | None = None) -> None:
        """Writes M in plain torch, for any form: its definition, and the path without kernels."""
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
            if g is not None:
                m[: self.rows].mul_(g[:, None])

    def room(self, like: torch.Tensor, width: int, made: bool = False) -> Rows:
        """Empty, ``width`` values for each row of ``like``.

        Args:
            made: what writes the values writes those in 8 bits as well, where products are in them.
        """
        if self.arithmetic.form is None:
            return Rows.of(like.new_empty(like.shape[0], width + self.rank), width)
        return self.beside(like.new_empty(like.shape[0], width), made)

    def beside(self, kept: torch.Tensor, made: bool = False) -> Rows:
        """``Rows.kept`` of ``room``, or in 8 bits any values, with room for their product with the adapter."""
        if (form := self.arithmetic.form) is None:
            return Rows.of(kept, kept.shape[1] - self.rank)
        low = kept.new_empty(kept.shape[0], self.thin)
        return Rows(kept, low, None, Quantised.room(kept, form) if made else None)

    def bordered(self, rows: torch.Tensor) -> Rows:
        """``rows [T, width]``, copied where they are to be part of a whole."""
        if self.arithmetic.form is not None:
            return self.beside(dense_rows(rows))
        room = self.room(rows, rows.shape[1])
        copy_rows(room.values, rows)
        return room

    def project(self, x: Rows, m: Matrix, out: torch.Tensor | None = None) -> torch.Tensor:
        """y ``[T, O]`` of ``x [T, D]``; fills its ``low``."""
        self.low(x, m)
        if all(part.bias is None for part in self.parts):
            return m.project(x, out=out)
        like = x.values
        biases = [like.new_zeros(p.shape[0]) if p.bias is None else p.bias.to(like.dtype) for p in self.parts]
        return m.project(x, biases[0] if len(biases) == 1 else torch.cat(biases), out=out)

    def low(self, x: Rows, m: Matrix) -> None:
        """Fills ``low`` with ``x A'`` of M's ranks."""
        if self.rank:
            torch.mm(x.values, m.below.T, out=x.low)

    def kept(self, x: Rows) -> torch.Tensor:
        """The columns of ``low`` that ``gradients`` reads, apart from what is not needed."""
        return x.low if x.whole is None else x.low[:, : self.thin].clone()

    def pull_low(self, dy: Rows, m: Matrix) -> None:
        """Fills ``low`` with ``dy (sB)`` of M's ranks."""
        if self.rank:
            torch.mm(dy.values, m.beside, out=dy.low)

    def gradients(
        self, x: torch.Tensor, low: torch.Tensor, dy: Rows, normed: Normed | None = None,
        scaled: Scaled | None = None,
    ) -> list[torch.Tensor]:  # fmt: skip
        """Gradients in the order of ``adapters``, of ``x [T, D]``, its ``kept`` and ``dy [T, O]``.

        With ``normed`` x is h, the norm's input; ``scaled`` is for magnitudes.
        """
        if not self.rank:
            return []
        dlow = dy.low[:, : self.thin]
        da = _wide_product(dlow.T, x) if normed is None else normed.product(dlow, x)
        db = _wide_product(dy.values.T, low)
        if scaled is None:
            return self._laid(da, db)
        dots = scaled.dots.clone()
        for part, (row, _, _) in zip(self.parts, self._places, strict=False):
            if part.bias is not None and part.magnitude is not None:
                rows = slice(row, row + part.shape[0])
                dots[rows] -= part.bias * dy.values[:, rows].sum(0, dtype=dots.dtype)
        return self._laid(da, db * scaled.g[:, None], dots)

    def _laid(self, da: torch.Tensor, db: torch.Tensor, dots: torch.Tensor | None = None) -> list[torch.Tensor]:
        """The gradients of each projection, scaled and contiguous, in one block of memory.

        torch's allocator puts tensors under 1 MiB into pools that no activation can use: 0.16 GiB for a 7B's adapters
        (c10/cuda/CUDACachingAllocator, kSmallSize).
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
                if part.magnitude is not None and dots is not None:
                    place = block[start + rows * columns :][:rows]
                    torch.div(dots[row : row + rows], part.magnitude.detach(), out=place)
                    place.nan_to_num_(0.0, math.inf, -math.inf)  # 0 / 0: a row of zeros
                    gradients.append(_as(place, part.magnitude))
        return gradients

    @cached_property
    def _places(self) -> list[tuple[int, int, int]]:
        """Each part's first row, first rank and start of dB in the block; at last the ends."""
        row, rank, start = 0, 0, sum(part.rank for part in self.parts) * self.width
        places = [(row, rank, start)]
        for part in self.parts:
            size = part.shape[0] * (part.rank + (part.magnitude is not None))
            row, rank, start = row + part.shape[0], rank + part.rank, start + size
            places.append((row, rank, start))
        return places


def _as(gradient: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    return gradient if gradient.dtype == of.dtype else gradient.to(of.dtype)


def _wide_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``left right``; for half precision on a card summed and returned in float32."""
    if left.is_cuda and left.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(left, right, out_dtype=torch.float32)
    return torch.mm(left, right)


class _LoraLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, stack: Stack, *_adapters: torch.Tensor) -> torch.Tensor:
        m, g = stack.matrix(x)
        bordered = stack.bordered(x)
        y = stack.project(bordered, m)
        ctx.save_for_backward(x, stack.kept(bordered), g)
        ctx.stack = stack
        return y

    @staticmethod
    @uncast
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        stack: Stack = ctx.stack
        x, low, g = ctx.saved_tensors
        m, _ = stack.matrix(x, g)
        bordered = stack.bordered(dy)
        stack.pull_low(bordered, m)
        dx = m.pull(bordered) if ctx.needs_input_grad[0] else None
        # Magnitudes need y again: who reads it may have written over it.
        scaled = None if g is None else Scaled.of(g, dy, stack.project(stack.bordered(x), m))
        return dx, None, *stack.gradients(x, low, bordered, scaled=scaled)


def lora_linears(x: torch.Tensor, projections: Sequence[Projection]) -> torch.Tensor:
    """The projections of ``x [..., D]`` side by side, ``[..., O]``. Their biases are frozen."""
    stack = Stack(tuple(projections))
    flat: torch.Tensor = _LoraLinear.apply(x.reshape(-1, x.shape[-1]), stack, *stack.adapters)
    return flat.view(*x.shape[:-1], stack.rows)
