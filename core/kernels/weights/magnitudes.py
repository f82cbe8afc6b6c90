"""DoRA's magnitudes (Liu et al. 2024, arXiv:2402.09353): each row of ``W + s B A`` gets a trained length m.

::

    y = g ⊙ (x W' + s (x A') B') + bias        g = m / n  [O],   n = norms of the rows of W + s B A

n is a constant in the backward pass (the paper's section 4.3). So the rows of ``[W, sB]`` are multiplied by g, and all
products stay those of LoRA. n without making the sum, where ``W A'`` and ``A A'`` are one product::

    n² = |W|² + Σ_r sB ⊙ (2 W A' + sB (A A'))

A 4-bit weight is made of its digits times g and rounded once. A 16-bit weight times g is rounded again, as merging does
it: a change of m by less than half a unit in the last place shows in the product only as it adds up (in float32).

Gradients beside LoRA's with the multiplied rows::

    dB = g ⊙ (s dy' low)         dm = Σ_t dy ⊙ (x W' + s (x A') B') / n = (Σ_t dy ⊙ y - bias Σ_t dy) / m

A program of the kernel sums some columns over every n-th block of rows; the n sums are added after it.
"""

import torch

from core.kernels import reference
from core.kernels.dispatch import jit, launch, rows_run, tl

COLUMNS, ROWS, SHARES = 128, 32, 32
"""Columns and rows of a program's block, and into how many shares the rows are cut at most."""
VALUES_AT_ONCE = 2**24
"""Values of a weight that are made wide at once."""


@jit(varying=("rows",))
def _dots(  # type: ignore[no-untyped-def]
    out, dy, y, dy_row, y_row, rows, width, COLUMNS: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    share, shares = tl.program_id(1), tl.num_programs(1)
    total = tl.zeros((COLUMNS,), tl.float32)
    for first in range(share * ROWS, rows, shares * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (row < rows) & (columns < width)[None, :]
        left = tl.load(dy + row * dy_row + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        right = tl.load(y + row * y_row + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(left * right, axis=0)
    tl.store(out + share * width + columns, total, mask=columns < width)


def column_dots(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``Σ_t dy ⊙ y`` ``[O]`` in float32 (float64 stays) of two ``[T, O]``, whose rows may be strided."""
    if not rows_run(dy, y) or not len(dy):
        return reference.column_dots(dy, y)
    (rows, width), shares = dy.shape, min(SHARES, -(-len(dy) // ROWS))
    parts = torch.empty(shares, width, dtype=torch.float32, device=dy.device)
    grid = (-(-width // COLUMNS), shares)
    launch(_dots, grid, parts, dy, y, dy.stride(0), y.stride(0), rows, width, COLUMNS=COLUMNS, ROWS=ROWS, num_warps=4)
    return parts.sum(0)


def row_squares(weight: torch.Tensor) -> torch.Tensor:
    """``|W|²`` of each row of W ``[O, D]``, in float32 (float64 stays)."""
    pieces = weight.detach().split(max(1, VALUES_AT_ONCE // max(1, weight.shape[1])))
    return torch.cat([piece.to(reference.wide(piece.dtype)).square().sum(1) for piece in pieces])


def row_norms(squares: torch.Tensor, b: torch.Tensor, wa: torch.Tensor, aa: torch.Tensor) -> torch.Tensor:
    """n ``[O]`` of ``|W|²``, sB ``[O, R]``, ``W A'`` and ``A A'`` ``[R, R]``; never 0, so that a row of zeros stays
    one."""
    b, wa, aa = (part.to(squares.dtype) for part in (b, wa, aa))
    inner = torch.addmm(wa, b, aa, beta=2.0).mul_(b)
    return inner.sum(1).add_(squares).clamp_min_(torch.finfo(squares.dtype).tiny).sqrt_()
