"""The height of memory over one step: what stands all the time, and the higher of two moments.

The loss stands on top of the stored activations at the end of the forward pass; a layer's recomputed activations and
its unpacked matrix stand on top of them in the backward pass, when the loss is gone. So the peak is no sum::

    weights + lora + optimiser + gradients + context + max(stored + loss, activations + workspace)
"""

from __future__ import annotations

from core.contract.estimate import Term
from core.estimate import terms
from core.estimate.work import Work

__all__ = ["fixed_bytes", "memory_terms", "peak_bytes"]


def fixed_bytes(work: Work) -> int:
    """What stands through the whole step."""
    parts = (terms.weights_bytes, terms.lora_bytes, terms.optimiser_bytes, terms.gradients_bytes, terms.context_bytes)
    return sum(part(work) for part in parts)


def peak_bytes(work: Work) -> int:
    """The most memory that a step holds at once."""
    forward = terms.stored_bytes(work) + terms.loss_bytes(work)
    backward = terms.activations_bytes(work) + terms.workspace_bytes(work)
    return fixed_bytes(work) + max(forward, backward)


def memory_terms(work: Work) -> tuple[Term, ...]:
    """Every part with its formula in words, in the order in which a person meets them."""
    held = "NF4 with double quantisation" if work.quantized else f"{8 * work.dtype_bytes} bits"
    trained = f"{terms.adapter_parameters(work) / 1e6:.1f} M numbers"
    kept = "one input a layer, the rest recomputed" if work.recompute else "kept for the backward pass"
    bits = "8 bits" if work.eight_bit_optimiser else "32 bits"
    logits = "piece by piece" if work.pieces else "whole"
    vocabulary, billions = work.shape.vocab_size, work.shape.parameters / 1e9
    return (
        Term(key="weights", bytes=terms.weights_bytes(work), how=f"{billions:.2f} B weights, {held}"),
        Term(key="lora", bytes=terms.lora_bytes(work), how=f"rank {work.lora.r}: {trained} in 32 bits"),
        Term(key="gradients", bytes=terms.gradients_bytes(work), how=f"one for each of {trained}"),
        Term(key="optimiser", bytes=terms.optimiser_bytes(work), how=f"two moments of {trained} in {bits}"),
        Term(key="activations", bytes=terms.activations_bytes(work), how=f"{work.tokens} tokens a pass, {kept}"),
        Term(key="loss", bytes=terms.loss_bytes(work), how=f"logits over {vocabulary:,} tokens, {logits}"),
        Term(key="workspace", bytes=terms.workspace_bytes(work), how="the largest matrix, unpacked for its product"),
        Term(
            key="context",
            bytes=terms.context_bytes(work),
            how="CUDA context and kernels" if work.gpu else "Python and its libraries",
        ),
    )
