"""The height of memory over one step: what stands all the time, and the higher of two moments.

The model's end stands on top of the stored activations when the backward pass begins; a layer's own work and its matrix
stand on top of them in its backward pass, when the end's is gone. So the peak is no sum::

    weights + lora + optimiser + gradients + context + max(stored + loss, activations + workspace)

A run under a budget takes most in the longest pass of which everything is kept, or in its longest.
"""

from __future__ import annotations

from dataclasses import replace

from core.contract.estimate import Term
from core.estimate import terms
from core.estimate.layer import longest_kept
from core.estimate.work import Work

__all__ = ["memory_terms", "peak_bytes", "whole_tokens"]


def peak_bytes(work: Work) -> int:
    """The most memory that a step holds at once."""
    return _height(_fullest(work))


def whole_tokens(work: Work) -> int:
    """Tokens of the longest pass of which a budget keeps everything."""
    return longest_kept(work.layer, work.end, work.shape.num_hidden_layers, terms.room_bytes(work))


def memory_terms(work: Work) -> tuple[Term, ...]:
    """Every part with its formula in words, in the order in which a person meets them."""
    held = "NF4 with double quantisation" if work.quantized else f"{8 * work.dtype_bytes} bits"
    trained = f"{terms.adapter_parameters(work) / 1e6:.1f} M numbers"
    bits = "8 bits" if work.eight_bit_optimiser else "32 bits"
    logits = "piece by piece" if work.pieces else "whole"
    vocabulary, billions = work.shape.vocab_size, work.shape.parameters / 1e9
    full = _fullest(work)
    return (
        Term(key="weights", bytes=terms.weights_bytes(work), how=f"{billions:.2f} B weights, {held}"),
        Term(key="lora", bytes=terms.lora_bytes(work), how=f"rank {work.lora.r}: {trained} in 32 bits"),
        Term(key="gradients", bytes=terms.gradients_bytes(work), how=f"one for each of {trained}"),
        Term(key="optimiser", bytes=terms.optimiser_bytes(work), how=f"two moments of {trained} in {bits}"),
        Term(key="activations", bytes=terms.activations_bytes(full), how=_activations(work)),
        Term(
            key="loss", bytes=terms.loss_bytes(full), how=f"last norm and logits over {vocabulary:,} tokens, {logits}"
        ),
        Term(key="workspace", bytes=terms.workspace_bytes(full), how="the largest matrix, made whole for its product"),
        Term(
            key="context",
            bytes=terms.context_bytes(work),
            how="CUDA context and kernels" if work.gpu else "Python and its libraries",
        ),
    )


def _height(work: Work) -> int:
    forward = terms.stored_bytes(work) + terms.loss_bytes(work) + (terms.CUBLAS_BYTES if work.gpu else 0)
    backward = terms.activations_bytes(work) + terms.workspace_bytes(work)
    return terms.standing_bytes(work) + max(forward, backward)


def _fullest(work: Work) -> Work:
    """The pass in which a run takes most."""
    if work.policy != "budget" or terms.kept_of(work) == work.shape.num_hidden_layers:
        return work
    whole = replace(work, tokens=whole_tokens(work))
    return whole if whole.tokens and _height(whole) > _height(work) else work


def _activations(work: Work) -> str:
    tokens, pinned = f"{work.tokens:,} tokens a pass", terms.pinned_bytes(work) / terms.GIB
    if not pinned:
        kept = work.policy in ("none", "budget")
        return f"{tokens}, " + ("kept for the backward pass" if kept else "one input a layer, the rest recomputed")
    where = f"inputs in host memory ({pinned:.1f} GB of it)"
    if work.policy == "offload":
        return f"{tokens}, recomputed, {where}"
    return f"kept in passes of up to {whole_tokens(work):,} tokens; up to {tokens} recomputed in part, {where}"
