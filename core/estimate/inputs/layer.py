"""One fast decoder layer and the model's end in bytes: what is kept of them, and what their backward passes need.

Symbols: T tokens, D hidden, Q and K the widths of queries and keys, I inner (MLP), b bytes of the arithmetic's dtype,
Rq Ro Rg Rd the ranks of the four stacks (q k v; o; gate and up; down), each rounded up to a multiple of 8, and R' the
same rounded up to whole tiles, as buffers and matrices have it. M is a stack's bordered matrix (``core.kernels.lora``),
made whole in b bytes for as long as its product takes.

Kept from the forward to the backward pass, a token::

    b (x: D  +  n A': Rq  +  heads: Q + 2K  +  attention: Q  +  its A': Ro  +  h: D  +  n A': Rg  +  [gate|up]: 2I + R'g
       +  t A': Rd)
    + 4 (two inverse root mean squares, and attention's log-sum-exp of each head)

and with DoRA's magnitudes the results of o and down, D each, where no norm behind them keeps these; the moment "gate"
then has a copy of a piece of [gate|up].

Backward, the highest of these moments comes on top::

    gate      dy: D   [dz, dz sB]: D + R'd  dt: I                      M: (D + R'd)(I + R'd)
    gate, up  dy: D   dn: D                                            M: (2I + R'g)(D + R'g)
    o         dy: D   dn: D   [do, do sB]: D + R'o  da: Q              M: (D + R'o)(Q + R'o)
    attention dh: D   da: Q   dq, dk, dv: Q + 2K   its sums in float32: Q   dk, dv for every query head: 2Q
              and k, v without FlashAttention: 2Q               h, [gate|up] are gone

Where frozen products are in 8 bits (``core.kernels.eightbit``), a product's rows are there once more in one byte a
value, W is in one byte too, and borders are kept apart. Of a kept layer [gate|up] is kept in one byte a value and 4 for
``BLOCK`` columns of each, t A' is not kept, and [dgate|dup] is there in b bytes and in one until their product and the
gradients of their adapters are done; a recomputed layer has [gate|up] in b bytes. dz is dy itself where no norm stands
between. The first pass of all makes each matrix whole in b bytes, to find its extent.

Of a layer in tiles of t tokens (``core.model.layers.tiles``) the whole has, of T tokens, the gradient of its output and
of its residual, the heads, attention's result and its gradient; a tile has what stands above, but for dy, which is a
view, and its input as it comes from the host. The higher of the latter two comes on top::

    always     T b (2D  +  Q + 2K  +  2Q)  +  4 T (log-sum-exp)
    tiles      t (second half, and gate to o above)  +  M of o, gate and up, and down
    attention  T (dq, dk, dv and all else above) / groups of heads

The model's end comes on top of everything kept: its last norm's input, the last hidden states, their gradient and a
chunk of logits. Where that norm is transformers' own, its input is float32, and its backward pass holds five of them.
Where the head comes in tiles of v rows, a block of B tokens has sums in float32, and C of its tokens what is made of
their logits: 4 B D + 8 C max(v, D).

The choice at every micro-batch (``core.model.layers.checkpointing``) counts with this file too.
"""

from dataclasses import dataclass
from functools import cached_property

LOGITS_AT_ONCE = 2**26
"""Logits of one chunk; a test holds this to ``core.kernels.linear_cross_entropy``."""
TILED_LOGITS, TILED_SUMS, TILE_BYTES = 2**23, 2**25, 32 * 2**20
"""Of a head in tiles: logits and sums at once, and bytes of a tile; a test holds them to those of that op and of
``core.model.streaming.head``."""
CHUNKS = 1
"""Chunks of logits at once: each is made in the same memory, and becomes its own gradient there."""
TILE, NARROW = 64, 1024
"""How borders are rounded; a test holds them to ``core.kernels.lora``."""
PIECE_VALUES = 2**23
"""Values of ``[gate|up]`` that DoRA's backward pass copies at once; a test holds this to ``core.kernels.lora_mlp``."""
BLOCK = 128
"""Columns of gate or up that share a scale in 8 bits; a test holds this to ``core.kernels.eightbit.kept``."""
LEAVING = 2
"""Layer inputs that are on their way to host memory, or back, at once."""
TILES_COMING = 3
"""The same of tiles of a layer's input, back only, and with the one that is computed."""
MOST_GROUPS = 8
"""The most groups of heads over tiles; a test holds this to ``core.model.layers.tiles``."""


@dataclass(frozen=True)
class FastLayer:
    """One layer's sizes; see the module for the symbols."""

    hidden: int
    queries: int
    keys: int
    inner: int
    head_dim: int
    ranks: tuple[int, int, int, int]
    itemsize: int
    attention: int = 0
    """Values a token that attention keeps beside heads and result: capped logits (FlexAttention) the result in an order
    of their own."""
    flash: bool = True
    """Whether attention reads heads where they lie; else its backward pass makes keys and values for every query head
    (``core.model.attention.efficient``)."""
    head_norms: bool = False
    """Queries and keys are normalised per head, and kept once more before that."""
    four_norms: bool = False
    """Norms behind attention and MLP, whose inputs are kept as well."""
    scaled: tuple[bool, bool, bool, bool] = (False, False, False, False)
    """Which stacks have DoRA's magnitudes."""
    eight: bool = False
    """Frozen products are in 8 bits."""

    @property
    def input(self) -> int:
        """Bytes a token of the layer's input, all that is kept of a recomputed layer."""
        return self.itemsize * self.hidden

    @cached_property
    def kept(self) -> int:
        """Bytes a token of a layer that is not recomputed."""
        values = self.ranks[0] + self._heads + self.queries + self.attention  # until attention's backward pass
        wide = 1 + self.queries // self.head_dim
        if self.head_norms:
            values += self._heads
            wide += (self.queries + self.keys) // self.head_dim
        return self.input + self.itemsize * values + 4 * wide + self._second_half

    @cached_property
    def borders(self) -> tuple[int, ...]:
        """The columns of each stack's border."""
        widths = (self.hidden, self.queries, self.hidden, self.inner)
        return tuple(border(ranks, width) for ranks, width in zip(self.ranks, widths, strict=True))

    @property
    def _heads(self) -> int:
        return self.queries + 2 * self.keys

    @property
    def _second_half(self) -> int:
        """Kept until the MLP's backward pass is done."""
        norms = 2 if self.four_norms else 0
        results = norms or self.scaled[1] + self.scaled[3]
        values = sum(self.ranks[1:3]) + (1 + results) * self.hidden
        gates = self._gates_in_eight if self.eight else self.itemsize * (self.ranks[3] + self._gates)
        return self.itemsize * values + gates + 4 * (1 + norms)

    @property
    def _gates(self) -> int:
        """Values a token of [gate|up] or of their gradient."""
        return 2 * self.inner + self.borders[2]

    @property
    def _gates_in_eight(self) -> int:
        """Bytes a token of [gate|up] in 8 bits."""
        return 2 * (self.inner + 4 * -(-self.inner // BLOCK))

    @property
    def recomputed(self) -> int:
        """Bytes a token of a layer that was recomputed."""
        return self.kept - self._gates_in_eight if self.eight else self.kept  # the rest stands in ``moments``

    def work(self, tokens: int) -> tuple[int, int]:
        """``(bytes that grow with the tokens, the matrix's)`` of the backward pass's highest moment over ``kept``."""
        growing, fixed = max(self.moments, key=lambda moment: tokens * moment[0] + moment[1])
        return tokens * growing, fixed

    @cached_property
    def moments(self) -> tuple[tuple[int, int], ...]:
        """``(bytes a token, bytes of a matrix)`` of each moment, in the module's order."""
        b, (_, ro, rg, rd) = self.itemsize, self.borders
        extra = self.hidden if self.four_norms else 0  # dz is a row of its own there
        wide = (2 if self.flash or self.attention else 4) * self.queries if self.keys < self.queries else 0
        piece = b * PIECE_VALUES if self.scaled[2] else 0
        attending = b * (self.hidden + self.queries + self._heads + wide) + 4 * self.queries
        if self.eight:
            return (*self._moments_of_eight(extra), (max(0, attending - self._second_half), 0))
        return (
            (b * (2 * self.hidden + self.inner + rd + extra), b * (self.hidden + rd) * (self.inner + rd) + piece),
            (b * (2 * self.hidden + extra), b * (2 * self.inner + rg) * (self.hidden + rg)),
            (b * (3 * self.hidden + self.queries + ro + extra), b * (self.hidden + ro) * (self.queries + ro)),
            (max(0, attending - self._second_half), 0),
        )

    @property
    def groups(self) -> int:
        """Groups of heads in which attention beside tiles is computed."""
        keys = 1 if self.attention else max(1, self.keys // self.head_dim)
        return next(count for count in range(min(MOST_GROUPS, keys), 0, -1) if keys % count == 0)

    def tiled(self, tokens: int, tile: int) -> int:
        """Bytes of a recomputed layer's backward pass in tiles of so many tokens."""
        b, d, q, (_, ro, rg, rd) = self.itemsize, self.hidden, self.queries, self.borders
        whole = b * (2 * d + self._heads + 2 * q + self.attention) + 4 * (q // self.head_dim)
        of_tile = b * (TILES_COMING * d + q) + self._second_half - (self._gates_in_eight if self.eight else 0)
        moments = self.moments[:3]
        if self.eight:
            _, ro, rg, rd = self.ranks
            moving = max(tile * growing + fixed for growing, fixed in moments)
            moving += b * (ro * (d + q) + rg * (2 * self.inner + d) + rd * (d + self.inner))
        else:
            matrices = (d + ro) * (q + ro) + (2 * self.inner + rg) * (d + rg) + (d + rd) * (self.inner + rd)
            piece = min(PIECE_VALUES, tile * self._gates) if self.scaled[2] else 0
            moving = tile * max(growing for growing, _ in moments) + b * (matrices + piece)
        halves = moving - tile * b * d + tile * of_tile
        wide = (2 if self.flash or self.attention else 4) * q if self.keys < q else 0
        attention = tokens * (b * (self._heads + wide) + 4 * q) // self.groups
        return tokens * whole + max(halves, attention)

    def _moments_of_eight(self, extra: int) -> tuple[tuple[int, int], ...]:
        """The first three, in 8 bits; and a matrix made whole to find its extent."""
        b, d, q, (_, ro, rg, rd) = self.itemsize, self.hidden, self.queries, self.ranks
        gates = 2 * self.inner
        both = b * (gates + rg) + gates
        return (
            (b * (d + self.inner + rd + extra) + both + d, d * self.inner + b * rd * (d + self.inner)),
            (b * (2 * d + extra) + both, gates * d + b * rg * (gates + d)),
            (b * (3 * d + q + ro + extra) + d, d * q + b * ro * (d + q)),
            (b * d, b * d * self.inner),
        )

    @property
    def matrices(self) -> int:
        """Bytes of the bordered matrices that a recomputation makes: all but the down projection's; in 8 bits of their
        borders alone."""
        rq, ro, rg, _ = self.borders
        if self.eight:
            rq, ro, rg, _ = self.ranks
            d, gates = self.hidden, 2 * self.inner
            return self.itemsize * (rq * (self._heads + d) + ro * (d + self.queries) + rg * (gates + d))
        heads = (self._heads + rq) * (self.hidden + rq)
        gates = (2 * self.inner + rg) * (self.hidden + rg)
        return self.itemsize * (heads + (self.hidden + ro) * (self.queries + ro) + gates)


@dataclass(frozen=True)
class ModelEnd:
    """Last norm, head and loss. ``itemsize`` is the hidden states'; ``fast``: the norm is ours; ``tiled``: the head
    comes in tiles."""

    hidden: int
    vocabulary: int
    itemsize: int
    fast: bool = True
    tiled: bool = False

    def work(self, tokens: int) -> int:
        """Bytes on top of what the layers keep; logits are made in chunks."""
        logits = sum(min(tokens * growing, most) for growing, most in self._made)
        return max(tokens * self.rows + logits, tokens * self.norm)

    @property
    def rows(self) -> int:
        """Bytes a token while the loss is computed, without logits."""
        return self.hidden * ((self.itemsize if self.fast else 4) + 2 * self.itemsize)

    @property
    def norm(self) -> int:
        """Bytes a token of the last norm's backward pass: its input and two gradients; in float32 two products more."""
        return self.hidden * (3 * self.itemsize if self.fast else 5 * 4)

    def longest(self, a_token: int, room: int) -> int:
        """Tokens for which this, and ``a_token`` bytes of each token, fit in ``room``."""
        whole = room // (a_token + self.rows + sum(growing for growing, _ in self._made))
        in_chunks = (room - sum(most for _, most in self._made)) // (a_token + self.rows)
        return min(max(whole, in_chunks), room // (a_token + self.norm))

    @cached_property
    def _made(self) -> tuple[tuple[int, int], ...]:
        """``(bytes a token, the most)`` of what logits are made in."""
        if not self.tiled:
            chunks = self.itemsize * max(CHUNKS * LOGITS_AT_ONCE, self.vocabulary)
            return ((self.itemsize * self.vocabulary, chunks),)
        wide = max(self.hidden, min(self.vocabulary, TILE_BYTES // (self.itemsize * self.hidden)))
        return (4 * self.hidden, 4 * TILED_SUMS), (8 * wide, 8 * TILED_LOGITS)


def rounded_rank(ranks: int) -> int:
    """The ranks of a stack's adapters together, as their low products are kept."""
    return -(-ranks // 8) * 8


def border(ranks: int, width: int) -> int:
    """The columns of a border for these ranks: whole tiles from a width of ``NARROW`` on."""
    return rounded_rank(ranks) if width < NARROW else -(-ranks // TILE) * TILE


def kept_layers(layer: FastLayer, end: ModelEnd, tokens: int, layers: int, room: int) -> int:
    """How many of the last layers can be kept in ``room`` bytes; the others' inputs are in host memory.

    A recomputed layer needs no room here: the kept ones are gone when the backward pass gets there.
    """
    left = room - max(sum(layer.work(tokens)), end.work(tokens))
    if left >= layers * tokens * layer.kept:
        return layers
    left -= LEAVING * tokens * layer.input
    return max(0, min(layers - 1, left // max(1, tokens * layer.kept)))


def recomputed_bytes(layer: FastLayer, tokens: int) -> int:
    """Bytes while a recomputed layer goes backward: inputs that come back, and the layer itself."""
    return LEAVING * tokens * layer.input + tokens * layer.recomputed + sum(layer.work(tokens))


def longest_kept(layer: FastLayer, end: ModelEnd, layers: int, room: int) -> int:
    """Tokens of the longest micro-batch of which every layer is kept."""
    stored = layers * layer.kept
    moments = ((room - fixed) // (stored + growing) for growing, fixed in layer.moments)
    return max(0, min(*moments, end.longest(stored, room)))
