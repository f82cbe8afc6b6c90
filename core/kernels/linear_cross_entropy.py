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
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from core.kernels import reference
from core.kernels.cross_entropy import cross_entropy, cross_entropy_gradient_

LOGITS_AT_ONCE = 2**26
"""Logits of a chunk: 128 MiB in 16 bits."""


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
