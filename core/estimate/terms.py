"""Memory, one named function a term, each in bytes.

Symbols: T tokens a pass, D hidden, F inner (MLP), Q and K the widths of queries and keys, V vocabulary, L layers,
R adapter rank, b bytes of the arithmetic's dtype (2 for bfloat16 and float16, 4 for float32).

Activations kept for the backward pass, per token and layer. Plain peft casts each projection's input to the adapter's
float32, so at b = 2 every adapted projection keeps a copy of its own::

    b = 2:  2 (2Q + 2K + 3F) + 4 (5D + Q + F) + 8D + 4 · 7R        (tests count the same in a real model)
    b = 4:  4 (4D + 2Q + 2K + 4F) + 4 · 7R
    ours :  b (4D + 2Q + 2K + 3F) + 7 R b

Norms per head keep Q + K once more, norms behind attention and MLP D each; plain ones in float32, ours in b bytes.
Where attention's logits are capped, every pair of tokens in a row keeps its tanh and its weight, the latter twice
(2b + 4 bytes a head), and keys and values stand once for each query head.

NF4 (Dettmers et al. 2023, arXiv:2305.14314) keeps half a byte a weight, one 8-bit scale a block of 64, and, since the
scales are quantised again, one float32 a block of 256 scales, with two small tables a matrix.
"""

from __future__ import annotations

import math

from core.estimate.work import Work, matrices

__all__ = [
    "GIB",
    "activations_bytes",
    "adapter_parameters",
    "context_bytes",
    "gradients_bytes",
    "lora_bytes",
    "loss_bytes",
    "nf4_bytes",
    "optimiser_bytes",
    "stored_bytes",
    "weights_bytes",
    "workspace_bytes",
]

GIB = 1024**3
LOGITS_AT_ONCE = 2**26
"""Logits that the fused loss holds at once; a test holds this to ``core.kernels.linear_cross_entropy``."""
CONTEXT_BYTES = GIB // 2
"""CUDA context, cuBLAS workspaces and loaded kernels; about half a GiB on recent drivers."""
LIBRARIES_BYTES = 900 * 1024**2
"""Resident size of a worker on the CPU with torch, transformers, peft and bitsandbytes loaded, before any model."""
TABLES_BYTES = 16 * 4 + 256 * 4 + 4
EIGHT_BIT_FROM = 4096
"""bitsandbytes keeps the states of smaller tensors in 32 bits."""


def nf4_bytes(inputs: int, outputs: int) -> int:
    """One matrix in NF4 with double quantisation."""
    weights = inputs * outputs
    scales = math.ceil(weights / 64)
    return math.ceil(weights / 2) + scales + 4 * math.ceil(scales / 256) + TABLES_BYTES


def weights_bytes(work: Work) -> int:
    """The base model: projections in NF4 or whole; embedding, head and norms always whole."""
    shape = work.shape
    whole = shape.parameters - shape.linear_parameters
    if not work.quantized:
        return shape.parameters * work.dtype_bytes
    layer = sum(nf4_bytes(*sizes) for sizes in matrices(shape).values())
    return whole * work.dtype_bytes + shape.num_hidden_layers * layer


def adapter_parameters(work: Work) -> int:
    """Trained numbers: R (in + out) for each adapted projection, and one scale a row for DoRA."""
    extra = 1 if work.lora.use_dora else 0
    layer = sum(work.lora.r * (inputs + outputs) + extra * outputs for inputs, outputs in _adapted(work))
    return work.shape.num_hidden_layers * layer


def lora_bytes(work: Work) -> int:
    """The adapter, in float32 whatever the base's dtype is."""
    return 4 * adapter_parameters(work)


def gradients_bytes(work: Work) -> int:
    """The adapter's gradients, in float32; they stay from the first pass of a step to its end."""
    return 4 * adapter_parameters(work)


def optimiser_bytes(work: Work) -> int:
    """AdamW's two moments: a byte each with a scale a block of 256 in 8 bits, four bytes each otherwise."""
    if not work.eight_bit_optimiser:
        return 8 * adapter_parameters(work)
    layer = sum(_moments(work.lora.r * size) for sizes in _adapted(work) for size in sizes)
    return work.shape.num_hidden_layers * layer


def stored_bytes(work: Work) -> int:
    """Activations that stand when the loss is computed: all of them, or one input a layer where they are recomputed."""
    layers = work.shape.num_hidden_layers
    if work.recompute:
        return layers * work.tokens * work.shape.hidden_size * work.dtype_bytes
    return layers * work.tokens * _layer_bytes_per_token(work)


def activations_bytes(work: Work) -> int:
    """Activations at their height in the backward pass: stored ones, a recomputed layer, gradients on their way."""
    shape = work.shape
    moving = work.tokens * work.dtype_bytes * (2 * shape.hidden_size + 3 * shape.intermediate_size)
    again = work.tokens * _layer_bytes_per_token(work) if work.recompute else 0
    return stored_bytes(work) + again + moving


def loss_bytes(work: Work) -> int:
    """Logits, of one piece of the tokens or of all, with what they become, and the last hidden state's gradient.

    Our kernel turns logits into their gradient in place; without it, and over whole logits, two float32 copies stand.
    """
    logits = work.tokens * work.shape.vocab_size
    if work.pieces:
        logits = min(logits, max(LOGITS_AT_ONCE, work.shape.vocab_size))
    copies = work.dtype_bytes if work.pieces and work.kernels else work.dtype_bytes + 8
    return logits * copies + work.tokens * work.shape.hidden_size * work.dtype_bytes


def workspace_bytes(work: Work) -> int:
    """The largest projection, unpacked for its product; nothing where weights are whole already."""
    if not work.quantized:
        return 0
    return max(inputs * outputs for inputs, outputs in matrices(work.shape).values()) * work.dtype_bytes


def context_bytes(work: Work) -> int:
    """What the process takes before any tensor of ours."""
    return CONTEXT_BYTES if work.gpu else LIBRARIES_BYTES


def _layer_bytes_per_token(work: Work) -> int:
    shape, b = work.shape, work.dtype_bytes
    hidden, inner = shape.hidden_size, shape.intermediate_size
    queries = shape.num_attention_heads * shape.head_dim
    keys = shape.num_key_value_heads * shape.head_dim
    ranks = len(_adapted(work)) * work.lora.r
    more = (queries + keys if work.head_norms else 0) + (2 * hidden if work.four_norms else 0)
    small = 4 * shape.num_attention_heads + 8
    if work.capped:
        small += shape.num_attention_heads * work.row * (2 * b + 4) + 2 * b * (queries - keys)
    if work.fast:
        return b * (4 * hidden + 2 * queries + 2 * keys + 3 * inner + more + ranks) + small
    small += 4 * (more + ranks)
    if b == 4:
        return 4 * (4 * hidden + 2 * queries + 2 * keys + 4 * inner) + small
    return 2 * (2 * queries + 2 * keys + 3 * inner) + 4 * (5 * hidden + queries + inner) + 8 * hidden + small


def _adapted(work: Work) -> list[tuple[int, int]]:
    every = matrices(work.shape)
    chosen = [every[name] for name in work.lora.target_modules if name in every]
    return chosen or list(every.values())


def _moments(size: int) -> int:
    return 8 * size if size < EIGHT_BIT_FROM else 2 * (size + 4 * math.ceil(size / 256))
