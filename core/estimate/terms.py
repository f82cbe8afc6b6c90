"""Memory, one named function a term, each in bytes.

Symbols: T tokens a micro-batch, D hidden, F inner (MLP), Q and K the widths of queries and keys, V vocabulary,
L layers, R adapter rank, b bytes of the arithmetic's dtype (2 for bfloat16 and float16, 4 for float32).

Activations kept for the backward pass of plain layers, per token and layer. peft casts each projection's input to the
adapter's float32, so at b = 2 every adapted projection keeps a copy of its own::

    b = 2:  2 (2Q + 2K + 3F) + 4 (5D + Q + F) + 8D + 4 · 7R        (tests count the same in a real model)
    b = 4:  4 (4D + 2Q + 2K + 4F) + 4 · 7R

Norms per head keep Q + K once more, norms behind attention and MLP D each, in float32. Where attention's logits are
capped, every pair of tokens in a row keeps its tanh and its weight, the latter twice (2b + 4 bytes a head), and keys
and values are there once for each query head, as they are under the mask of padded rows, which each layer keeps in b
bytes for every pair of tokens. Our own layers: ``core.estimate.inputs.layer``.

Of a recomputed layer only its input is kept; where that goes to host memory, two are on their way on the card. A budget
keeps as many layers as it has room for in this micro-batch.

NF4 (Dettmers et al. 2023, arXiv:2305.14314) keeps half a byte a weight, one 8-bit scale a block of 64, and, since the
scales are quantised again, one float32 a block of 256 scales, with two small tables a matrix.
"""

import math
from functools import lru_cache

from core.contract.optimisers import FLAT_MOST, part_of
from core.estimate.inputs.cards import published
from core.estimate.inputs.layer import LEAVING, LOGITS_AT_ONCE, kept_layers, recomputed_bytes
from core.estimate.inputs.work import GIB, Work

CONTEXT_BYTES = GIB // 2
"""CUDA context and loaded kernels, outside of torch's allocator, of a card that nothing is known of."""
CONTEXT_FIXED_BYTES, CONTEXT_PROCESSOR_BYTES = round(0.35 * GIB), round(0.47 * GIB / 132)
"""The same of a card whose multiprocessors are known: the context keeps memory for each of them. An H200 (132) held
0.67 GiB before any kernel was loaded, and 0.82 with ours; how much of the first is fixed is a guess."""
CUBLAS_BYTES = 2 * 32 * 1024**2
"""cuBLAS's own room, within torch's allocator: one for each thread that multiplies (forward, and autograd's). 32 MiB
each on Hopper, 8 on other cards."""
PAGE_BYTES = 64 * 2**20
"""Of host memory for layer inputs; a test holds this to ``core.model.streaming``."""
GAPS = 1 / 32
"""The share of its limit that a run under a budget leaves to gaps of which nobody knows the size beforehand."""
FIXED_GAPS_BYTES = 64 * 1024**2
ADAPTER_GAPS, HIDDEN_GAPS, VARIED_GAPS = 0.25, 3, 1 / 64
"""What was reserved and not allocated over 36 configurations on one H200, to 1.3% of what was reserved: a quarter of
the adapter, whose gradients come in blocks of many sizes; three hidden states a token; and where micro-batches differ
in size a share of what comes and goes. Where layers are computed in tiles it is three of a tile: 0.10, 0.68 and 0.91
GiB seen, 0.15, 0.85 and 0.85 by this, of rows of 65,536, 131,072 and 200,000 tokens."""
OWN_GAPS_BYTES = 3 * GIB // 4
"""The same where weights of 16 bits are trained, half of it where only embedding and head are: 0.16 to 0.76 GiB over
five configurations on one H200; of a small model, whose gradients leave them, no more than these. Trained weights of
32 bits leave what an adapter does."""
LIBRARIES_BYTES = 900 * 1024**2
"""Resident size of a worker on the CPU with torch, transformers, peft and bitsandbytes loaded, before any model."""


def adapter_parameters(work: Work) -> int:
    """Trained numbers: the adapter's own, and those of the base's kind."""
    return work.model.adapter_numbers + work.model.own_numbers


def lora_bytes(work: Work) -> int:
    """The adapter, its frozen start where it has one, and what is held beside trained weights of 16 bits; a bias is one
    of the base's weights. Our layers keep of rows with magnitudes the weight's squares and their factor."""
    model = work.model
    beside = model.copies_bytes + (8 * model.scaled_rows if model.fast else 0)
    return (4 + model.lora.has_start * model.dtype_bytes) * model.adapter_numbers + beside


def saved_bytes(work: Work) -> int:
    """What a checkpoint holds: every trained number in float32, and the optimiser's state."""
    return 4 * adapter_parameters(work) + work.model.state_bytes


def gradients_bytes(work: Work) -> int:
    """Gradients in float32, from the first micro-batch of a step to its end."""
    return 4 * adapter_parameters(work)


def step_bytes(work: Work) -> int:
    """What a step takes beside the gradients: these once more while they are joined, or a copy for the optimiser.

    Those of 16-bit weights are added where they are joined as they come; others are joined in tensors of up to
    ``FLAT_MOST`` values. One that works on the largest tensor alone needs copies of that; of an adapter's that is less
    than the backward pass has just given back.
    """
    model, optimiser = work.model, work.model.optimiser
    if optimiser.others:  # one after the other
        matrices = list(map(math.prod, model.matrices.values()))
        rest = model.own_numbers - model.shape.num_hidden_layers * sum(matrices)
        return 4 * max(sum(optimiser.passing(matrices)), sum(part_of(optimiser, matrix=False).passing([rest])))
    own = list(map(math.prod, model.own))
    passing = sum(optimiser.passing([*own, model.adapter_numbers] if optimiser.temporary == "all" else own))
    exact = own if model.weight_itemsize == 4 else []
    joined = min(model.adapter_numbers + sum(exact), max(FLAT_MOST, *exact, 0)) if optimiser.flat else 0
    return 4 * max(passing, joined)


def late_bytes(work: Work) -> int:
    """Float32 gradients that a step's only micro-batch makes last: the embedding's, after the first layer's."""
    return 4 * work.model.late_numbers if work.single else 0


def embedding_bytes(work: Work) -> int:
    """The embedding's gradient as it comes, and a tied head's, which waited for it."""
    model = work.model
    ends = 2 if model.tied else 0 if work.single and model.weight_itemsize == 4 else 1
    return ends * model.weight_itemsize * model.shape.vocab_size * model.shape.hidden_size if model.learns.base else 0


def always_bytes(work: Work) -> int:
    """Weights, adapter, optimiser."""
    return work.model.weights_bytes + lora_bytes(work) + work.model.optimiser_bytes


def room_bytes(work: Work) -> int:
    """What a budget leaves for activations, beside what is there all through a step of several micro-batches."""
    standing = always_bytes(work) + gradients_bytes(work) + context_bytes(work) + CUBLAS_BYTES
    hidden = work.tokens * work.model.layer.input
    gaps = gaps_bytes(work.limit_bytes - context_bytes(work), lora_bytes(work), hidden)
    return max(0, work.limit_bytes - standing - gaps)


def gaps_bytes(limit: int, adapter: int, hidden: int) -> int:
    """What a budget leaves to the allocator's gaps; the run counts with this too.

    Args:
        limit: what torch's allocator may have: the run's limit less the context.
        adapter: bytes of the trained numbers.
        hidden: bytes of a hidden state of the whole micro-batch, of which a long one leaves the most.
    """
    usual, long = FIXED_GAPS_BYTES + round(GAPS * limit), HIDDEN_GAPS * hidden + round(VARIED_GAPS * limit)
    return FIXED_GAPS_BYTES + round(ADAPTER_GAPS * adapter) + max(usual, long)


@lru_cache(maxsize=64)  # of one micro-batch asked for by many terms
def kept_of(work: Work) -> int:
    """How many layers keep all their activations in this micro-batch."""
    layers = work.model.shape.num_hidden_layers
    if work.policy == "budget":
        return kept_layers(work.model.layer, work.model.end, work.tokens, layers, room_bytes(work))
    return layers if work.policy == "none" else 0


def pinned_bytes(work: Work) -> int:
    """Host memory for layer inputs, each in pages of whole rows; torch rounds a page up to a power of two."""
    if work.policy not in ("offload", "budget"):
        return 0
    row = work.model.layer.input
    pages, rows = divmod(work.tokens, max(1, PAGE_BYTES // row))
    whole, last = (1 << max(0, size - 1).bit_length() for size in (max(row, PAGE_BYTES), rows * row))
    return (work.model.shape.num_hidden_layers - kept_of(work)) * (pages * whole + (last if rows else 0))


def kept_there(work: Work, cards: int) -> int:
    """Bytes of the machine's own memory for every card's layer inputs, and for weights that stream, once for all."""
    return cards * pinned_bytes(work) + work.model.host_weights_bytes


def stored_bytes(work: Work) -> int:
    """Activations when the loss is computed: of kept layers all, of recomputed ones the inputs that are on the card."""
    kept = kept_of(work)
    recomputed = work.model.shape.num_hidden_layers - kept
    inputs = min(LEAVING, recomputed) if work.policy in ("offload", "budget") else recomputed
    model = work.model
    return work.tokens * (inputs * model.layer.input + kept * model.kept_per_token + model.front) + model.casts_bytes


def activations_bytes(work: Work) -> int:
    """The most activations in the backward pass: stored ones, a recomputed layer, gradients on their way."""
    again, model = 0, work.model
    if work.tiled and not kept_of(work):
        inputs = 0 if work.policy in ("offload", "budget") else model.shape.num_hidden_layers
        return work.tokens * (inputs * model.layer.input + model.front) + model.layer.tiled(work.tokens, work.tile)
    if not kept_of(work):  # its input is among the stored ones, unless it comes from the host
        here = 0 if work.policy in ("offload", "budget") else model.layer.input
        again = work.tokens * (model.recomputed_per_token - here) - _other_casts(work)
    return stored_bytes(work) + again + _moving(work)[0]


def last_activations_bytes(work: Work) -> int:
    """Activations when the backward pass reaches the first layer: that layer's, its input where that comes from the
    host, and gradients on their way."""
    from_host = work.policy in ("offload", "budget") and kept_of(work) < work.model.shape.num_hidden_layers
    host, model = work.model.layer.input if from_host else 0, work.model
    if work.tiled and kept_of(work) < model.shape.num_hidden_layers:
        here = 0 if from_host else model.layer.input
        return work.tokens * (here + model.front) + model.layer.tiled(work.tokens, work.tile)
    beside = 0 if kept_of(work) else model.wide_input
    layer = model.recomputed_per_token if kept_of(work) < model.shape.num_hidden_layers else model.kept_per_token
    kept = work.tokens * (layer + model.front + host + beside)
    return kept + model.casts_bytes - _other_casts(work) + _moving(work)[0]


def _other_casts(work: Work) -> int:
    """Weights of other layers that are held in the arithmetic's dtype, too."""
    layers = work.model.shape.num_hidden_layers
    return work.model.casts_bytes * (layers - 1) // layers


def recomputing_bytes(work: Work) -> tuple[int, int]:
    """Under a budget, activations and matrices while a recomputed layer goes backward, after the kept ones.

    Its matrices stay until then if there is room for all of them (``core.model.layers.checkpointing``).
    """
    if work.policy != "budget":
        return 0, 0
    layer = work.model.layer
    if work.tiled:
        return layer.tiled(work.tokens, work.tile), 0
    fixed, whole = layer.work(work.tokens)[1], recomputed_bytes(layer, work.tokens)
    matrices = layer.matrices if whole + layer.matrices <= room_bytes(work) else 0
    return whole - fixed, fixed + matrices


def slack_bytes(work: Work, allocated: int) -> int:
    """What torch's allocator holds and cannot hand out when tensors have ``allocated`` bytes: its segments grow
    (``expandable_segments``) by pages of 2 and 20 MiB, in which tensors of other sizes leave gaps."""
    if not work.model.gpu:
        return 0
    tokens = work.tile if work.tiled and not kept_of(work) else work.tokens
    hidden = tokens * work.model.layer.input
    gaps = min(OWN_GAPS_BYTES, gradients_bytes(work)) // (1 if work.model.learns.base else 2)
    gaps = gaps if work.model.learns.ends and work.model.weight_itemsize < 4 else 0
    numbers = work.model.adapter_numbers + (work.model.own_numbers if work.model.weight_itemsize == 4 else 0)
    gaps += FIXED_GAPS_BYTES + round(ADAPTER_GAPS * 4 * numbers) + HIDDEN_GAPS * hidden
    moving = max(0, allocated - always_bytes(work))
    return gaps + (round(VARIED_GAPS * moving) if work.varied else 0)


def loading_bytes(work: Work) -> int:
    """A head over the vocabulary while the model is loaded, before there are adapter and optimiser."""
    return max(0, work.model.dropped_bytes - lora_bytes(work) - work.model.optimiser_bytes)


def loss_bytes(work: Work) -> int:
    """The model's end, on top of the stored activations (``ModelEnd``).

    On a card a kernel turns logits into their gradient in place; without it, or over whole logits, there are two
    float32 copies.
    """
    model, end = work.model, work.model.end
    if model.scores:
        return end.work(work.tokens)
    head = model.shape.vocab_size * model.shape.hidden_size if model.learns.ends else 0
    of_head = head * (4 + model.dtype_bytes)  # its gradient's sum, and a chunk's part of it
    if model.pieces and model.gpu:
        return end.work(work.tokens) + of_head
    logits = work.tokens * model.shape.vocab_size
    if model.pieces:
        logits = min(logits, max(LOGITS_AT_ONCE, model.shape.vocab_size))
    return max(logits * (model.dtype_bytes + 8) + work.tokens * end.rows + of_head, work.tokens * end.norm)


def workspace_bytes(work: Work) -> int:
    """The largest matrix, made whole for its product, and cuBLAS's workspace."""
    return _moving(work)[1] + (CUBLAS_BYTES if work.model.gpu else 0)


def _moving(work: Work) -> tuple[int, int]:
    if work.tiled and not kept_of(work):
        return 0, 0  # in what a layer's tiles take
    return work.model.moving(work.tokens, work.single, again=not kept_of(work))


def context_bytes(work: Work) -> int:
    """What the process takes before any tensor of ours."""
    return work.context_bytes if work.model.gpu else LIBRARIES_BYTES


def context_of(card: str) -> int:
    """What CUDA will take of a card of this name."""
    known = published(card)
    return CONTEXT_FIXED_BYTES + known.processors * CONTEXT_PROCESSOR_BYTES if known else CONTEXT_BYTES
