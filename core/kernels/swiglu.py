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
next projection's gradient needs, over dh.
"""

from typing import Any

import torch

from core.kernels import reference
from core.kernels.dispatch import block_of, jit, launch, rows_run, tl

WIDEST_BLOCK = 1024
"""Columns of one program: 8 a thread."""


@jit
def _activation(g, GELU: tl.constexpr):  # type: ignore[no-untyped-def]
    """``f(g)`` and ``f'(g)``."""
    if GELU:
        u = 0.7978845608028654 * (g + 0.044715 * g * g * g)
        s = tl.sigmoid(2.0 * u)
        slope_u = 0.7978845608028654 * (1.0 + 0.134145 * g * g)
        value = g * s
        slope = s * (1.0 + 2.0 * g * tl.sigmoid(-2.0 * u) * slope_u)
    else:
        s = tl.sigmoid(g)
        value = g * s
        slope = s * (1.0 + g * (1.0 - s))
    return value, slope


@jit
def _forward(  # type: ignore[no-untyped-def]
    gate, up, h, gate_row, up_row, h_row, width, blocks, GELU: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    g = tl.load(gate + row * gate_row + columns, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_row + columns, mask=inside, other=0.0).to(tl.float32)
    value, _slope = _activation(g, GELU)
    tl.store(h + row * h_row + columns, value * u, mask=inside)


@jit
def _backward(  # type: ignore[no-untyped-def]
    dh, gate, up, dgate, dup, dh_row, gate_row, up_row, dgate_row, dup_row, width, blocks,
    GELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    d = tl.load(dh + row * dh_row + columns, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gate + row * gate_row + columns, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_row + columns, mask=inside, other=0.0).to(tl.float32)
    value, slope = _activation(g, GELU)
    tl.store(dgate + row * dgate_row + columns, d * u * slope, mask=inside)
    tl.store(dup + row * dup_row + columns, d * value, mask=inside)
    tl.store(dh + row * dh_row + columns, value * u, mask=inside)


def _launch(kernel: Any, tensors: tuple[torch.Tensor, ...], **flags: bool) -> None:
    """``kernel`` over ``[T, I]`` tensors, whose rows may be strided."""
    rows, width = tensors[0].shape
    block = min(WIDEST_BLOCK, block_of(width))
    blocks = -(-width // block)
    if rows * blocks:
        launch(
            kernel, (rows * blocks,), *tensors, *(tensor.stride(0) for tensor in tensors), width, blocks,
            BLOCK=block, num_warps=max(1, block // 256), **flags,
        )  # fmt: skip


def gate(gate_up: torch.Tensor, kind: str, out: torch.Tensor) -> torch.Tensor:
    """``f(gate) · up`` of rows ``[gate | up]`` ``[T, 2I]`` into ``out [T, I]``, without autograd.

    ``kind`` is ``silu`` or ``gelu_tanh``. See ``reference.gate``.
    """
    if not rows_run(gate_up, out):
        return reference.gate(gate_up, kind, out)
    half = gate_up.shape[1] // 2
    _launch(_forward, (gate_up[:, :half], gate_up[:, half:], out), GELU=kind == "gelu_tanh")
    return out


def gate_backward_(dh: torch.Tensor, gate_up: torch.Tensor, kind: str) -> None:
    """In place: ``gate_up [T, 2I]`` becomes ``[dgate | dup]`` and ``dh [T, I]`` becomes the ``h`` of ``gate``."""
    if not rows_run(dh, gate_up):
        reference.gate_backward_(dh, gate_up, kind)
        return
    half = gate_up.shape[1] // 2
    left, right = gate_up[:, :half], gate_up[:, half:]
    _launch(_backward, (dh, left, right, left, right), GELU=kind == "gelu_tanh")
