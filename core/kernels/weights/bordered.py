"""A stack's frozen matrices with its adapters around them, as one matrix in 16 bits (``core.kernels.lora``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

WORD_BYTES = 16
"""The widest load of a GPU thread."""


class Matrix(Protocol):
    """The frozen matrices of a stack and its adapters, for one pass."""

    @property
    def beside(self) -> torch.Tensor:
        """sB ``[O, R]``."""

    @property
    def below(self) -> torch.Tensor:
        """A ``[R, D]``."""

    def project(
        self, x: torch.Tensor, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """``x W' + low (sB)'`` ``[T, O]`` of ``[x, low]``, and one of bias and residual added before it is rounded."""

    def pull(self, dy: torch.Tensor) -> torch.Tensor:
        """``dy W + dlow A`` ``[T, D]`` of ``[dy, dlow]``."""


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
        self, x: torch.Tensor, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """One product of ``[x, low]``."""
        weight, added = self.whole[: self.rows].T, bias if residual is None else residual
        return torch.mm(x, weight, out=out) if added is None else torch.addmm(added, x, weight, out=out)

    def pull(self, dy: torch.Tensor) -> torch.Tensor:
        """One product of ``[dy, dlow]``."""
        return torch.mm(dy, self.whole[:, : self.width])


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
