"""An encoder of the BERT kind whose every weight is trained, in bytes: weights, gradients and states in float32,
products under autocast, rows packed (``core.model.encoders``).

Symbols: D hidden, I inner, H heads, n the longest row, b bytes of what products are computed in (4: no autocast), c
copies of a layer's input (the linear layers after a float32 one cast it each; ours joins residual and norm in b bytes:
1), w bytes of a norm's input (b, or 4 where torch computes it), m bytes of a value's dropout mask. Kept a token and
layer, from the inputs of linear layers, attention, norms and the activation::

    BERT         b ((c + 5) D + 2I)  + 2w D + 2m D  + 4H + 16        x, q k v, its result, the MLP's input
    ModernBERT   b (8D + 4I)         + 2w D         + 4H + 16        q and k turned, beside [q|k|v]; act(a), gate
    DeBERTa      b ((c + 6) D + 2I)  + 2w D + 2m D  + 16             k once more, scaled; and its attention's

    n H (b' + m)  +  2b R H  +  2b R D / n  +  (1 + 16 / 4) n

of DeBERTa's attention: softmax (b': on a card 4 and what the product casts it to) and its mask; logits of R distances;
these projected for each row; a mask and two tables of places in 64 bits for each block of rows, taken as four.

The embeddings keep their norm's input in float32, their mask and casts. Weights are cast as they are first used, and
these copies stay from the forward pass to each layer's backward pass.
"""

from dataclasses import dataclass, field
from functools import cached_property

from core.estimate.inputs.layer import ModelEnd
from core.estimate.inputs.model import AdaptedModel
from core.models.encoders import EncoderFamily

ROWS_A_BLOCK = 4
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class EncoderModel(AdaptedModel):
    """``packed`` says that its layers take rows end to end, ``ours`` that our op then computes residual and norm."""

    encoder: EncoderFamily = field(default_factory=EncoderFamily)
    packed: bool = True
    ours: bool = False

    @property
    def swapped(self) -> bool:
        """Whether its layers are exchanged for packed ones."""
        return self.packed

    @property
    def joined(self) -> bool:
        """Whether our op computes residual and norm."""
        return self.packed and self.ours

    @property
    def less(self) -> str:
        """Nothing: it is trained whole."""
        return ""

    @property
    def weight_itemsize(self) -> int:
        """They are float32, whatever products are computed in."""
        return 4

    @property
    def dropped_bytes(self) -> int:
        """A head over the vocabulary is not read."""
        return 0

    @cached_property
    def end(self) -> ModelEnd:
        """The last hidden states and their gradient; a row's head is small."""
        return ModelEnd(self.shape.hidden_size, 0, self.dtype_bytes)

    @cached_property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """The projections of one layer: name to (in, out)."""
        hidden, inner = self.shape.hidden_size, self.shape.intermediate_size
        if self.encoder.fused:
            reading = {"qkv": (hidden, 3 * hidden), "gate_up": (hidden, 2 * inner)}
        else:
            reading = {**dict.fromkeys(("query", "key", "value"), (hidden, hidden)), "up": (hidden, inner)}
        return {**reading, "output": (hidden, hidden), "down": (inner, hidden)}

    @cached_property
    def own(self) -> Shapes:
        """The shapes of every weight: embeddings, layers, and the head that transformers' classifier has."""
        shape, family, layers = self.shape, self.encoder, self.shape.num_hidden_layers
        hidden, others = shape.hidden_size, shape.other_embeddings
        one: Shapes = ((hidden,), (hidden,)) if family.bias else ((hidden,),)
        tables = ((shape.vocab_size, hidden), *(((others, hidden),) if others else ()))
        biases = tuple((outputs,) for _, outputs in self.matrices.values()) if family.bias else ()
        norms = 2 * layers + 1 + bool(family.last) + bool(family.relative) - family.norm_first
        head: Shapes = ((hidden, hidden), (hidden,), (self.scores, hidden), (self.scores,))
        return (*tables, *(layers * (*self.matrices.values(), *biases)), *(norms * one), *head)

    @property
    def copies_bytes(self) -> int:
        """What learns are the model's own numbers."""
        return 0

    @cached_property
    def weights_bytes(self) -> int:
        """All of them, in 32 bits."""
        return 4 * self.own_numbers

    @property
    def casts_bytes(self) -> int:
        """The projections in the arithmetic's dtype, and what two of them read of distances; none in float32."""
        shape = self.shape
        distances = 2 * shape.num_hidden_layers * shape.other_embeddings * shape.hidden_size
        numbers = shape.linear_parameters + (distances if self.encoder.relative else 0)
        return self.dtype_bytes * numbers if self.dtype_bytes < 4 else 0

    @property
    def _copies(self) -> int:
        """Copies that the linear layers after a norm make of its float32 result."""
        return 1 if self.dtype_bytes == 4 or self.encoder.fused else 3

    @property
    def _mask(self) -> int:
        """Bytes of a value's dropout mask; none where the family is published without dropout."""
        return (1 if self.gpu else self.dtype_bytes) if self.encoder.dropouts else 0

    @property
    def front(self) -> int:
        """Bytes a token that embeddings, and the casts of their result, keep."""
        return self.shape.hidden_size * (4 + self._mask + (self._copies - 1) * self.dtype_bytes) + 8

    @property
    def wide_input(self) -> int:
        """The embeddings' result in float32, beside what the first layer casts of it."""
        return 4 * self.shape.hidden_size if self.dtype_bytes < 4 else 0

    @property
    def late_numbers(self) -> int:
        """The embedding, and the first layer's matrices."""
        return super().late_numbers + sum(inputs * outputs for inputs, outputs in self.matrices.values())

    @cached_property
    def kept_per_token(self) -> int:
        """Bytes a token that a layer keeps if it is not recomputed; see the module."""
        shape, family, b = self.shape, self.encoder, self.dtype_bytes
        hidden, inner = shape.hidden_size, shape.intermediate_size
        wide = 2 * (b if self.joined else 4) * hidden + family.dropouts * self._mask * hidden + 16
        if family.fused:
            return b * (8 * hidden + 4 * inner) + wide + 4 * shape.num_attention_heads
        copies = 1 if self.joined else self._copies
        if family.relative:
            return b * ((copies + 6) * hidden + 2 * inner) + wide + self._distances
        return b * ((copies + 5) * hidden + 2 * inner) + wide + 4 * shape.num_attention_heads

    @property
    def _distances(self) -> int:
        """Bytes a token of attention with distances."""
        shape, b, row = self.shape, self.dtype_bytes, max(1, self.row)
        weight = (4 + b if self.gpu and b < 4 else b) + self._mask
        looked_up = 2 * b * shape.other_embeddings
        projected = looked_up * shape.hidden_size // row
        return shape.num_attention_heads * (row * weight + looked_up) + projected + row + 16 * row // ROWS_A_BLOCK

    def seen(self, row: float) -> float:
        """Twice a causal row's, in the share of layers that see all of it; elsewhere the window, to both sides."""
        share, window = self.encoder.global_share, self.shape.sliding_window or row
        return 2 * row * share + min(2 * row, window) * (1 - share)

    def moving(self, tokens: int, single: bool, again: bool) -> tuple[int, int]:
        """Gradients on their way: of the MLP, or of attention's weights; and the largest matrix's gradient before it is
        added to those of earlier micro-batches.

        A recomputed layer of BERT's kind is highest at the product behind the activation: two gradients of its result
        and that of its input, while the last norm's input and the last mask are gone. Where layers are kept a card took
        another I + D, and it is not known what for.
        """
        shape, b = self.shape, self.dtype_bytes
        hidden, inner = shape.hidden_size, shape.intermediate_size
        grown = 2 * hidden + (4 if self.encoder.fused else 2) * inner
        if again and not self.encoder.fused:
            grown = hidden + inner - self._mask * hidden // b
        if self.encoder.relative:
            a_row = 3 * self.row + 2 * shape.other_embeddings
            grown = max(grown, 2 * hidden + shape.num_attention_heads * a_row)
        largest = max(inputs * outputs for inputs, outputs in self.matrices.values())
        return tokens * b * grown, largest * ((0 if single else 4) + (b if b < 4 else 0))
