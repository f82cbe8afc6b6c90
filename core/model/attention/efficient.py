"""Memory-efficient attention (Rabe and Staats 2021) with row bounds: torch's operators, or another library's.

Its kernels want keys and values for every query head. They are repeated in the forward pass and again in the backward
one, so that what is kept between the two are those of the groups.

The backward kernel sums the queries' gradients in float32 and takes room for every row as if it were the longest::

    rows · longest · heads · head_dim · 4 bytes        against  T · heads · head_dim · 4  for T tokens of equal rows

One row of 2,048 tokens beside seventy of 200 would take nine times the latter. So it runs for so many heads at once
that no more than that is taken: heads are computed apart from each other, and the result is the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from core.model.attention.choice import AttentionKind, Bounds

NO_MASK, CAUSAL_FROM_TOP_LEFT = 0, 1
BLOCK = 64
"""Queries of one block of the backward kernel."""

Tensors = tuple[torch.Tensor, ...]
Heads = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Library:
    """Who computes it, on ``[1, T, heads, head_dim]`` with keys and values for each head.

    ``forward`` takes (q, k, v), bounds and kind, and returns the output, the sums ``[rows, heads, longest or more]``
    and the state of the dropout, if it has any. ``backward`` takes the output's gradient, (q, k, v), all that
    ``forward`` returned, bounds and kind, and returns (dq, dk, dv).
    """

    forward: Callable[[Heads, Bounds, AttentionKind], Tensors]
    backward: Callable[[torch.Tensor, Heads, Tensors, Bounds, AttentionKind], Heads]


class Efficient(torch.autograd.Function):
    """``[T, heads, head_dim]`` in and out; its window includes the query, as ours."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, bounds: Bounds, kind: AttentionKind, library: Library) -> Any:
        ctx.given = (bounds, kind, library)
        every = range(q.shape[1])
        keys, values = (_of_heads(part, every, len(every))[None] for part in (k, v))
        found = library.forward((q[None], keys, values), bounds, kind)
        ctx.save_for_backward(q, k, v, *found)
        return found[0][0]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, out, sums, *state = ctx.saved_tensors
        bounds, kind, library = ctx.given
        heads, wholes = q.shape[1], []
        size = heads_at_once(heads, bounds, kind)
        for first in range(0, heads, size):
            part = range(first, min(first + size, heads))
            cut = slice(part.start, part.stop)
            keys, values = (_of_heads(each, part, heads)[None] for each in (k, v))
            seen = (out[:, :, cut].contiguous(), sums[:, cut], *state)
            found = library.backward(gradients[0][None, :, cut], (q[None, :, cut], keys, values), seen, bounds, kind)
            if size == heads:
                wholes = [each[0] for each in found]
                break
            wholes = wholes or [each.new_empty(q.shape) for each in found]
            for whole, each in zip(wholes, found, strict=True):
                whole[:, cut] = each[0]
        dq, dk, dv = wholes
        return dq, _of_groups(dk, k.shape[1]), _of_groups(dv, k.shape[1]), None, None, None


def heads_at_once(heads: int, bounds: Bounds, kind: AttentionKind) -> int:
    """Query heads of one call of the backward kernel. Dropout's random numbers are counted by the head: all."""
    if kind.dropout:
        return heads
    there, taken = _blocks(bounds.tokens), bounds.rows * _blocks(bounds.longest)
    most = max(1, heads * there // taken)
    return -(-heads // -(-heads // most))


def _blocks(tokens: int) -> int:
    return max(1, -(-tokens // BLOCK))


def _of_heads(part: torch.Tensor, heads: range, of: int) -> torch.Tensor:
    """Keys or values ``[T, groups, size]`` for these of all ``of`` query heads."""
    each = of // part.shape[1]
    if each == 1:
        return part[:, heads.start : heads.stop]
    there = part[:, heads.start // each : -(-heads.stop // each)].repeat_interleave(each, dim=1)
    return there[:, heads.start % each :][:, : len(heads)]


def _of_groups(gradient: torch.Tensor, groups: int) -> torch.Tensor:
    """The gradient of keys or values ``[T, groups, size]``, of that for each query head."""
    return gradient if gradient.shape[1] == groups else gradient.unflatten(1, (groups, -1)).sum(2)


def _forward(heads: Heads, bounds: Bounds, kind: AttentionKind) -> Tensors:
    out, sums, seed, offset, _, _ = torch.ops.aten._efficient_attention_forward(
        *heads, None, bounds.cu, bounds.cu, bounds.longest, bounds.longest, kind.dropout, _mask_type(kind), True,
        scale=kind.scale, window_size=kind.window,
    )  # fmt: skip
    return out, sums, seed, offset


def _backward(gradient: torch.Tensor, heads: Heads, seen: Tensors, bounds: Bounds, kind: AttentionKind) -> Heads:
    out, sums, seed, offset = seen
    # Split keys are added into the query's gradient in any order.
    splits = 1 if torch.are_deterministic_algorithms_enabled() else None
    dq, dk, dv, _ = torch.ops.aten._efficient_attention_backward(
        gradient, *heads, None, out, bounds.cu, bounds.cu, bounds.longest, bounds.longest, sums, kind.dropout, seed,
        offset, _mask_type(kind), False, scale=kind.scale, num_splits_key=splits, window_size=kind.window,
    )  # fmt: skip
    return dq, dk, dv


def _mask_type(kind: AttentionKind) -> int:
    return CAUSAL_FROM_TOP_LEFT if kind.causal else NO_MASK


TORCH = Library(_forward, _backward)
