"""Rotary position embedding of queries and keys at once.

With a head's halves (x1, x2), and cos, sin given for both halves::

    forward    y1 = x1 · c1 - x2 · s1        y2 = x2 · c2 + x1 · s2
    backward   dx1 = dy1 · c1 + dy2 · s2     dx2 = dy2 · c2 - dy1 · s1

cos and sin come from the model's rotary module, scaling of positions included. Where they are narrower than a head
(Phi-4-mini), the rest of the head stays. One program turns some heads of one token.

``turn_`` works in place on rows ``[q heads | k heads | v heads]``; ``turn_back`` writes gradients into such rows.
"""

import math

import torch

from core.kernels import reference
from core.kernels.dispatch import block_of, jit, launch, rows_run, tl


@jit
def _turn_heads(  # type: ignore[no-untyped-def]
    source, target, source_head, target_head, cos, sin, head, heads, half, head_dim,
    BACKWARD: tl.constexpr, HALF: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Heads ``head`` of one token from ``source`` to ``target``; cos and sin point at the token's angles."""
    column = tl.arange(0, HALF)[None, :]
    inside = (head < heads) & (column < half)
    c1 = tl.load(cos + column, mask=column < half, other=0.0).to(tl.float32)
    c2 = tl.load(cos + half + column, mask=column < half, other=0.0).to(tl.float32)
    s1 = tl.load(sin + column, mask=column < half, other=0.0).to(tl.float32)
    s2 = tl.load(sin + half + column, mask=column < half, other=0.0).to(tl.float32)
    start = source + head * source_head + column
    x1 = tl.load(start, mask=inside, other=0.0).to(tl.float32)
    x2 = tl.load(start + half, mask=inside, other=0.0).to(tl.float32)
    if BACKWARD:
        y1 = x1 * c1 + x2 * s2
        y2 = x2 * c2 - x1 * s1
    else:
        y1 = x1 * c1 - x2 * s1
        y2 = x2 * c2 + x1 * s2
    end = target + head * target_head + column
    tl.store(end, y1, mask=inside)
    tl.store(end + half, y2, mask=inside)
    if REST:
        _copy_heads(
            source + 2 * half, target + 2 * half, source_head, target_head, head, heads, head_dim - 2 * half, REST
        )


@jit
def _copy_heads(  # type: ignore[no-untyped-def]
    source, target, source_head, target_head, head, heads, width, BLOCK: tl.constexpr
):  # fmt: skip
    column = tl.arange(0, BLOCK)[None, :]
    inside = (head < heads) & (column < width)
    values = tl.load(source + head * source_head + column, mask=inside, other=0.0)
    tl.store(target + head * target_head + column, values, mask=inside)


@jit(varying=("angles",))
def _turn(  # type: ignore[no-untyped-def]
    x, cos, sin, x_token, angle_token, angles, heads, blocks, half, head_dim,
    BACKWARD: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) // blocks).to(tl.int64)
    head = (tl.program_id(0) % blocks) * HEADS + tl.arange(0, HEADS)[:, None]
    angle = (row % angles) * angle_token
    here = x + row * x_token
    # REST is 0: in place, columns that are not turned stay.
    _turn_heads(
        here, here, head_dim, head_dim, cos + angle, sin + angle, head, heads, half, head_dim, BACKWARD, HALF, 0
    )


@jit(varying=("angles",))
def _turn_back(  # type: ignore[no-untyped-def]
    dq, dk, dv, out, cos, sin, q_token, q_head, k_token, k_head, v_token, v_head, out_token, angle_token, angles,
    q_heads, k_heads, q_blocks, k_blocks, half, head_dim,
    HEADS: tl.constexpr, HALF: tl.constexpr, REST: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    blocks = q_blocks + 2 * k_blocks
    row = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    inner = tl.arange(0, HEADS)[:, None]
    angle = (row % angles) * angle_token
    target = out + row * out_token
    if block < q_blocks:
        head = block * HEADS + inner
        _turn_heads(
            dq + row * q_token, target, q_head, head_dim, cos + angle, sin + angle, head, q_heads, half, head_dim,
            True, HALF, REST,
        )  # fmt: skip
    elif block < q_blocks + k_blocks:
        head = (block - q_blocks) * HEADS + inner
        _turn_heads(
            dk + row * k_token, target + q_heads * head_dim, k_head, head_dim, cos + angle, sin + angle, head, k_heads,
            half, head_dim, True, HALF, REST,
        )  # fmt: skip
    else:
        head = (block - q_blocks - k_blocks) * HEADS + inner
        target += (q_heads + k_heads) * head_dim
        _copy_heads(dv + row * v_token, target, v_head, head_dim, head, k_heads, head_dim, WHOLE)


def _shape(heads: int, rotated: int) -> dict[str, int]:
    """Block sizes and warps. Heads of a program: a power of two that divides them, 4 (some may be masked) to 16."""
    together, half = max(4, min(16, heads & -heads)), block_of(rotated // 2)
    return {"HEADS": together, "HALF": half, "num_warps": min(4, max(1, together * half // 256))}


def turn_(
    rows: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, heads: int, head_dim: int, backward: bool = False
) -> None:
    """Turns the first ``heads`` heads of each row in place, without autograd; see ``reference.turn_``.

    Args:
        rows: ``[T, at least heads · head_dim]``, q heads before k heads; rows may be strided.
        cos, sin: ``[1 or batch, T', rotated]`` with batch · T' = T, or T' alone dividing T; rotated ≤ head_dim.
    """
    if not rows_run(rows):
        reference.turn_(rows, cos, sin, heads, head_dim, backward)
        return
    cos, sin = _flat(cos), _flat(sin)
    shape = _shape(heads, cos.shape[-1])
    blocks = -(-heads // shape["HEADS"])
    if rows.shape[0] * blocks:
        launch(
            _turn, (rows.shape[0] * blocks,), rows, cos, sin, rows.stride(0), cos.stride(0), cos.shape[0],
            heads, blocks, cos.shape[-1] // 2, head_dim, BACKWARD=backward, **shape,
        )  # fmt: skip


def turn_back(
    dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, out: torch.Tensor
) -> None:
    """Turns dq ``[T, Hq, head_dim]`` and dk ``[T, Hk, head_dim]`` back into rows of ``out``, and copies dv after them.

    ``out`` is ``[T, at least (Hq + 2 Hk) · head_dim]`` and shares no memory with the others; cos and sin as in
    ``turn_``. See ``reference.turn_back``.
    """
    if not rows_run(dq, dk, dv, out):
        reference.turn_back(dq, dk, dv, cos, sin, out)
        return
    cos, sin = _flat(cos), _flat(sin)
    tokens, q_heads, head_dim = dq.shape
    k_heads = dk.shape[1]
    shape, rest = _shape(math.gcd(q_heads, k_heads), cos.shape[-1]), head_dim - cos.shape[-1]
    q_blocks, k_blocks = -(-q_heads // shape["HEADS"]), -(-k_heads // shape["HEADS"])
    strides = [step for part in (dq, dk, dv) for step in part.stride()[:2]]
    if tokens:
        launch(
            _turn_back, (tokens * (q_blocks + 2 * k_blocks),), dq, dk, dv, out, cos, sin, *strides, out.stride(0),
            cos.stride(0), cos.shape[0], q_heads, k_heads, q_blocks, k_blocks, cos.shape[-1] // 2, head_dim,
            WHOLE=block_of(head_dim), REST=block_of(rest) if rest else 0, **shape,
        )  # fmt: skip


def _flat(angles: torch.Tensor) -> torch.Tensor:
    """``[rows, rotated]``, a view where possible."""
    return angles.reshape(-1, angles.shape[-1]).contiguous()
