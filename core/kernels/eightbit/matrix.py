"""A stack's frozen matrices in eight bits for one pass, with its adapters beside them in 16.

Forward rows of x are quantised, and rows of W; backward rows of dy, and W's columns, whose largest values are those
over the whole stack. A and sB keep their dtype, and so does their part of each product (``product.Besides``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from core.kernels.eightbit import reference
from core.kernels.eightbit.formats import Format
from core.kernels.eightbit.product import product
from core.kernels.eightbit.reference import Besides, Quantised
from core.kernels.eightbit.rows import quantise_rows
from core.kernels.eightbit.weights import Extent, Held, quantise_weight


class Part(Protocol):
    """A projection of the stack: ``core.kernels.lora.Projection``."""

    @property
    def shape(self) -> tuple[int, int]:
        """O and D."""

    @property
    def a(self) -> torch.Tensor | None:
        """``[R, D]``."""

    @property
    def b(self) -> torch.Tensor | None:
        """``[O, R]``."""

    @property
    def scale(self) -> float:
        """B's factor."""

    @property
    def extent(self) -> Extent:
        """The largest magnitudes of its frozen weight, found once."""

    def frozen(self) -> Held:
        """Its frozen weight as it is held."""


def joined(parts: Sequence[Part]) -> Extent:
    """Of a stack: rows one below the other, columns over all."""
    extents = [part.extent for part in parts]
    if len(extents) == 1:
        return extents[0]
    columns = torch.stack([extent.columns for extent in extents]).amax(0)
    return Extent(torch.cat([extent.rows for extent in extents]), columns)


@dataclass(frozen=True)
class EightBit:
    """``beside`` is sB ``[O, R]``, ``below`` A ``[R, D]``; the frozen matrices are quantised when a product asks."""

    parts: Sequence[Part]
    form: Format
    extent: Extent
    beside: torch.Tensor
    below: torch.Tensor

    @staticmethod
    def of(parts: Sequence[Part], form: Format, extent: Extent, like: torch.Tensor, rank: int) -> EightBit:
        """With the adapters of ``parts`` as they are now, in ``like``'s dtype; ``rank`` is R, the padded sum."""
        rows, width = sum(part.shape[0] for part in parts), parts[0].shape[1]
        beside, below = like.new_zeros(rows, rank), like.new_zeros(rank, width)
        row = first = 0
        with torch.no_grad():
            for part in parts:
                if part.a is not None and part.b is not None:
                    last = first + len(part.a)
                    torch.mul(part.b, part.scale, out=beside[row : row + part.shape[0], first:last])
                    below[first:last] = part.a
                    first = last
                row += part.shape[0]
        return EightBit(parts, form, extent, beside, below)

    def project(
        self, x: torch.Tensor, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """y ``[T, O]`` of ``[x, low]``."""
        width = self.below.shape[1]
        besides = Besides(x[:, width:], self.beside, bias, residual)
        return product(quantise_rows(x[:, :width], self.form), self.weight(False), besides, x.dtype, out)

    def pull(self, dy: torch.Tensor) -> torch.Tensor:
        """dx ``[T, D]`` of ``[dy, dlow]``."""
        rows = len(self.beside)
        besides = Besides(dy[:, rows:], self.below.T)
        return product(quantise_rows(dy[:, :rows], self.form), self.weight(True), besides, dy.dtype)

    def weight(self, turned: bool) -> Quantised:
        """W ``[O, D]``, or ``turned`` W' ``[D, O]``, in eight bits."""
        rows, width = len(self.beside), self.below.shape[1]
        shape = (width, rows) if turned else (rows, width)
        values, row = torch.empty(shape, dtype=self.form.dtype, device=self.beside.device), 0
        most = self.extent.of(turned)
        for part in self.parts:
            until = row + part.shape[0]
            place = values[:, row:until] if turned else values[row:until]
            quantise_weight(part.frozen(), most if turned else most[row:until], self.form, turned, place)
            row = until
        return Quantised(values, reference.scale(most, self.form))
