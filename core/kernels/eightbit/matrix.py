"""A stack's frozen matrices in eight bits for one pass, with its adapters beside them in 16.

Forward rows of x are quantised, and rows of W; backward rows of dy, and W's columns, whose largest values are those
over the whole stack. A and sB keep their dtype, and so does their part of each product (``product.Besides``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from core.kernels.eightbit import borders, reference, table
from core.kernels.eightbit.formats import Format
from core.kernels.eightbit.product import product
from core.kernels.eightbit.reference import Besides, Quantised
from core.kernels.eightbit.rows import quantise_rows
from core.kernels.eightbit.weights import Extent, Held, quantise_stack
from core.kernels.weights.bordered import Rows
from core.kernels.weights.nf4_stack import addresses


class Part(table.Part, Protocol):
    """A projection of the stack: ``core.kernels.lora.Projection``."""

    @property
    def extent(self) -> Extent:
        """The largest magnitudes of its frozen weight, found once."""

    def frozen(self) -> Held:
        """Its frozen weight as it is held."""


@dataclass(frozen=True)
class Known:
    """What is found once a run: by which factor a stack's rows and columns come to the format's range, what a unit of
    their 8-bit values stands for, and the kernels' table."""

    factors: Extent
    units: Extent
    table: table.Table

    @staticmethod
    def of(parts: Sequence[Part], form: Format) -> Known:
        """Of a stack: rows one below the other, columns over all."""
        extents = [part.extent for part in parts]
        rows, columns = torch.cat([one.rows for one in extents]), torch.stack([one.columns for one in extents]).amax(0)
        factors, units = (
            Extent(told(rows, form), told(columns, form)) for told in (reference.inverse, reference.scale)
        )
        return Known(factors, units, table.table_of(parts, rows.device))

    def now(self, parts: Sequence[Part]) -> Known:
        """With the adapters where they are now."""
        same = self.table.adapters == addresses(parts)
        return self if same else replace(self, table=table.table_of(parts, self.units.rows.device))


@dataclass(frozen=True)
class EightBit:
    """``beside`` is sB ``[O, R]``, ``below`` A ``[R, D]``; the frozen matrices are quantised when a product asks."""

    parts: Sequence[Part]
    form: Format
    known: Known
    beside: torch.Tensor
    below: torch.Tensor

    @staticmethod
    def of(parts: Sequence[Part], form: Format, rank: int, like: torch.Tensor, kept: list[Any]) -> EightBit:
        """With the adapters of ``parts`` as they are now, in ``like``'s dtype.

        Args:
            rank: R, the sum of ranks or more.
            kept: the stack's list that keeps what is ``Known``.
        """
        kept[:] = [kept[0].now(parts) if kept else Known.of(parts, form)]
        rows, width = sum(part.shape[0] for part in parts), parts[0].shape[1]
        beside, below = like.new_empty(rows, rank), like.new_empty(rank, width)
        borders.write(parts, kept[0].table, beside, below)
        return EightBit(parts, form, kept[0], beside, below)

    def project(
        self, x: Rows, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """y ``[T, O]``."""
        besides = Besides(x.low, self.beside, bias, residual)
        return product(self._eight(x), self.weight(False), besides, x.values.dtype, out)

    def pull(self, dy: Rows) -> torch.Tensor:
        """dx ``[T, D]``."""
        return product(self._eight(dy), self.weight(True), Besides(dy.low, self.below.T), dy.values.dtype)

    def _eight(self, rows: Rows) -> Quantised:
        return quantise_rows(rows.values, self.form) if rows.eight is None else rows.eight

    def weight(self, turned: bool) -> Quantised:
        """W ``[O, D]``, or ``turned`` W' ``[D, O]``, in eight bits."""
        rows, width, known = len(self.beside), self.below.shape[1], self.known
        shape = (width, rows) if turned else (rows, width)
        values = torch.empty(shape, dtype=self.form.dtype, device=self.beside.device)
        held = () if known.table.like is not None else tuple(part.frozen() for part in self.parts)
        quantise_stack(held, known.table, known.factors.of(turned), self.form, turned, values)
        return Quantised(values, known.units.of(turned))
