"""Gated activations: SwiGLU (Llama, Mistral, Qwen) and GeGLU (Gemma).

Forward, element by element::

    h = f(gate) · up          f = silu, or gelu in its tanh form

Backward::

    dgate = dh · up · f'(gate)          dup = dh · f(gate)

    silu:  f(g) = g · σ(g)              f'(g) = σ(g) · (1 + g · (1 - σ(g)))
    gelu:  f(g) = g · σ(2u)             f'(g) = σ(2u) · (1 + 2 g · σ(-2u) · u')
           u = √(2/π) · (g + 0.044715 g³),  u' = √(2/π) · (1 + 0.134145 g²)

gelu's (1 + tanh u) / 2 is written σ(2u): for very negative u, 1 + tanh(u) loses all digits.

Rows are ``[gate | up]``. The backward pass needs no memory: gradients are written over gate and up, and h, which the
next projection's gradient needs, over dh. With ``Kept`` the forward pass writes both once more in eight bits, and the
backward pass reads them there; where they were recomputed it rounds them likewise, so that both give the same bits.
Gradients may be written in eight bits as well, a scale a row (``eightbit.rows``): a program then takes a whole row,
piece by piece, and these once more from the cache when the scale is known. (In the forward pass that gained nothing.)
"""

from typing import Any

import torch

from core.kernels import reference
from core.kernels.dispatch import block_of, jit, launch, rows_run, tl
from core.kernels.eightbit.kept import BLOCK as SCALED
from core.kernels.eightbit.kept import Kept, as_kept, columns_of, keep, restored
from core.kernels.eightbit.reference import TINY, Quantised
from core.kernels.eightbit.rows import SIXTEEN_BITS, UNFUSED, factors_of, flags_of, put_again, quantise_into, size_of

WIDEST_BLOCK, WIDEST_KEPT, WIDEST_PIECE = 1024, 2048, 4096
"""Columns of one program, 8 a thread; of one that keeps gate and up in eight bits; and at a time of one that takes a
whole row. Measured on an H200 for 14,336 columns."""


@jit
def _sigmoid(x, FINE: tl.constexpr):  # type: ignore[no-untyped-def]
    """1 / (1 + e^-x); unless FINE within 5e-6 of itself (1e-6 above -10), in seven instructions in place of twenty."""
    if FINE:
        return tl.sigmoid(x)
    root = tl.rsqrt(1.0 + tl.exp2(-1.4426950408889634 * x))
    return root * root


@jit
def _activation(g, GELU: tl.constexpr, FINE: tl.constexpr):  # type: ignore[no-untyped-def]
    """``f(g)`` and ``f'(g)``; FINE where they are not rounded to 16 bits."""
    if GELU:
        u = 0.7978845608028654 * (g + 0.044715 * g * g * g)
        s = _sigmoid(2.0 * u, FINE)
        slope_u = 0.7978845608028654 * (1.0 + 0.134145 * g * g)
        value = g * s
        slope = s * (1.0 + 2.0 * g * _sigmoid(-2.0 * u, FINE) * slope_u)
    else:
        s = _sigmoid(g, FINE)
        value = g * s
        slope = s * (1.0 + g * (1.0 - s))
    return value, slope


@jit
def _forward(  # type: ignore[no-untyped-def]
    gate, up, h, kept, scales, gate_row, up_row, h_row, kept_row, scales_row, width,
    GELU: tl.constexpr, BLOCK: tl.constexpr, KEPT: tl.constexpr, SCALED: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    row, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK
    columns = columns_of(first, BLOCK, SCALED)
    inside = columns < width
    g = tl.load(gate + row * gate_row + columns, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_row + columns, mask=inside, other=0.0).to(tl.float32)
    value, _slope = _activation(g, GELU, h.dtype.element_ty == tl.float32)
    tl.store(h + row * h_row + columns, value * u, mask=inside)
    if KEPT:
        kept += row * kept_row
        scales += row * scales_row
        keep(g, kept, scales, first, width, BLOCK, SCALED, TINY)
        keep(u, kept + width, scales + tl.cdiv(width, SCALED), first, width, BLOCK, SCALED, TINY)


@jit
def _backward_piece(  # type: ignore[no-untyped-def]
    dh, gate, up, kept, scales, first, width,
    GELU: tl.constexpr, BLOCK: tl.constexpr, KEPT: tl.constexpr, SCALED: tl.constexpr, TINY: tl.constexpr,
    ROUNDED: tl.constexpr,
):  # fmt: skip
    """Some columns of a row; returns the larger magnitude of both gradients as they were stored."""
    columns = columns_of(first, BLOCK, SCALED)
    inside = columns < width
    d = tl.load(dh + columns, mask=inside, other=0.0).to(tl.float32)
    if KEPT:
        g = restored(kept, scales, first, width, BLOCK, SCALED)
        u = restored(kept + width, scales + tl.cdiv(width, SCALED), first, width, BLOCK, SCALED)
    else:
        g = tl.load(gate + columns, mask=inside, other=0.0).to(tl.float32)
        u = tl.load(up + columns, mask=inside, other=0.0).to(tl.float32)
        if ROUNDED:
            g, u = as_kept(g, TINY), as_kept(u, TINY)
    value, slope = _activation(g, GELU, gate.dtype.element_ty == tl.float32)
    dg, du = (d * u * slope).to(gate.dtype.element_ty), (d * value).to(gate.dtype.element_ty)
    tl.store(gate + columns, dg, mask=inside)
    tl.store(up + columns, du, mask=inside)
    tl.store(dh + columns, value * u, mask=inside)
    return tl.maximum(size_of(dg.to(tl.float32)), size_of(du.to(tl.float32)))


@jit
def _backward(  # type: ignore[no-untyped-def]
    dh, gate, up, kept, scales, eight, eight_scales, dh_row, gate_row, up_row, kept_row, scales_row, width,
    GELU: tl.constexpr, BLOCK: tl.constexpr, KEPT: tl.constexpr, SCALED: tl.constexpr, EIGHT: tl.constexpr,
    LARGEST: tl.constexpr, TINY: tl.constexpr, WHOLE: tl.constexpr, EXACT: tl.constexpr, ROUNDED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    dh += row * dh_row
    gate += row * gate_row
    up += row * up_row
    kept += row * kept_row
    scales += row * scales_row
    if EIGHT:
        most = tl.zeros((BLOCK // SCALED, SCALED), tl.int32)
        for first in range(0, width, BLOCK):
            more = _backward_piece(dh, gate, up, kept, scales, first, width, GELU, BLOCK, KEPT, SCALED, TINY, ROUNDED)
            most = tl.maximum(most, more)
        scale, inverse = factors_of(tl.max(tl.max(most, axis=1), axis=0), LARGEST, TINY)
        tl.store(eight_scales + row, scale)
        tl.debug_barrier()  # below a thread may read what another wrote above
        eight += row * 2 * width
        put_again(gate, eight, inverse, width, BLOCK, WHOLE, EXACT)
        put_again(up, eight + width, inverse, width, BLOCK, WHOLE, EXACT)
    else:
        first = tl.program_id(1) * BLOCK
        _backward_piece(dh, gate, up, kept, scales, first, width, GELU, BLOCK, KEPT, SCALED, TINY, ROUNDED)


def _launch(
    kernel: Any, tensors: tuple[torch.Tensor, ...], kept: Kept | None, made: tuple[Any, ...], block: int, **flags: Any
) -> None:  # fmt: skip
    """``kernel`` over ``[T, I]`` tensors, whose rows may be strided; ``made`` is for rows in eight bits, if any."""
    rows, width = tensors[0].shape
    block = min(block, block_of(max(width, SCALED)))
    blocks = 1 if flags.get("EIGHT") else -(-width // block)
    both = tensors[:2] if kept is None else (kept.values, kept.scales)
    if rows * width:
        launch(
            kernel, (rows, blocks), *tensors, *both, *made, *(one.stride(0) for one in (*tensors, *both)),
            width, BLOCK=block, KEPT=kept is not None, SCALED=SCALED,
            num_warps=max(1, block // 256), **flags,
        )  # fmt: skip


def gate(gate_up: torch.Tensor, kind: str, out: torch.Tensor, kept: Kept | None = None) -> torch.Tensor:
    """``f(gate) · up`` of rows ``[gate | up]`` ``[T, 2I]`` into ``out [T, I]``, without autograd.

    ``kind`` is ``silu`` or ``gelu_tanh``; ``kept`` is filled with both. See ``reference.gate``.
    """
    if not rows_run(gate_up, out):
        if kept is not None:
            kept.fill(gate_up)
        return reference.gate(gate_up, kind, out)
    half = gate_up.shape[1] // 2
    block, exact = (WIDEST_BLOCK, {}) if kept is None else (WIDEST_KEPT, UNFUSED)
    tensors = gate_up[:, :half], gate_up[:, half:], out
    _launch(_forward, tensors, kept, (), block, GELU=kind == "gelu_tanh", TINY=TINY, **exact)
    return out


def gate_backward_(
    dh: torch.Tensor, gate_up: torch.Tensor, kind: str, kept: Kept | None = None, rounded: bool = False,
    eight: Quantised | None = None,
) -> None:  # fmt: skip
    """In place: ``gate_up [T, 2I]`` becomes ``[dgate | dup]`` and ``dh [T, I]`` becomes the ``h`` of ``gate``.

    Args:
        kept: where gate and up are read; ``gate_up`` then needs no values.
        rounded: they are rounded as ``Kept`` would have them.
        eight: filled with ``[dgate | dup]``.
    """
    if rows_run(dh, gate_up):
        half = gate_up.shape[1] // 2
        tensors = dh, gate_up[:, :half], gate_up[:, half:]
        made = tensors[:2] if eight is None else (eight.values, eight.scales)
        flags = SIXTEEN_BITS | (UNFUSED if kept or rounded else {}) if eight is None else flags_of(eight)
        block = WIDEST_BLOCK if eight is None else WIDEST_PIECE
        gelu = kind == "gelu_tanh"
        _launch(_backward, tensors, kept, made, block, GELU=gelu, ROUNDED=rounded, EIGHT=eight is not None, **flags)
        return
    if kept is None and not rounded:
        reference.gate_backward_(dh, gate_up, kind)
    else:
        if kept is None:
            kept = Kept.room(gate_up)
            kept.fill(gate_up)
        both = kept.wide()
        reference.gate_backward_(dh, both, kind)
        gate_up.copy_(both)
    if eight is not None:
        quantise_into(eight, gate_up)
