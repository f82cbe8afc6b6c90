"""Quantising and 8-bit products in plain torch: their definition, exact and slow, on any device.

Each row gets one scale in float32, values are rounded to the nearest, ties to even::

    scale = max |x| · (1 / L)    q = round(x · (L / max |x|))          L = 448 (e4m3) or 127 (int8)

Rows of magnitudes of at most ``TINY`` become zeros. A row with an infinity or NaN in it has NaN for its scale, and
values that mean nothing: whatever is made of it is NaN, and the guards of training see it. A product of rows
``x [T, D]`` and ``w [O, D]`` sums exactly where the hardware does (int8), else in float32::

    y = (q_x q_w') · scale_x [T, 1] · scale_w [1, O]  +  low up'  +  bias  +  residual

rounded once. ``low [T, R]`` and ``up [O, R]`` are the adapter's: they never go through 8 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from core.kernels.eightbit.formats import OF_DTYPE, Format
from core.kernels.weights import nf4_reference
from core.kernels.weights.nf4_reference import Nf4

TINY = 2.0**-100


@dataclass(frozen=True)
class Quantised:
    """8-bit values ``[N, K]`` and a float32 scale a row ``[N]``."""

    values: torch.Tensor
    scales: torch.Tensor

    @staticmethod
    def room(rows: torch.Tensor, form: Format) -> Quantised:
        """Empty, for ``rows [N, K]``."""
        values = torch.empty(rows.shape, dtype=form.dtype, device=rows.device)
        return Quantised(values, torch.empty(len(rows), dtype=torch.float32, device=rows.device))

    @property
    def form(self) -> Format:
        """That of the values."""
        return OF_DTYPE[self.values.dtype]

    def fill(self, rows: torch.Tensor) -> None:
        """With ``rows``, in plain torch."""
        made = quantise_rows(rows, self.form)
        self.values.copy_(made.values)
        self.scales.copy_(made.scales)

    def wide(self) -> torch.Tensor:
        """What they stand for, in float32."""
        return self.values.float() * self.scales[:, None]


@dataclass(frozen=True)
class Besides:
    """What a product adds to its sum: the adapter's ``low [T, R]`` and ``up [N, R]``, ``bias [N]``, and
    ``residual [T, N]``."""

    low: torch.Tensor | None = None
    up: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    residual: torch.Tensor | None = None


def largest(rows: torch.Tensor) -> torch.Tensor:
    """max |x| of each row in float32: NaN where one or an infinity is among them, 0 where it is at most ``TINY``."""
    return cut(rows.abs().amax(1).float())


def cut(most: torch.Tensor) -> torch.Tensor:
    """Magnitudes in float32 with 0 for what is at most ``TINY``, and NaN for what is not finite."""
    return torch.where(most.isfinite(), torch.where(most > TINY, most, 0.0), torch.nan)


def quantise_rows(rows: torch.Tensor, form: Format) -> Quantised:
    """``rows [T, D]`` with a scale a row."""
    most = largest(rows)
    return Quantised(rounded(rows.float() * inverse(most, form)[:, None], form), scale(most, form))


def scale(most: torch.Tensor, form: Format) -> torch.Tensor:
    """What a unit of the 8-bit values stands for."""
    return most * (1 / form.largest)


def inverse(most: torch.Tensor, form: Format) -> torch.Tensor:
    """The factor that brings rows to the format's range; 0 of rows that are zero."""
    return torch.where(most == 0, 0.0, torch.full_like(most, form.largest) / most)  # a number over it is rounded twice


def rounded(values: torch.Tensor, form: Format) -> torch.Tensor:
    """To the nearest value of the format, ties to even."""
    return (values.round() if form.whole else values).to(form.dtype)


def wide_weight(held: Nf4 | torch.Tensor) -> torch.Tensor:
    """W ``[O, D]`` in float32: of NF4 the digits times their blocks' magnitudes, not rounded to 16 bits before."""
    if isinstance(held, Nf4):
        return nf4_reference.dequantize(replace(held, dtype=torch.float32))
    return held.detach().float()


def quantise_weight(held: Nf4 | torch.Tensor, factors: torch.Tensor, form: Format, turned: bool) -> torch.Tensor:
    """W in 8 bits by the ``inverse`` of each row (``[O]``), or ``turned``: W' ``[D, O]`` by that of each of W's columns
    (``[D]``)."""
    weight = wide_weight(held)
    weight = weight.T if turned else weight
    return rounded(weight * factors[:, None], form).contiguous()


def product(x: Quantised, w: Quantised, besides: Besides, dtype: torch.dtype) -> torch.Tensor:
    """y ``[T, N]``; see above."""
    if x.values.dtype == torch.int8:
        y = (x.values.double() @ w.values.double().T).float()  # exact: the sums are below 2^53
    else:
        y = x.values.float() @ w.values.float().T
    y = y * x.scales[:, None] * w.scales
    if besides.low is not None and besides.up is not None:
        y = torch.addmm(y, besides.low.float(), besides.up.float().T)
    for more in (besides.bias, besides.residual):
        y = y if more is None else y + more.float()
    return y.to(dtype)
