"""Peak memory of one step: what is there all the time, and the highest of these moments.

When the backward pass begins, the model's end comes on top of the stored activations; later, without it, a layer's own
work and its matrix do. Gradients grow while activations go; at the end of a step they are joined, and for a moment
there twice. So the peak is no sum::

    weights + lora + optimiser + context + the allocator's gaps + the highest of
        loss       gradients*  stored activations   the model's end           cuBLAS's room
        backward   gradients*  activations          a matrix made whole       cuBLAS's room
        first      gradients   the first layer's    a matrix made whole       cuBLAS's room
        again      gradients   a recomputed layer   its matrices, if kept     cuBLAS's room    (under a budget)
        embedding  gradients                        its own, as it comes      cuBLAS's room    (every weight trained)
        step       gradients, twice †                                         cuBLAS's room
        loading                                         a head left out for scores

    † joined, or beside what the optimiser takes for a moment
    * none where the step is a single micro-batch

A run under a budget takes most in the longest micro-batch of which everything is kept, or in its longest.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

import core.estimate.terms as terms
from core.contract.estimate import MemoryKey, MemoryPart
from core.estimate.inputs.layer import longest_kept
from core.estimate.inputs.work import GIB, Work

KEYS: tuple[MemoryKey, ...] = get_args(MemoryKey)


@dataclass(frozen=True)
class Height:
    """Bytes at a run's highest moment, by the keys of ``MemoryPart``."""

    parts: dict[str, int]

    @property
    def allocated(self) -> int:
        """Bytes of tensors, as torch's allocator counts them."""
        return sum(size for key, size in self.parts.items() if key not in ("slack", "context"))

    @property
    def reserved(self) -> int:
        """Bytes that torch's allocator holds."""
        return self.allocated + self.parts["slack"]

    @property
    def total(self) -> int:
        """Bytes that the process takes of the card."""
        return self.reserved + self.parts["context"]


def peak_bytes(work: Work) -> int:
    """The most memory that a step takes at once, gaps and context included."""
    return height(work).total


def height(work: Work) -> Height:
    """The highest moment of a run, part by part."""
    return _height(_fullest(work))


@lru_cache(maxsize=8)  # of the micro-batch that is compared with a shorter one, and then asked for
def _height(work: Work) -> Height:
    gradients, activations, loss, workspace = max(_moments(work), key=sum)
    allocated = terms.always_bytes(work) + gradients + activations + loss + workspace
    return Height(
        {
            "weights": work.model.weights_bytes,
            "lora": terms.lora_bytes(work),
            "gradients": gradients,
            "optimiser": work.model.optimiser_bytes,
            "activations": activations,
            "loss": loss,
            "workspace": workspace,
            "slack": terms.slack_bytes(work, allocated),
            "context": terms.context_bytes(work),
        }
    )


def _moments(work: Work) -> list[tuple[int, int, int, int]]:
    """``(gradients, activations, loss, workspace)`` at each moment of the module's table."""
    gradients, workspace = terms.gradients_bytes(work), terms.workspace_bytes(work)
    earlier, room = (0 if work.single else gradients), terms.CUBLAS_BYTES if work.model.gpu else 0
    moments = [
        (earlier, terms.stored_bytes(work), terms.loss_bytes(work), room),
        (earlier, terms.activations_bytes(work), 0, workspace),
        (gradients - terms.late_bytes(work), terms.last_activations_bytes(work), 0, workspace),
        (gradients, 0, terms.embedding_bytes(work), room),
        (gradients + terms.step_bytes(work), 0, 0, room),
        (0, 0, terms.loading_bytes(work), 0),
    ]
    if terms.kept_of(work) < work.model.shape.num_hidden_layers:
        activations, made = terms.recomputing_bytes(work)
        moments.append((gradients, activations, 0, made + room))
    return moments


def _fullest(work: Work) -> Work:
    """The micro-batch in which a run takes most: under a budget maybe a shorter one, of which everything is kept. Where
    all rows are equally long, it has a whole number of them."""
    if work.policy != "budget" or terms.kept_of(work) == work.model.shape.num_hidden_layers:
        return work
    tokens, row = whole_tokens(work), work.model.row
    whole = work.at(tokens if work.varied else max(0, min(tokens, work.tokens) // row * row))
    return whole if whole.tokens and _height(whole).total > _height(work).total else work


def fewer_streamed(work: Work, cards: int, missing: int, limit: int) -> str:
    """How many layers to stream at most, in a list of words; nothing where the card would not hold the others.

    Args:
        cards: that stream from this machine's memory, which lacks ``missing`` bytes for them.
        limit: bytes that may be used of each.
    """
    model, there = work.model, terms.kept_there(work, cards) - missing
    most = model.streamed_layers - math.ceil(missing / model.streamed_layer_bytes) if model.streamed else -1
    for layers in range(most, -1, -1):  # and fewer still, since more layer inputs may go there
        fewer = work.streaming(layers)
        if peak_bytes(fewer) > limit:
            break
        if terms.kept_there(fewer, cards) <= there:
            return f"stream at most {layers} layers, "
    return ""


def whole_tokens(work: Work) -> int:
    """Tokens of the longest micro-batch of which a budget keeps everything."""
    room = terms.room_bytes(work.at(0))  # it is too short to leave larger gaps
    return longest_kept(work.model.layer, work.model.end, work.model.shape.num_hidden_layers, room)


def memory_terms(work: Work, learned: int = 0) -> tuple[MemoryPart, ...]:
    """Every part with its formula in words, in the order of ``KEYS``.

    ``learned``: bytes by which earlier runs took more or less than counted; they are put to the activations, since all
    else is known exactly.
    """
    at_peak, full = height(work).parts, _fullest(work)
    own = {
        "gradients": terms.gradients_bytes(work),
        "activations": terms.activations_bytes(full),
        "loss": terms.loss_bytes(full),
        "workspace": terms.workspace_bytes(full),
    }
    words = _words(work)
    if at_peak["gradients"] > own["gradients"]:
        words["gradients"] += ", twice while they are joined"
    parts = []
    for key in KEYS:
        more = learned if key == "activations" else 0
        whole = max(0, max(at_peak[key], own.get(key, 0)) + more)
        parts.append(MemoryPart(key=key, bytes=whole, how=words[key], at_peak=max(0, at_peak[key] + more)))
    return tuple(parts)


def _words(work: Work) -> dict[MemoryKey, str]:
    trained = f"{_count(terms.adapter_parameters(work))} numbers"
    pieces = "piece by piece" if work.model.pieces else "whole"
    logits = f"logits over a vocabulary of {work.model.vocabulary:,}, {pieces}"
    logits = "one row of scores a text" if work.model.scores else logits
    return {
        "weights": _weights(work),
        "lora": _learning(work, trained),
        "gradients": f"one for each of {trained}" + (", none yet when activations are highest" if work.single else ""),
        "optimiser": work.model.optimiser.keeps.format(numbers=trained),
        "activations": _activations(work),
        "loss": f"last norm and {logits}",
        "workspace": "the largest matrix, made whole for its product",
        "slack": "held by torch's allocator between tensors, and not to be had",
        "context": "CUDA context and kernels" if work.model.gpu else "Python and its libraries",
    }


def _learning(work: Work, trained: str) -> str:
    model = work.model
    if model.learns.base:
        return (
            f"{trained} in 32 bits, of which the model is a rounded copy" if model.copies_bytes else "the model itself"
        )
    ends = f", {_count(model.ends_numbers)} of it embedding and head" if model.learns.ends else ""
    return f"rank {model.lora.r}: {trained} in 32 bits{ends}"


def _weights(work: Work) -> str:
    shape = work.model.shape
    weights = f"{_count(shape.parameters)} weights"
    bits = 8 * work.model.weight_itemsize
    if not work.model.form.quantised:
        return f"{weights}, {bits} bits"
    whole = (shape.parameters - shape.linear_parameters) * work.model.dtype_bytes
    tables = work.model.weights_bytes - whole - shape.linear_parameters // 2
    head = "embedding, which is the head too," if shape.tie_word_embeddings else "embedding and head"
    return (
        f"{weights}, NF4 with double quantisation: of it {_size(tables)} are its tables, "
        f"and {_size(whole)} {head} in {bits} bits"
    )


def _count(number: int) -> str:
    return f"{number / 1e9:.2f} B" if number >= 1e9 else f"{number / 1e6:.1f} M"


def _size(size: int) -> str:
    return f"{size / GIB:.2f} GB" if size >= GIB / 10 else f"{size / 2**20:.1f} MB"


def _activations(work: Work) -> str:
    tokens, pinned = f"{work.tokens:,} tokens a pass", terms.pinned_bytes(work) / GIB
    if not pinned:
        kept = work.policy in ("none", "budget")
        return f"{tokens}, " + ("kept for the backward pass" if kept else "one input a layer, the rest recomputed")
    where = f"inputs in host memory ({pinned:.1f} GB of it)"
    if work.tiled and not terms.kept_of(work):
        return f"{tokens}, recomputed in tiles of {work.tile:,}, {where}"
    if work.policy == "offload":
        return f"{tokens}, recomputed, {where}"
    return f"kept in passes of up to {whole_tokens(work):,} tokens; up to {tokens} recomputed in part, {where}"
