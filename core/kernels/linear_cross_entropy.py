"""Head and cross-entropy in chunks of tokens, without the T×V logits.

For each chunk C, in the forward pass::

    X = H_C W'            [C, V], always in the same memory
    losses, G = cross_entropy(X, labels_C)      G written over X
    dH_C = G W            [C, D]

Only dH is kept; backward is ``dH[t] · grad[t]``, in place: each token's own gradient, so that any loss over the
tokens' log-probabilities is computed from this op's losses.

The head W is frozen there. The gradient of a trained one sums over tokens, each with a weight that only the backward
pass knows, so a chunk's logits are made once more in it; kept are H and the labels::

    G = ∂ losses_C / ∂ (H_C W') · grad_C      [C, V], in place of the logits
    dH_C = G W        dW += G' H_C             dW in float32

A head that does not lie on the card comes in tiles W_j of its rows, and is read once by each block of tokens. What
softmax divides by is known behind the last tile, so sums are kept relative to the largest logit m so far, as attention
does it (Milakov and Gimelshein 2018, arXiv:1805.02867). The label y stays out of S, so that it keeps its digits where
it has nearly all of the probability::

    Z = H_B W_j'      m' = max(m, max Z)      s = s e^(m - m') + Σ e^(Z - m')      S = S e^(m - m') + e^(Z - m') W_j
    losses = m + log s - Z_y      dH_B = S / s + (e^(Z_y - m) / s - 1) W_y
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from core.kernels import reference
from core.kernels.cross_entropy import cross_entropy, cross_entropy_gradient_

LOGITS_AT_ONCE = 2**26
"""Logits of a chunk: 128 MiB in 16 bits."""
TILED_LOGITS, TILED_SUMS = 2**23, 2**25
"""Of a head in tiles: logits at once, and values of S, which tell how many tokens a block has."""
Tiles = Callable[[], Iterable[tuple[int, torch.Tensor]]]
"""Rows of a head ``[rows, D]`` from first to last, each with the number of its first; each is read before the next."""


def chunk_tokens(tokens: int, vocabulary: int) -> int:
    """Tokens of a chunk, at least one."""
    return max(1, min(tokens, LOGITS_AT_ONCE // max(1, vocabulary)))


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, scale: float, softcap: float
    ) -> torch.Tensor:
        tokens, vocabulary = hidden.shape[0], weight.shape[0]
        losses = hidden.new_empty(tokens, dtype=reference.wide(hidden.dtype))
        # On the CPU torch's bfloat16 product keeps a NaN that was in the memory of its result.
        new = hidden.new_empty if hidden.is_cuda else hidden.new_zeros
        gradient = new(hidden.shape) if ctx.needs_input_grad[0] else None
        # Rows begin at multiples of 128 bytes in 16 bits: odd vocabularies are then as fast as even ones.
        apart = -(-vocabulary // 64) * 64
        chunk = chunk_tokens(tokens, apart)
        buffer = new(chunk, apart)[:, :vocabulary]
        for start in range(0, tokens, chunk):
            part = slice(start, start + chunk)
            logits = buffer[: min(chunk, tokens - start)]
            torch.mm(hidden[part], weight.T, out=logits)
            if gradient is None:
                losses[part] = cross_entropy(logits, labels[part], scale, softcap)
            else:
                losses[part] = cross_entropy_gradient_(logits, labels[part], scale, softcap)
                torch.mm(logits, weight, out=gradient[part])
        ctx.save_for_backward(*([gradient] if gradient is not None else []))
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        each = grad[:, None]
        # Where this backward pass may run again, the saved tensor must stay unchanged.
        ask = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
        kept = ask is None or bool(ask())
        scaled = (gradient * each).to(gradient.dtype) if kept else gradient.mul_(each)
        return scaled, None, None, None, None


class _HeadInTiles(_LinearCrossEntropy):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, hidden: torch.Tensor, tiles: Tiles, labels: torch.Tensor, scale: float, softcap: float
    ) -> torch.Tensor:
        losses = hidden.new_empty(len(hidden), dtype=reference.wide(hidden.dtype))
        gradient = torch.zeros_like(hidden) if ctx.needs_input_grad[0] else None
        block = max(1, TILED_SUMS // hidden.shape[1])
        for start in range(0, len(hidden), block):
            part = slice(start, start + block)
            own = None if gradient is None else gradient[part]
            # Without a name: a block that is kept while the next is made has its sums there a second time.
            losses[part] = _Block(hidden[part], labels[part], (scale, softcap), own).run(tiles)
        ctx.save_for_backward(*([gradient] if gradient is not None else []))
        return losses


class _Block:
    """A block of tokens under a head in tiles. ``gradient [B, D]`` has W_y until the last tile, then dH."""

    def __init__(
        self, hidden: torch.Tensor, labels: torch.Tensor, formula: tuple[float, float], gradient: torch.Tensor | None
    ) -> None:
        self._hidden, self._labels, self._gradient = hidden, labels, gradient
        self._scale, self._softcap = formula
        new, wide = hidden.new_zeros, reference.wide(hidden.dtype)
        self._highest = hidden.new_full((len(hidden), 1), -torch.inf, dtype=wide)
        self._total, self._target = (new(len(hidden), 1, dtype=wide) for _ in range(2))
        self._summed = None if gradient is None else new(hidden.shape, dtype=wide)

    def run(self, tiles: Tiles) -> torch.Tensor:
        """Losses of the block."""
        for first, weight in tiles():
            step = max(1, TILED_LOGITS // max(weight.shape))
            for start in range(0, len(self._hidden), step):
                self._chunk(slice(start, start + step), first, weight)
        counts = (self._labels != reference.IGNORED)[:, None]
        if self._gradient is not None and self._summed is not None:
            less = torch.exp(self._target - self._highest) / self._total - 1.0
            of_label = torch.where(counts, less * self._slope(self._target), 0.0)
            self._gradient.copy_(self._summed.mul_(counts / self._total).addcmul_(self._gradient, of_label))
        return torch.where(counts, self._highest + self._total.log() - self._target, 0.0)[:, 0]

    def _chunk(self, rows: slice, first: int, weight: torch.Tensor) -> None:
        """Some tokens under one tile."""
        z = (self._hidden[rows] @ weight.T).to(self._total.dtype)
        z.mul_(self._scale)
        if self._softcap:
            z.div_(self._softcap).tanh_().mul_(self._softcap)
        place = self._labels[rows, None] - first
        here, place = (place >= 0) & (place < len(weight)), place.clamp(0, len(weight) - 1)
        before, total, target = self._highest[rows], self._total[rows], self._target[rows]
        peak = torch.maximum(before, z.amax(1, keepdim=True))
        fallen = torch.exp(before - peak)
        before.copy_(peak)
        target.copy_(torch.where(here, z.gather(1, place), target))
        slope = self._slope(z) if self._softcap else self._scale
        share = z.sub_(peak).exp_()
        total.mul_(fallen).add_(share.sum(1, keepdim=True))
        if self._gradient is None or self._summed is None:
            return
        share.mul_(slope).scatter_(1, place, share.gather(1, place).masked_fill_(here, 0.0))
        del slope
        self._summed[rows].mul_(fallen).add_(share.to(weight.dtype) @ weight)
        del z, share
        own = self._gradient[rows]
        own.copy_(torch.where(here, weight[place[:, 0]], own))

    def _slope(self, z: torch.Tensor) -> torch.Tensor:
        """dz / dlogits."""
        if not self._softcap:
            return torch.full_like(z, self._scale)
        return (z / self._softcap).square_().neg_().add_(1.0).mul_(self._scale)


class _TrainedHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, scale: float, softcap: float
    ) -> torch.Tensor:
        ctx.save_for_backward(hidden, weight, labels)
        ctx.formula = scale, softcap
        losses = hidden.new_empty(hidden.shape[0], dtype=reference.wide(hidden.dtype))
        for part in _chunks(hidden, weight):
            losses[part] = cross_entropy(hidden[part] @ weight.T, labels[part], scale, softcap)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden, weight, labels = ctx.saved_tensors
        of_hidden = torch.empty_like(hidden)
        of_weight = torch.zeros_like(weight, dtype=reference.wide(weight.dtype))
        for part in _chunks(hidden, weight):
            logits = hidden[part] @ weight.T
            cross_entropy_gradient_(logits, labels[part], *ctx.formula)
            logits.mul_(grad[part, None].to(logits.dtype))
            torch.mm(logits, weight, out=of_hidden[part])
            of_weight += logits.T @ hidden[part]
        return of_hidden, of_weight.to(weight.dtype), None, None, None


def _chunks(hidden: torch.Tensor, weight: torch.Tensor) -> list[slice]:
    step = chunk_tokens(hidden.shape[0], weight.shape[0])
    return [slice(start, start + step) for start in range(0, hidden.shape[0], step)]


def linear_cross_entropy(
    hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, scale: float = 1.0, softcap: float = 0.0
) -> torch.Tensor:
    """Losses ``[T]`` of ``hidden [T, D]`` under the head ``weight [V, D]``; see the reference of this name.

    Returns:
        float32 (float64 for float64 inputs), 0 where a token has no target.
    """
    if weight.requires_grad and torch.is_grad_enabled():
        trained: torch.Tensor = _TrainedHead.apply(hidden.contiguous(), weight, labels, scale, softcap)
        return trained
    result: torch.Tensor = _LinearCrossEntropy.apply(hidden.contiguous(), weight, labels, scale, softcap)
    return result


def cross_entropy_in_tiles(
    hidden: torch.Tensor, tiles: Tiles, labels: torch.Tensor, scale: float = 1.0, softcap: float = 0.0
) -> torch.Tensor:
    """``linear_cross_entropy`` of a frozen head that comes in tiles."""
    result: torch.Tensor = _HeadInTiles.apply(hidden.contiguous(), tiles, labels, scale, softcap)
    return result
