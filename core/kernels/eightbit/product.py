"""The product of two 8-bit matrices with everything that is added to it: ``reference.product`` in one kernel.

A program makes a tile of y. Along D it sums 8-bit products (int8 in int32, e4m3 in float32), takes both scales once,
and goes on in the same sums with the adapter's 16-bit ``low up'``; bias and residual are added and all is rounded once.
Programs that run at the same time share rows and columns in the cache (``GROUP`` rows of tiles).

The matrices come by pointers, or on cards with a tensor memory unit by its descriptors. For Turing Triton has no matrix
units: int8 sums come from cuBLAS there, and one more kernel makes y of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from core.kernels.dispatch import jit, launch, tl, use_triton
from core.kernels.eightbit import reference
from core.kernels.eightbit.reference import Besides, Quantised


@dataclass(frozen=True)
class Tile:
    """Rows, columns and depth of a program's tile, its warps and the stages of its pipeline.

    ``described``: by descriptors; ``lasting``: a program a processor makes tile after tile; ``pieces``: 1 or 2, in
    which sums become y.
    """

    tall: int
    side: int
    deep: int
    warps: int
    stages: int
    described: bool = False
    lasting: bool = False
    pieces: int = 1


GROUP = 8
SCALED = 4, 1024
"""Rows and columns that are scaled at once where sums are the library's."""
FEWEST = 32
"""Rows of its products at least: it wants more than 16."""
THIN, DEEP = 16, 32
"""Ranks that are added at once, of few and of more."""
HOPPER, BLACKWELL = Tile(128, 256, 128, 8, 3, True, True), Tile(128, 128, 128, 8, 4, True, True)
AMPERE = Tile(128, 128, 64, 8, 3)
INTERPRETED = Tile(32, 32, 32, 4, 1)


@jit
def _place(tile, tokens, outputs, TALL: tl.constexpr, SIDE: tl.constexpr, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first row and column of a tile."""
    down, across = tl.cdiv(tokens, TALL), tl.cdiv(outputs, SIDE)
    group = tile // (GROUP * across)
    tall = min(down - group * GROUP, GROUP)
    within = tile % (GROUP * across)
    return (group * GROUP + within % tall) * TALL, (within // tall) * SIDE


@jit
def _finished(  # type: ignore[no-untyped-def]
    total, x_scales, w_scales, low, up, bias, row, column, tokens, outputs, rank, low_row, up_row, up_rank,
    DEEP: tl.constexpr, RANKED: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """y in float32, without a residual, of a tile of sums whose rows and columns are ``row`` and ``column``."""
    high, wide = row < tokens, column < outputs
    sums = total.to(tl.float32) * tl.load(x_scales + row, mask=high, other=0.0)[:, None]
    sums *= tl.load(w_scales + column, mask=wide, other=0.0)[None, :]
    far = row.to(tl.int64)[:, None]
    if RANKED:
        for first in range(0, rank, DEEP):
            r = first + tl.arange(0, DEEP)
            left = tl.load(low + far * low_row + r[None, :], mask=high[:, None] & (r < rank)[None, :], other=0.0)
            right = tl.load(
                up + column.to(tl.int64)[None, :] * up_row + r[:, None] * up_rank,
                mask=wide[None, :] & (r < rank)[:, None], other=0.0,
            )  # fmt: skip
            sums = tl.dot(left, right, sums, input_precision="ieee")
    if BIASED:
        sums += tl.load(bias + column, mask=wide, other=0.0).to(tl.float32)[None, :]
    return sums


@jit
def _stored(  # type: ignore[no-untyped-def]
    y, residual, sums, row, column, tokens, outputs, y_row, residual_row, ADDED: tl.constexpr
):  # fmt: skip
    inside, far = (row < tokens)[:, None] & (column < outputs)[None, :], row.to(tl.int64)[:, None]
    if ADDED:
        sums += tl.load(residual + far * residual_row + column[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(y + far * y_row + column[None, :], sums.to(y.dtype.element_ty), mask=inside)


@jit(varying=("tokens",))
def _by_pointers(  # type: ignore[no-untyped-def]
    y, x, w, x_scales, w_scales, low, up, bias, residual, tokens, outputs, width, rank,
    y_row, w_row, low_row, up_row, up_rank, residual_row,
    TALL: tl.constexpr, SIDE: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr, DEEP: tl.constexpr,
    WHOLE: tl.constexpr, EVEN: tl.constexpr, RANKED: tl.constexpr, BIASED: tl.constexpr, ADDED: tl.constexpr,
):  # fmt: skip
    top, left = _place(tl.program_id(0), tokens, outputs, TALL, SIDE, GROUP)
    row, column, k = top + tl.arange(0, TALL), left + tl.arange(0, SIDE), tl.arange(0, DEPTH)
    sum_of: tl.constexpr = tl.int32 if WHOLE else tl.float32
    total = tl.zeros((TALL, SIDE), sum_of)
    # Rows beyond the end read the first ones again: no mask within the loop.
    x_at = x + (row % tokens).to(tl.int64)[:, None] * width + k[None, :]
    w_at = w + (column % outputs).to(tl.int64)[None, :] * w_row + k[:, None]
    for first in range(0, width, DEPTH):
        if EVEN:
            left_tile, right_tile = tl.load(x_at), tl.load(w_at)
        else:
            there = first + k < width
            left_tile = tl.load(x_at, mask=there[None, :], other=0.0)
            right_tile = tl.load(w_at, mask=there[:, None], other=0.0)
        total = tl.dot(left_tile, right_tile, total, out_dtype=sum_of)
        x_at += DEPTH
        w_at += DEPTH
    sums = _finished(
        total, x_scales, w_scales, low, up, bias, row, column, tokens, outputs, rank, low_row, up_row, up_rank,
        DEEP, RANKED, BIASED,
    )  # fmt: skip
    _stored(y, residual, sums, row, column, tokens, outputs, y_row, residual_row, ADDED)


@jit
def _piece_stored(  # type: ignore[no-untyped-def]
    y, residual, total, x_scales, w_scales, low, up, bias, top, left, tokens, outputs, rank, low_row, up_row, up_rank,
    TALL: tl.constexpr, SIDE: tl.constexpr, DEEP: tl.constexpr,
    RANKED: tl.constexpr, BIASED: tl.constexpr, ADDED: tl.constexpr,
):  # fmt: skip
    sums = _finished(
        total, x_scales, w_scales, low, up, bias, top + tl.arange(0, TALL), left + tl.arange(0, SIDE),
        tokens, outputs, rank, low_row, up_row, up_rank, DEEP, RANKED, BIASED,
    )  # fmt: skip
    if ADDED:
        sums += residual.load([top, left]).to(tl.float32)
    y.store([top, left], sums.to(y.dtype))


@jit(varying=("tokens", "low_row"))
def _by_descriptors(  # type: ignore[no-untyped-def]
    x_scales, y, residual, x, w, w_scales, low, up, bias, tokens, outputs, width, rank, low_row, up_row, up_rank,
    TALL: tl.constexpr, SIDE: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr, DEEP: tl.constexpr,
    WHOLE: tl.constexpr, RANKED: tl.constexpr, BIASED: tl.constexpr, ADDED: tl.constexpr, FLAT: tl.constexpr,
    PIECES: tl.constexpr,
):  # fmt: skip
    """Descriptors of y and its residual take ``SIDE / PIECES`` columns: half of the sums need half of the registers."""
    sum_of: tl.constexpr = tl.int32 if WHOLE else tl.float32
    tiles = tl.cdiv(tokens, TALL) * tl.cdiv(outputs, SIDE)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLAT):
        top, left = _place(tile, tokens, outputs, TALL, SIDE, GROUP)
        total = tl.zeros((TALL, SIDE), sum_of)
        for first in range(0, width, DEPTH):  # a descriptor gives zeros beyond the ends
            total = tl.dot(x.load([top, first]), w.load([left, first]).T, total, out_dtype=sum_of)
        if PIECES == 2:
            piece, total = tl.split(tl.permute(tl.reshape(total, (TALL, 2, SIDE // 2)), (0, 2, 1)))
            _piece_stored(
                y, residual, piece, x_scales, w_scales, low, up, bias, top, left, tokens, outputs, rank,
                low_row, up_row, up_rank, TALL, SIDE // 2, DEEP, RANKED, BIASED, ADDED,
            )  # fmt: skip
            left += SIDE // 2
        _piece_stored(
            y, residual, total, x_scales, w_scales, low, up, bias, top, left, tokens, outputs, rank,
            low_row, up_row, up_rank, TALL, SIDE // PIECES, DEEP, RANKED, BIASED, ADDED,
        )  # fmt: skip


@jit(varying=("tokens",))
def _scaled(  # type: ignore[no-untyped-def]
    y, sums, x_scales, w_scales, bias, residual, tokens, outputs, y_row, residual_row,
    TALL: tl.constexpr, SIDE: tl.constexpr, BIASED: tl.constexpr, ADDED: tl.constexpr,
):  # fmt: skip
    """y of whole sums: ``_finished`` without its product."""
    row, column = tl.program_id(1) * TALL + tl.arange(0, TALL), tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    inside = (row < tokens)[:, None] & (column < outputs)[None, :]
    places = row.to(tl.int64)[:, None] * outputs + column[None, :]
    total = tl.load(sums + places, mask=inside, other=0)
    made = _finished(
        total, x_scales, w_scales, y, y, bias, row, column, tokens, outputs, 0, 0, 0, 0, 16, False, BIASED
    )  # fmt: skip
    _stored(y, residual, made, row, column, tokens, outputs, y_row, residual_row, ADDED)


def tile_for(capability: tuple[int, int]) -> Tile | None:
    """The tile for a card; None where Triton has no matrix units: sums are then cuBLAS's."""
    if capability[0] in (9, 10):
        return HOPPER if capability[0] == 9 else BLACKWELL
    return AMPERE if capability >= (8, 0) else None


@lru_cache(maxsize=16)
def _tile_of(device: torch.device) -> Tile | None:
    return tile_for(torch.cuda.get_device_capability(device)) if device.type == "cuda" else INTERPRETED


def product(
    x: Quantised, w: Quantised, besides: Besides, like: torch.dtype, out: torch.Tensor | None = None,
    tile: Tile | None = None,
) -> torch.Tensor:  # fmt: skip
    """y ``[T, N]`` of ``x [T, D]`` and ``w [N, D]``, which may have strided rows; see ``reference.product``.

    Args:
        like: y's dtype.
        out: where y goes; its rows may be strided, and begin at multiples of 16 bytes, as the residual's do.
        tile: None: this card's.
    """
    (tokens, width), outputs = x.values.shape, len(w.values)
    if out is None:
        out = torch.empty(tokens, outputs, dtype=like, device=x.values.device)
    if not use_triton(out) or not tokens:
        return out.copy_(reference.product(x, w, besides, out.dtype))
    tile = tile or _tile_of(out.device)
    if tile is None:
        return by_library(x, w, besides, out)
    low, up = (out, out) if besides.low is None or besides.up is None else (besides.low, besides.up)
    ranked = low is not out and low.shape[1] > 0
    bias, residual = (out if more is None else more for more in (besides.bias, besides.residual))
    grid = (-(-tokens // tile.tall) * -(-outputs // tile.side),)
    sizes, strides = [tokens, outputs, width, low.shape[1]], [low.stride(0), up.stride(0), up.stride(1)]
    told = {
        "TALL": tile.tall, "SIDE": tile.side, "DEPTH": tile.deep, "GROUP": GROUP,
        "DEEP": DEEP if low.shape[1] > THIN else THIN,
        "WHOLE": not x.values.dtype.is_floating_point, "RANKED": ranked, "BIASED": besides.bias is not None,
        "ADDED": besides.residual is not None, "num_warps": tile.warps, "num_stages": tile.stages,
    }  # fmt: skip
    if tile.described:
        # Without the adapter's product the compiler keeps whole tiles of y and of the residual.
        pieces = tile.pieces if ranked or besides.residual is None else 2
        piece, sum_of = (tile.tall, tile.side // pieces), ((tile.tall, tile.deep), (tile.side, tile.deep))
        blocks = (out, piece), (residual, piece), (x.values, sum_of[0]), (w.values, sum_of[1])
        if tile.lasting:
            grid = (min(grid[0], _processors(out.device)),)
        launch(
            _by_descriptors, grid, x.scales, *(_described(*block) for block in blocks), w.scales, low, up, bias,
            *sizes, *strides, FLAT=tile.lasting, PIECES=pieces, **told,
        )  # fmt: skip
    else:
        even = width % tile.deep == 0
        launch(
            _by_pointers, grid, out, x.values, w.values, x.scales, w.scales, low, up, bias, residual, *sizes,
            out.stride(0), w.values.stride(0), *strides, residual.stride(0), EVEN=even, **told,
        )  # fmt: skip
    return out


def by_library(x: Quantised, w: Quantised, besides: Besides, out: torch.Tensor) -> torch.Tensor:
    """y of int8 into ``out``, its sums by cuBLAS; the adapter's part is made before it and added in float32."""
    (tokens, outputs), values = out.shape, x.values
    if tokens < FEWEST:
        values = values.new_zeros(FEWEST, values.shape[1])
        values[:tokens] = x.values
    sums, residual = torch._int_mm(values, w.values.T)[:tokens], besides.residual
    if besides.low is not None and besides.up is not None and besides.low.shape[1]:
        up = besides.up.T
        residual = torch.mm(besides.low, up) if residual is None else torch.addmm(residual, besides.low, up)
    bias, added = (out if more is None else more for more in (besides.bias, residual))
    tall, side = SCALED
    launch(
        _scaled, (-(-outputs // side), -(-tokens // tall)), out, sums, x.scales, w.scales, bias, added, tokens,
        outputs, out.stride(0), added.stride(0), TALL=tall, SIDE=side, BIASED=besides.bias is not None,
        ADDED=residual is not None, num_warps=4,
    )  # fmt: skip
    return out


@lru_cache(maxsize=16)
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 3


def _described(values: torch.Tensor, block: tuple[int, int]) -> object:
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(values, list(values.shape), list(values.stride()), list(block))
