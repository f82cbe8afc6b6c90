"""Rotary position embedding of queries and keys at once.

With a head's halves (x1, x2), and cos, sin given for both halves::

    forward    y1 = x1 · c1 - x2 · s1        y2 = x2 · c2 + x1 · s2
    backward   dx1 = dy1 · c1 + dy2 · s2     dx2 = dy2 · c2 - dy1 · s1

cos and sin come from the model's own rotary module, so every scaling of positions is right unasked. One program turns
all heads of one token.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from core.kernels import reference
from core.kernels.dispatch import block_of, jit, launch, tl, use_triton

__all__ = ["rope"]


@jit
def _turn(  # type: ignore[no-untyped-def]
    x, y, cos, sin, batch_stride, head_stride, token_stride, y_batch_stride, y_head_stride, y_token_stride,
    angle_batch_stride, angle_token_stride, tokens, heads, half,
    BACKWARD: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    batch = program // tokens
    token = program % tokens
    head = tl.arange(0, HEADS)[:, None]
    column = tl.arange(0, HALF)[None, :]
    inside = (head < heads) & (column < half)
    angle = batch * angle_batch_stride + token * angle_token_stride + column
    c1 = tl.load(cos + angle, mask=column < half, other=0.0).to(tl.float32)
    c2 = tl.load(cos + angle + half, mask=column < half, other=0.0).to(tl.float32)
    s1 = tl.load(sin + angle, mask=column < half, other=0.0).to(tl.float32)
    s2 = tl.load(sin + angle + half, mask=column < half, other=0.0).to(tl.float32)
    source = x + batch * batch_stride + token * token_stride + head * head_stride + column
    x1 = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    x2 = tl.load(source + half, mask=inside, other=0.0).to(tl.float32)
    if BACKWARD:
        y1 = x1 * c1 + x2 * s2
        y2 = x2 * c2 - x1 * s1
    else:
        y1 = x1 * c1 - x2 * s1
        y2 = x2 * c2 + x1 * s2
    target = y + batch * y_batch_stride + token * y_token_stride + head * y_head_stride + column
    tl.store(target, y1, mask=inside)
    tl.store(target + half, y2, mask=inside)


def _run(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, backward: bool) -> torch.Tensor:
    """One tensor ``[batch, H, T, head_dim]`` turned; the result lies in memory as ``[batch, T, H, head_dim]``."""
    if x.stride(-1) != 1:
        x = x.contiguous()
    batch, heads, tokens, head_dim = x.shape
    y = torch.empty((batch, tokens, heads, head_dim), dtype=x.dtype, device=x.device).transpose(1, 2)
    half = head_dim // 2
    shape = {"HEADS": block_of(heads), "HALF": block_of(half)}
    if batch * tokens:
        launch(
            _turn, (batch * tokens,), x, y, cos, sin, x.stride(0), x.stride(1), x.stride(2),
            y.stride(0), y.stride(1), y.stride(2), cos.stride(0) if cos.shape[0] > 1 else 0, cos.stride(1),
            tokens, heads, half, BACKWARD=backward, **shape,
            num_warps=min(8, max(1, shape["HEADS"] * shape["HALF"] // 256)),
        )  # fmt: skip
    return y


class _Rope(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(cos, sin)
        return _run(q, cos, sin, backward=False), _run(k, cos, sin, backward=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dq: torch.Tensor, dk: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return _run(dq, cos, sin, backward=True), _run(dk, cos, sin, backward=True), None, None


def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Turns ``q`` and ``k`` ``[batch, H, T, head_dim]`` by ``cos``, ``sin`` ``[batch or 1, T, head_dim]``.

    A part of the head that is not turned (Phi-3) takes the twin; see ``reference.rope``.
    """
    whole = cos.shape[-1] == q.shape[-1] and cos.shape[0] in (1, q.shape[0])
    if not use_triton(q) or not whole:
        return reference.rope(q, k, cos, sin)
    cos, sin = cos.contiguous(), sin.contiguous()
    turned_q, turned_k = _Rope.apply(q, k, cos, sin)
    return turned_q, turned_k
