"""A stack's frozen matrices with its adapters around them, as one matrix in 16 bits (``core.kernels.lora``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from core.kernels.eightbit.reference import Quantised

WORD_BYTES = 16
"""The widest load of a GPU thread."""


@dataclass(frozen=True)
class Rows:
    """Rows of activations or of a gradient: ``values [T, W]``, and room for products with adapters: ``low [T, R]``.

    Both are views of ``whole [T, W + R]`` where one product reads them as one; else ``eight`` may have the values in 8
    bits, written by what writes the values.
    """

    values: torch.Tensor
    low: torch.Tensor
    whole: torch.Tensor | None = None
    eight: Quantised | None = None

    @staticmethod
    def of(whole: torch.Tensor, width: int) -> Rows:
        """Views of ``whole``, whose first ``width`` columns are values."""
        return Rows(whole[:, :width], whole[:, width:], whole)

    @property
    def kept(self) -> torch.Tensor:
        """The tensor to keep for another pass."""
        return self.values if self.whole is None else self.whole


class Matrix(Protocol):
    """The frozen matrices of a stack and its adapters, for one pass."""

    @property
    def beside(self) -> torch.Tensor:
        """sB ``[O, R]``."""

    @property
    def below(self) -> torch.Tensor:
        """A ``[R, D]``."""

    def project(
        self, x: Rows, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """``x W' + low (sB)'`` ``[T, O]``, and one of bias and residual added before it is rounded."""

    def pull(self, dy: Rows) -> torch.Tensor:
        """``dy W + dlow A`` ``[T, D]``."""


@dataclass(frozen=True)
class Bordered:
    """``whole`` is M ``[O + R, D + R]``, its lower right corner undefined."""

    whole: torch.Tensor
    rows: int
    width: int

    @property
    def beside(self) -> torch.Tensor:
        """sB ``[O, R]``."""
        return self.whole[: self.rows, self.width :]

    @property
    def below(self) -> torch.Tensor:
        """A ``[R, D]``."""
        return self.whole[self.rows :, : self.width]

    @property
    def frozen(self) -> torch.Tensor:
        """W ``[O, D]``."""
        return self.whole[: self.rows, : self.width]

    def project(
        self, x: Rows, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """One product of ``[x, low]``."""
        weight, added = self.whole[: self.rows].T, bias if residual is None else residual
        return torch.mm(x.kept, weight, out=out) if added is None else torch.addmm(added, x.kept, weight, out=out)

    def pull(self, dy: Rows) -> torch.Tensor:
        """One product of ``[dy, dlow]``."""
        return torch.mm(dy.kept, self.whole[:, : self.width])


def copy_rows(place: torch.Tensor, rows: torch.Tensor) -> None:
    """Copies ``rows [T, W]`` into rows of another stride."""
    if _in_words(rows) and _in_words(place):
        # As 16-byte values: a copy between different strides moves one value at a time.
        place.view(torch.complex128).copy_(rows.view(torch.complex128))
    else:
        place.copy_(rows)


def _in_words(rows: torch.Tensor) -> bool:
    """Whether, on a card, every row begins and ends at a multiple of 16 bytes."""
    a_word = WORD_BYTES // rows.element_size()
    begins = rows.data_ptr() % WORD_BYTES == 0 and rows.stride(0) % a_word == 0
    return rows.is_cuda and rows.stride(1) == 1 and rows.shape[1] % a_word == 0 and begins
