"""Cross-entropy of a block of logits, its gradient written over them.

Forward, a token with logits x and target y::

    z = cap · tanh(scale · x / cap)          (cap 0: z = scale · x)
    loss = log Σ_v exp(z_v) - z_y            (0 where y = -100)

Backward::

    dloss/dx_v = (exp(z_v) / Σ exp(z) - [v = y]) · (1 - (z_v / cap)²) · scale

One program walks one token's vocabulary twice: once for the running maximum and sum (Milakov and Gimelshein 2018,
arXiv:1805.02867), once to write the gradient. Nothing of the size of the vocabulary is held beside the logits.
"""

from __future__ import annotations

import torch

from core.kernels import reference
from core.kernels.dispatch import block_of, jit, launch, tl, use_triton

__all__ = ["cross_entropy_gradient_"]


@jit
def _kernel(  # type: ignore[no-untyped-def]
    logits, labels, losses, row_stride, vocabulary, scale, softcap,
    CAPPED: tl.constexpr, IGNORED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    start = logits + row.to(tl.int64) * row_stride
    label = tl.load(labels + row)
    columns = tl.arange(0, BLOCK)
    if label == IGNORED:
        for begin in range(0, vocabulary, BLOCK):
            inside = begin + columns < vocabulary
            tl.store(start + begin + columns, tl.zeros([BLOCK], tl.float32), mask=inside)
        tl.store(losses + row, 0.0)
    else:
        highest = -float("inf")
        total = 0.0
        for begin in range(0, vocabulary, BLOCK):
            inside = begin + columns < vocabulary
            z = tl.load(start + begin + columns, mask=inside, other=0.0).to(tl.float32) * scale
            if CAPPED:
                z = softcap * (2.0 * tl.sigmoid(2.0 * z / softcap) - 1.0)
            z = tl.where(inside, z, -float("inf"))
            new_highest = tl.maximum(highest, tl.max(z, axis=0))
            total = total * tl.exp(highest - new_highest) + tl.sum(tl.exp(z - new_highest), axis=0)
            highest = new_highest
        log_sum = highest + tl.log(total)
        target = tl.load(start + label).to(tl.float32) * scale
        if CAPPED:
            target = softcap * (2.0 * tl.sigmoid(2.0 * target / softcap) - 1.0)
        tl.store(losses + row, log_sum - target)
        for begin in range(0, vocabulary, BLOCK):
            inside = begin + columns < vocabulary
            z = tl.load(start + begin + columns, mask=inside, other=0.0).to(tl.float32) * scale
            slope = scale
            if CAPPED:
                z = softcap * (2.0 * tl.sigmoid(2.0 * z / softcap) - 1.0)
                slope = scale * (1.0 - (z / softcap) * (z / softcap))  # tanh' = 1 - tanh²
            gradient = (tl.exp(z - log_sum) - tl.where(begin + columns == label, 1.0, 0.0)) * slope
            tl.store(start + begin + columns, gradient, mask=inside)


def cross_entropy_gradient_(
    logits: torch.Tensor, labels: torch.Tensor, scale: float = 1.0, softcap: float = 0.0
) -> torch.Tensor:
    """Losses ``[T]`` of ``logits [T, V]``, which become the gradient of the losses' sum, in their own dtype.

    ``logits`` must have contiguous rows; ``labels [T]`` int64 lie in the vocabulary or are -100. See
    ``reference.cross_entropy_gradient_``.
    """
    if not use_triton(logits) or logits.stride(-1) != 1:
        return reference.cross_entropy_gradient_(logits, labels, scale, softcap)
    tokens, vocabulary = logits.shape
    losses = torch.empty(tokens, dtype=torch.float32, device=logits.device)
    if tokens:
        block = min(8192, block_of(vocabulary))
        launch(
            _kernel, (tokens,), logits, labels.contiguous(), losses, logits.stride(0), vocabulary,
            float(scale), float(softcap),
            CAPPED=bool(softcap), IGNORED=reference.IGNORED, BLOCK=block, num_warps=min(8, max(1, block // 512)),
        )  # fmt: skip
    return losses
