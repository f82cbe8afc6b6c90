"""A model with what learns of it: the numbers out of which every memory term is made, whatever a micro-batch holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from core.contract.catalogue import ModelShape, ModelSpec
from core.contract.config import LoraChoice
from core.contract.optimisers import Optimiser, StateBytes, part_of
from core.contract.tasks import Learns
from core.contract.weight_forms import ARITHMETICS, DEFAULT_ARITHMETIC, SMALLEST_WEIGHT_FORM, Arithmetic, WeightForm
from core.estimate.inputs.layer import TILE_BYTES, FastLayer, ModelEnd, rounded_rank
from core.models.families import FAMILIES, Family

ENDS = ("lm_head", "embed_tokens")
SLOTS = 2
"""Streamed layers that have room on the card at once; a test holds this to ``core.model.streaming``."""
PLAIN_DORA_COPIES = 4
"""Float32 copies of an adapted matrix in peft's DoRA at once: W, B A, its multiple and their sum; B A is that of a unit
matrix, which is there too."""


@dataclass(frozen=True, eq=False)
class AdaptedModel:
    """A model with its adapter: what micro-batches of any size have in common.

    ``row`` is the longest row of the data, ``dtype_bytes`` the arithmetic's, ``fast`` says that our own layers run,
    ``pieces`` that the loss makes its logits piece by piece, ``flash`` that attention reads heads where they lie,
    ``scores`` how many a head of scores gives, in place of logits over the vocabulary; 0: it is a language model.
    ``masked`` says that rows are padded to different lengths. ``arithmetic`` is that of products with frozen weights.
    """

    shape: ModelShape
    family: Family
    lora: LoraChoice
    row: int
    dtype_bytes: int
    form: WeightForm
    optimiser: Optimiser
    fast: bool
    pieces: bool
    flash: bool
    gpu: bool
    learns: Learns
    scores: int = 0
    masked: bool = False
    arithmetic: Arithmetic = ARITHMETICS[DEFAULT_ARITHMETIC]
    streamed: int = 0
    """Layers whose matrices lie in the machine's memory, and the embedding too where it is not the head; one more than
    there are: the head too, which comes in tiles."""

    @property
    def streamed_layers(self) -> int:
        """The layers among what streams."""
        return min(self.streamed, self.shape.num_hidden_layers)

    @property
    def streamed_head(self) -> bool:
        """Whether the head streams."""
        return self.streamed > self.shape.num_hidden_layers

    @property
    def head_bytes(self) -> int:
        """A head over the vocabulary."""
        return self.shape.vocab_size * self.shape.hidden_size * self.dtype_bytes

    @property
    def weight_itemsize(self) -> int:
        """Bytes of a weight that is not quantised."""
        return self.dtype_bytes

    @property
    def tied(self) -> bool:
        """Whether the embedding is a head over the vocabulary, too."""
        return self.shape.tie_word_embeddings and not self.scores

    @property
    def vocabulary(self) -> int:
        """Logits a token."""
        return 0 if self.scores else self.shape.vocab_size

    @cached_property
    def layer(self) -> FastLayer:
        """One fast layer of this model."""
        shape = self.shape
        queries, keys = shape.query_size, shape.key_size
        stacks = (self.family.qkv, ("o_proj",), self.family.gate_up, ("down_proj",))
        counts = [len(self.adapted.keys() & set(stack)) for stack in stacks]
        rq, ro, rg, rd = (rounded_rank(self.lora.r * count) for count in counts)
        sq, so, sg, sd = (self.lora.use_dora and count > 0 for count in counts)
        return FastLayer(
            hidden=shape.hidden_size,
            queries=queries,
            keys=keys,
            inner=shape.intermediate_size,
            head_dim=shape.head_dim,
            ranks=(rq, ro, rg, rd),
            itemsize=self.dtype_bytes,
            attention=queries if self.family.capped else 0,
            flash=self.flash,
            head_norms=self.family.head_norms,
            four_norms=self.family.four_norms,
            scaled=(sq, so, sg, sd),
            eight=self.arithmetic.bits == 8,
        )

    @property
    def quantised_rows(self) -> int:
        """Values a token that are made 8-bit, forward and backward: the inputs of the stacks and their gradients."""
        shape = self.shape
        heads = shape.query_size + 2 * shape.key_size
        inputs = 2 * shape.hidden_size + shape.query_size + shape.intermediate_size
        return shape.num_hidden_layers * (inputs + heads + 2 * shape.hidden_size + 2 * shape.intermediate_size)

    @cached_property
    def end(self) -> ModelEnd:
        """Last norm, head and loss."""
        return ModelEnd(self.shape.hidden_size, self.vocabulary, self.dtype_bytes, self.fast, self.streamed_head)

    @cached_property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """The projections of one decoder layer: name to (in, out)."""
        return _matrices(self.shape, self.family)

    @cached_property
    def adapted(self) -> dict[str, tuple[int, int]]:
        """The projections of one layer that get an adapter: name to (in, out); all, where no name fits the model."""
        if not self.learns.adapter:
            return {}
        names: dict[str, str] = {}
        if self.family.fused:
            names = dict.fromkeys(Family().qkv, self.family.qkv[0]) | dict.fromkeys(
                Family().gate_up, self.family.gate_up[0]
            )
        asked = [names.get(name, name) for name in self.lora.target_modules]
        adapted = {name: self.matrices[name] for name in asked if name in self.matrices}
        return adapted if adapted or self.adapted_ends else self.matrices

    @cached_property
    def adapted_ends(self) -> dict[str, tuple[int, int]]:
        """Embedding and head where they get an adapter: name to (in, out)."""
        if not self.learns.adapter:
            return {}
        hidden, words = self.shape.hidden_size, self.shape.vocab_size
        ends = dict(zip(ENDS, ((hidden, words), (words, hidden)), strict=True))
        return {name: ends[name] for name in self.lora.target_modules if name in ends}

    @cached_property
    def biases(self) -> tuple[int, ...]:
        """Lengths of the trained biases of one layer, in the base's own dtype (``lora_only``)."""
        if self.lora.bias == "none":
            return ()
        plain = Family()
        have = set(plain.qkv) if self.family.qkv_bias else set()
        have |= {*plain.qkv, "o_proj"} if self.shape.attention_bias else set()
        have |= {*plain.gate_up, "down_proj"} if self.shape.mlp_bias else set()
        return tuple(outputs for name, (_, outputs) in self.adapted.items() if name in have)

    @cached_property
    def own(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of what is trained in the base's own dtype, with float32 numbers beside it where that has 16 bits:
        biases, embedding and head, or every weight."""
        shape, layers = self.shape, self.shape.num_hidden_layers
        one = (shape.vocab_size, shape.hidden_size)
        ends = (one,) if self.tied else (one, (self.scores or one[0], one[1]))
        if not self.learns.base:
            return (*(layers * tuple((size,) for size in self.biases)), *(ends if self.learns.ends else ()))
        queries, keys = shape.query_size, shape.key_size
        biases = ((queries,), (keys,), (keys,)) if self.family.qkv_bias else ()
        heads = ((shape.head_dim,), (shape.head_dim,)) if self.family.head_norms else ()
        norms = (4 if self.family.four_norms else 2) * ((shape.hidden_size,),)
        return (*ends, *(layers * (*self.matrices.values(), *biases, *heads, *norms)), (shape.hidden_size,))

    @cached_property
    def own_numbers(self) -> int:
        """Numbers of ``own``."""
        return sum(map(math.prod, self.own))

    @cached_property
    def copies_bytes(self) -> int:
        """The float32 numbers behind 16-bit ones that are trained, and the trained copies of embedding and head."""
        exact = 4 * self.own_numbers if self.dtype_bytes < 4 else 0
        return exact + (self.ends_numbers * self.dtype_bytes if self.learns.adapter else 0)

    @property
    def ends_numbers(self) -> int:
        """Trained numbers of embedding and head."""
        return self.shape.embedding_parameters if self.learns.ends else 0

    @property
    def dropped_bytes(self) -> int:
        """A head over the vocabulary that is loaded, and left out for one of scores."""
        loaded = self.scores and not self.shape.tie_word_embeddings
        return self.shape.vocab_size * self.shape.hidden_size * self.weight_itemsize if loaded else 0

    @property
    def casts_bytes(self) -> int:
        """Weights in the arithmetic's dtype where they are held in a wider one, from the forward pass on."""
        return 0

    @property
    def front(self) -> int:
        """Bytes a token that embeddings keep for their own backward pass."""
        return 0

    @property
    def wide_input(self) -> int:
        """Bytes a token of a recomputed first layer's input, where that is another tensor than it keeps itself."""
        return 0

    @property
    def late_numbers(self) -> int:
        """Weights whose gradients are not there yet when the backward pass is highest in the first layer."""
        late = self.learns.base and (self.dtype_bytes < 4 or self.scores)
        return self.shape.vocab_size * self.shape.hidden_size if late else 0

    @cached_property
    def weights_bytes(self) -> int:
        """The base model: projections in their form, embedding, head and norms unquantised, a head of scores in 32
        bits."""
        shape = self.shape
        layer = self.streamed_layer_bytes
        whole = (shape.parameters - shape.linear_parameters) * self.dtype_bytes - self.dropped_bytes
        everything = whole + 4 * self.scores * shape.hidden_size + shape.num_hidden_layers * layer
        tiles = min(SLOTS * TILE_BYTES, self.head_bytes) if self.streamed_head else 0
        return everything - self.host_weights_bytes + min(SLOTS, self.streamed_layers) * layer + tiles

    @cached_property
    def streamed_layer_bytes(self) -> int:
        """What is copied of one streamed layer."""
        return sum(self.form.matrix_bytes(*sizes, self.dtype_bytes) for sizes in self.matrices.values())

    @property
    def host_weights_bytes(self) -> int:
        """Weights in the machine's memory: those of streamed layers, the embedding where it is not the head, and the
        head where it streams."""
        if not self.streamed:
            return 0
        ends = (not self.shape.tie_word_embeddings) + self.streamed_head
        return self.streamed_layers * self.streamed_layer_bytes + ends * self.head_bytes

    @cached_property
    def adapter_numbers(self) -> int:
        """Trained numbers of the adapter, always in float32: R (in + out) for each adapted matrix, one scale a row for
        DoRA, and a head of scores."""
        return self._of_each_tensor(lambda shape, _itemsize: math.prod(shape))

    @cached_property
    def scaled_rows(self) -> int:
        """Rows with DoRA's magnitudes."""
        rows = sum(outputs for _, outputs in self.adapted.values()) if self.lora.use_dora else 0
        return self.shape.num_hidden_layers * rows

    @cached_property
    def state_bytes(self) -> int:
        """The optimiser's state, wherever it lies: in host memory where it is paged."""
        others, matrices = part_of(self.optimiser, matrix=False), 0
        own = sum(others.state_bytes(shape, 4) for shape in self.own)
        if self.learns.base:
            each = (self.optimiser.state_bytes(of, 4) - others.state_bytes(of, 4) for of in self.matrices.values())
            matrices = self.shape.num_hidden_layers * sum(each)
        return self._of_each_tensor(self.optimiser.state_bytes) + own + matrices

    @property
    def optimiser_bytes(self) -> int:
        """What of it needs the card."""
        return 0 if self.optimiser.paged and self.gpu else self.state_bytes

    @cached_property
    def kept_per_token(self) -> int:
        """Bytes a token that a layer keeps if it is not recomputed; see ``core.estimate.terms``."""
        return self.layer.kept if self.fast else self._plain_kept + self._mask_kept

    @property
    def recomputed_per_token(self) -> int:
        """Bytes a token of a layer that was recomputed."""
        return self.layer.recomputed if self.fast else self.kept_per_token

    @property
    def _mask_kept(self) -> int:
        """Attention under a mask keeps that as a number for each token of a row, and keys and values for every query
        head (where logits are capped they are there already)."""
        if not self.masked or self.family.capped:
            return 0
        return self.dtype_bytes * (self.row + 2 * (self.shape.query_size - self.shape.key_size))

    @property
    def _plain_kept(self) -> int:
        shape, family, b = self.shape, self.family, self.dtype_bytes
        hidden, inner = shape.hidden_size, shape.intermediate_size
        queries, keys = shape.query_size, shape.key_size
        more = (queries + keys if family.head_norms else 0) + (2 * hidden if family.four_norms else 0)
        small = 4 * shape.num_attention_heads + 8 + 4 * (more + len(self.adapted) * self.lora.r)
        if family.capped:
            small += shape.num_attention_heads * self.row * (2 * b + 4) + 2 * b * (queries - keys)
        if self.lora.use_dora:  # each product with and without the adapter, the latter in float32, and its input again
            small += (b + 4) * sum(outputs for _, outputs in self.adapted.values()) + b * hidden
        if self.learns.base:
            small = 4 * shape.num_attention_heads + 8 + (b + 4) * more // (1 if b < 4 else 2)
            norms = 8 * hidden if b < 4 else 6 * hidden
            return b * (norms + 2 * queries + 2 * keys + 4 * inner) + small
        if b == 4:
            return 4 * (4 * hidden + 2 * queries + 2 * keys + 4 * inner) + small
        return 2 * (2 * queries + 2 * keys + 3 * inner) + 4 * (5 * hidden + queries + inner) + 8 * hidden + small

    @property
    def less(self) -> str:
        """What needs less memory, in a list of words."""
        return "lower the rank, " if self.learns.adapter else "train an adapter, "

    @property
    def smaller(self) -> str:
        """What makes its weights take less memory, as the end of a list of words."""
        least, other = SMALLEST_WEIGHT_FORM, "or choose a smaller model"
        fewer = self.form.bits > least.bits and least.name in self.learns.weight_forms
        return f"hold the weights in {least.title}, {other}" if fewer else other

    @property
    def swapped(self) -> bool:
        """Whether its layers are exchanged for ours."""
        return self.fast

    @property
    def joined(self) -> bool:
        """Whether a layer's steps between its products are ours."""
        return self.fast

    def seen(self, row: float) -> float:
        """Tokens that causal attention compares a token with, twice over, in a row of so many."""
        return min(row, self.shape.sliding_window) if self.shape.sliding_window else row

    def moving(self, tokens: int, single: bool, again: bool) -> tuple[int, int]:  # noqa: ARG002 - an encoder's
        """Gradients on their way and what of matrices is made whole, at the backward pass's highest moment; ``again``:
        its layers are recomputed."""
        if self.fast:
            return self.layer.work(tokens)
        moving = tokens * self.dtype_bytes * (2 * self.shape.hidden_size + 3 * self.shape.intermediate_size)
        largest = max(inputs * outputs for inputs, outputs in self.matrices.values())
        if self.learns.base:  # a gradient on its way; a tied head's waits for the embedding's
            ends = self.shape.vocab_size * self.shape.hidden_size if self.tied else 0
            return moving, self.dtype_bytes * (largest + ends)
        if self.lora.use_dora and self.adapted:
            copies = PLAIN_DORA_COPIES
            return moving, max(4 * (copies * outputs + inputs) * inputs for inputs, outputs in self.adapted.values())
        return moving, largest * self.dtype_bytes if self.form.quantised else 0

    def _of_each_tensor(self, count: StateBytes) -> int:
        """``count`` of every tensor of the adapter (float32): A, B and DoRA's scales; a layer's as often as there are
        layers."""
        total = count((self.scores, self.shape.hidden_size), 4) if self.scores and self.learns.adapter else 0
        for adapted, times in ((self.adapted, self.shape.num_hidden_layers), (self.adapted_ends, 1)):
            for inputs, outputs in adapted.values():
                scales = ((outputs,),) if self.lora.use_dora else ()
                shapes = ((self.lora.r, inputs), (outputs, self.lora.r), *scales)
                total += times * sum(count(shape, 4) for shape in shapes)
        return total


def target_names(spec: ModelSpec) -> tuple[str, ...]:
    """What can get an adapter in a model of a known family, the names that we map included; else nothing."""
    family = FAMILIES.get(spec.model_type)
    if family is None:
        return ()
    return (*_matrices(spec.shape, Family()), *_matrices(spec.shape, family), *ENDS)


def _matrices(shape: ModelShape, family: Family) -> dict[str, tuple[int, int]]:
    hidden, inner = shape.hidden_size, shape.intermediate_size
    queries, keys = shape.query_size, shape.key_size
    heads = (queries + 2 * keys,) if family.fused else (queries, keys, keys)
    reading = zip(
        (*family.qkv, *family.gate_up), (*heads, *((2 * inner,) if family.fused else (inner, inner))), strict=True
    )
    return {
        **{name: (hidden, width) for name, width in reading},
        "o_proj": (queries, hidden),
        "down_proj": (inner, hidden),
    }
