"""Memory, one named function a term, each in bytes.

Symbols: T tokens a pass, D hidden, F inner (MLP), Q and K the widths of queries and keys, V vocabulary, L layers,
R adapter rank, b bytes of the arithmetic's dtype (2 for bfloat16 and float16, 4 for float32).

Activations kept for the backward pass, per token and layer. Plain peft casts each projection's input to the adapter's
float32, so at b = 2 every adapted projection keeps a copy of its own::

    b = 2:  2 (2Q + 2K + 3F) + 4 (5D + Q + F) + 8D + 4 · 7R        (tests count the same in a real model)
    b = 4:  4 (4D + 2Q + 2K + 4F) + 4 · 7R

Our own layers, and what is on top of them in the backward pass: ``core.estimate.inputs.layer``. Of a recomputed layer
only its input is kept; where that goes to host memory, two are on their way on the card. A budget keeps as many layers
as it has room for in this pass.

In plain layers, norms per head keep Q + K once more, norms behind attention and MLP D each, in float32. Where
attention's logits are capped, every pair of tokens in a row keeps its tanh and its weight, the latter twice
(2b + 4 bytes a head), and keys and values stand once for each query head.

NF4 (Dettmers et al. 2023, arXiv:2305.14314) keeps half a byte a weight, one 8-bit scale a block of 64, and, since the
scales are quantised again, one float32 a block of 256 scales, with two small tables a matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import wraps

from core.estimate.inputs.cards import published
from core.estimate.inputs.layer import LEAVING, LOGITS_AT_ONCE, kept_layers, recomputed_bytes
from core.estimate.inputs.work import GIB, Work, matrices

__all__ = [
    "GIB",
    "activations_bytes",
    "adapter_parameters",
    "always_bytes",
    "context_bytes",
    "context_of",
    "gaps_bytes",
    "gradients_bytes",
    "kept_of",
    "last_activations_bytes",
    "layer_bytes_per_token",
    "lora_bytes",
    "loss_bytes",
    "nf4_bytes",
    "optimiser_bytes",
    "pinned_bytes",
    "recomputing_bytes",
    "room_bytes",
    "slack_bytes",
    "stored_bytes",
    "weights_bytes",
    "workspace_bytes",
]

CONTEXT_BYTES = GIB // 2
"""CUDA context and loaded kernels, outside of torch's allocator, of a card that nothing is known of."""
CONTEXT_FIXED_BYTES, CONTEXT_PROCESSOR_BYTES = round(0.35 * GIB), round(0.47 * GIB / 132)
"""The same of a card whose multiprocessors are known: the context keeps memory for each of them. An H200 (132) held
0.67 GiB before any kernel was loaded, and 0.82 with ours; how much of the first is fixed is a guess."""
CUBLAS_BYTES = 2 * 32 * 1024**2
"""cuBLAS's own room, within torch's allocator: one for each thread that multiplies (forward, and autograd's). 32 MiB
each on Hopper, 8 on other cards."""
GAPS = 1 / 32
"""The share of its limit that a run under a budget leaves to gaps of which nobody knows the size beforehand."""
FIXED_GAPS_BYTES = 64 * 1024**2
ADAPTER_GAPS, HIDDEN_GAPS, VARIED_GAPS = 0.25, 3, 1 / 64
"""What was reserved and not allocated over 36 configurations on one H200 (1.3 % of what was reserved is left over on
average): a quarter of the adapter, whose gradients come in blocks of many sizes; three hidden states a token; and where
passes differ in size a share of what moves."""
LIBRARIES_BYTES = 900 * 1024**2
"""Resident size of a worker on the CPU with torch, transformers, peft and bitsandbytes loaded, before any model."""
TABLES_BYTES = 16 * 4 + 256 * 4 + 4
EIGHT_BIT_FROM = 4096
"""bitsandbytes keeps the states of smaller tensors in 32 bits."""


def _once(part: Callable[[Work], int]) -> Callable[[Work], int]:
    """Counted once for a model and its adapter, whatever the pass."""
    return _remembered(part, lambda work: work.fixed)


def _once_a_pass(part: Callable[[Work], int]) -> Callable[[Work], int]:
    return _remembered(part, lambda work: work.own)


def _remembered(part: Callable[[Work], int], place: Callable[[Work], dict[str, int]]) -> Callable[[Work], int]:
    @wraps(part)
    def asked(work: Work) -> int:
        known = place(work)
        if (found := known.get(part.__name__)) is None:
            found = known[part.__name__] = part(work)
        return found

    return asked


def nf4_bytes(inputs: int, outputs: int) -> int:
    """One matrix in NF4 with double quantisation."""
    weights = inputs * outputs
    scales = math.ceil(weights / 64)
    return math.ceil(weights / 2) + scales + 4 * math.ceil(scales / 256) + TABLES_BYTES


@_once
def weights_bytes(work: Work) -> int:
    """The base model: projections in NF4 or whole; embedding, head and norms always whole."""
    shape = work.shape
    whole = shape.parameters - shape.linear_parameters
    if not work.quantized:
        return shape.parameters * work.dtype_bytes
    layer = sum(nf4_bytes(*sizes) for sizes in matrices(shape, work.fused).values())
    return whole * work.dtype_bytes + shape.num_hidden_layers * layer


@_once
def adapter_parameters(work: Work) -> int:
    """Trained numbers: R (in + out) for each adapted matrix, one scale a row for DoRA, and trained biases."""
    return adapter_numbers(work) + work.shape.num_hidden_layers * sum(work.biases)


@_once
def adapter_numbers(work: Work) -> int:
    """Those of them that are the adapter's own, in float32 whatever the base's dtype is."""
    return sum(_each_tensor(work, lambda size: size))


def lora_bytes(work: Work) -> int:
    """The adapter; a bias is one of the base's weights."""
    return 4 * adapter_numbers(work)


@_once
def gradients_bytes(work: Work) -> int:
    """Gradients, each in its parameter's dtype; they stay from the first pass of a step to its end, and are joined
    there."""
    return 4 * adapter_numbers(work) + work.dtype_bytes * work.shape.num_hidden_layers * sum(work.biases)


@_once
def optimiser_bytes(work: Work) -> int:
    """AdamW's two moments: a byte each with a scale a block of 256 in 8 bits, else as large as the parameter each."""
    layers = work.shape.num_hidden_layers
    if work.eight_bit_optimiser:
        return sum(_each_tensor(work, _moments)) + layers * sum(map(_moments, work.biases))
    return 8 * adapter_numbers(work) + 2 * work.dtype_bytes * layers * sum(work.biases)


def _each_tensor(work: Work, count: Callable[[int], int]) -> Iterator[int]:
    """``count`` of every tensor of the adapter: A, B and DoRA's scales; a layer's as often as there are layers."""
    for adapted, times in ((work.adapted, work.shape.num_hidden_layers), (work.adapted_ends, 1)):
        for inputs, outputs in adapted.values():
            scales = (outputs,) if work.lora.use_dora else ()
            yield times * sum(map(count, (work.lora.r * inputs, work.lora.r * outputs, *scales)))


@_once
def always_bytes(work: Work) -> int:
    """What is never gone: weights, adapter, optimiser."""
    return sum(part(work) for part in (weights_bytes, lora_bytes, optimiser_bytes))


def standing_bytes(work: Work) -> int:
    """What stands through a step of more than one pass: gradients and libraries besides."""
    return always_bytes(work) + gradients_bytes(work) + context_bytes(work)


def room_bytes(work: Work) -> int:
    """What a budget leaves for activations."""
    room = work.limit_bytes - standing_bytes(work) - CUBLAS_BYTES
    return max(0, room - gaps_bytes(work.limit_bytes - context_bytes(work), lora_bytes(work)))


def gaps_bytes(limit: int, adapter: int) -> int:
    """What a budget leaves to the allocator's gaps; the run itself counts with this too.

    Args:
        limit: what torch's allocator may have: the run's limit less the context.
        adapter: bytes of the trained numbers.
    """
    return 2 * FIXED_GAPS_BYTES + round(ADAPTER_GAPS * adapter) + round(GAPS * limit)


@_once_a_pass
def kept_of(work: Work) -> int:
    """Layers of which everything is kept in this pass."""
    layers = work.shape.num_hidden_layers
    if work.policy == "budget":
        return kept_layers(work.layer, work.end, work.tokens, layers, room_bytes(work))
    return layers if work.policy == "none" else 0


def pinned_bytes(work: Work) -> int:
    """Host memory that is held for layer inputs, each in a buffer whose size torch rounds up to a power of two."""
    if work.policy not in ("offload", "budget"):
        return 0
    buffer = 1 << max(0, work.tokens * work.layer.input - 1).bit_length()
    return (work.shape.num_hidden_layers - kept_of(work)) * buffer


def stored_bytes(work: Work) -> int:
    """Activations on the card when the loss is computed: of kept layers all, of recomputed ones their inputs."""
    kept, layers = kept_of(work), work.shape.num_hidden_layers
    size = work.tokens * work.shape.hidden_size * work.dtype_bytes
    recomputed = layers - kept
    inputs = min(LEAVING, recomputed) if work.policy in ("offload", "budget") else recomputed
    return inputs * size + kept * work.tokens * layer_bytes_per_token(work)


def activations_bytes(work: Work) -> int:
    """Activations at their height in the backward pass: stored ones, a recomputed layer, gradients on their way."""
    again = 0
    if not kept_of(work):  # its own input is among those that are stored, and comes from the host beside them
        here = 0 if work.policy in ("offload", "budget") else work.shape.hidden_size * work.dtype_bytes
        again = work.tokens * (layer_bytes_per_token(work) - here)
    return stored_bytes(work) + again + _moving(work)[0]


def last_activations_bytes(work: Work) -> int:
    """Activations when the backward pass reaches the first layer: those of that layer alone, and gradients.

    Where its input comes from the host, that stands beside them.
    """
    from_host = work.policy in ("offload", "budget") and kept_of(work) < work.shape.num_hidden_layers
    host = work.shape.hidden_size * work.dtype_bytes if from_host else 0
    return work.tokens * (layer_bytes_per_token(work) + host) + _moving(work)[0]


def recomputing_bytes(work: Work) -> tuple[int, int]:
    """Under a budget, activations and matrices while a recomputed layer goes backward, the kept ones gone.

    Its matrices wait for its backward pass where there is room for all of them (``core.model.layers.checkpointing``).
    """
    if work.policy != "budget":
        return 0, 0
    fixed, whole = work.layer.work(work.tokens)[1], recomputed_bytes(work.layer, work.tokens)
    matrices = work.layer.matrices if whole + work.layer.matrices <= room_bytes(work) else 0
    return whole - fixed, fixed + matrices


def slack_bytes(work: Work, allocated: int) -> int:
    """What torch's allocator holds and cannot hand out, at the height of ``allocated`` bytes.

    Its segments grow (``expandable_segments``) by pages of 2 and 20 MiB, in which tensors of other sizes leave gaps.
    """
    if not work.gpu:
        return 0
    hidden = work.tokens * work.shape.hidden_size * work.dtype_bytes
    gaps = FIXED_GAPS_BYTES + round(ADAPTER_GAPS * lora_bytes(work)) + HIDDEN_GAPS * hidden
    moving = max(0, allocated - always_bytes(work))
    return gaps + (round(VARIED_GAPS * moving) if work.varied else 0)


def loss_bytes(work: Work) -> int:
    """The model's end, on top of the stored activations; see ``ModelEnd``.

    Our kernel turns logits into their gradient in place; without it, and over whole logits, two float32 copies stand.
    """
    if work.pieces and work.kernels:
        return work.end.work(work.tokens)
    logits = work.tokens * work.shape.vocab_size
    if work.pieces:
        logits = min(logits, max(LOGITS_AT_ONCE, work.shape.vocab_size))
    return max(logits * (work.dtype_bytes + 8) + work.tokens * work.end.rows, work.tokens * work.end.norm)


def workspace_bytes(work: Work) -> int:
    """The largest matrix, made whole for its product, and cuBLAS's own room."""
    return _moving(work)[1] + (CUBLAS_BYTES if work.gpu else 0)


def _moving(work: Work) -> tuple[int, int]:
    """Gradients on their way and the matrix that is made whole, at the backward pass's highest moment."""
    if work.fast:
        return work.layer.work(work.tokens)
    shape = work.shape
    moving = work.tokens * work.dtype_bytes * (2 * shape.hidden_size + 3 * shape.intermediate_size)
    sizes = matrices(shape, work.fused).values()
    return moving, max(inputs * outputs for inputs, outputs in sizes) * work.dtype_bytes if work.quantized else 0


def context_bytes(work: Work) -> int:
    """What the process takes before any tensor of ours."""
    return work.context_bytes if work.gpu else LIBRARIES_BYTES


def context_of(card: str) -> int:
    """What CUDA will take of a card of this name, beside torch's allocator."""
    known = published(card)
    return CONTEXT_FIXED_BYTES + known.processors * CONTEXT_PROCESSOR_BYTES if known else CONTEXT_BYTES


@_once
def layer_bytes_per_token(work: Work) -> int:
    """What a layer that is not recomputed keeps of one token."""
    if work.fast:
        return work.layer.kept
    shape, b = work.shape, work.dtype_bytes
    hidden, inner = shape.hidden_size, shape.intermediate_size
    queries = shape.num_attention_heads * shape.head_dim
    keys = shape.num_key_value_heads * shape.head_dim
    more = (queries + keys if work.head_norms else 0) + (2 * hidden if work.four_norms else 0)
    small = 4 * shape.num_attention_heads + 8 + 4 * (more + len(work.adapted) * work.lora.r)
    if work.capped:
        small += shape.num_attention_heads * work.row * (2 * b + 4) + 2 * b * (queries - keys)
    if work.lora.use_dora:  # each product with and without the adapter, the latter in float32, and its input again
        small += (b + 4) * sum(outputs for _, outputs in work.adapted.values()) + b * hidden
    if b == 4:
        return 4 * (4 * hidden + 2 * queries + 2 * keys + 4 * inner) + small
    return 2 * (2 * queries + 2 * keys + 3 * inner) + 4 * (5 * hidden + queries + inner) + 8 * hidden + small


def _moments(size: int) -> int:
    return 8 * size if size < EIGHT_BIT_FROM else 2 * (size + 4 * math.ceil(size / 256))
