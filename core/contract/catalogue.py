"""What a model and a preset are, before anything of them is loaded."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from core.contract.methods import DEFAULT_METHOD, Method

Positions = Literal["rotary", "scaled", "learned", "other"]
"""How tokens are placed: rotary (RoPE) as it is or scaled by the model's maker, by a learned table, or otherwise."""
GIB = 2**30
SHY = 0.5
"""GiB: a card reports a little less than its nominal size."""


class ModelShape(BaseModel):
    """A model's sizes, named as in Hugging Face's config.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False
    sliding_window: int | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    gated_mlp: bool = True
    """Whether the MLP multiplies by a gate, which is a third matrix."""
    other_embeddings: int = 0
    """Rows of embeddings beside the vocabulary's: of positions, of parts of a row, of distances."""

    @property
    def query_size(self) -> int:
        """Columns of the query projection."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_size(self) -> int:
        """Columns of the key projection, and of the value projection."""
        return self.num_key_value_heads * self.head_dim

    @property
    def linear_parameters(self) -> int:
        """Weights of all layers' projections, which NF4 quantises."""
        attention = self.hidden_size * (2 * self.query_size + 2 * self.key_size)
        mlp = (3 if self.gated_mlp else 2) * self.hidden_size * self.intermediate_size
        return self.num_hidden_layers * (attention + mlp)

    @property
    def embedding_parameters(self) -> int:
        """Weights of embeddings and head, which stay in 16 bits; counted once when tied."""
        words = self.vocab_size * (1 if self.tie_word_embeddings else 2)
        return (words + self.other_embeddings) * self.hidden_size

    @property
    def parameters(self) -> int:
        """All weights, norms counted as two a layer and one at the end."""
        return self.linear_parameters + self.embedding_parameters + self.hidden_size * (2 * self.num_hidden_layers + 1)


class ModelSpec(BaseModel):
    """One base model: of the catalogue, a folder, or the hub."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    key: str
    """File name of the catalogue entry, or the source and name otherwise; unique in a listing."""
    title: str
    source: Literal["starter", "folder", "hub"]
    name: str
    """``starter``, an absolute folder or a hub id."""
    revision: str = ""
    model_type: str
    """``model_type`` of config.json, such as ``llama``."""
    shape: ModelShape
    encoder: bool = False
    """Whether it is an encoder of the BERT kind, which gives scores only (``core.models.encoders``)."""
    positions: Positions = "rotary"
    instruct: bool = False
    licence: str = ""
    gated: bool = False
    download_bytes: int = 0
    """Of the safetensors files; 0 where nothing must be downloaded."""
    cached: bool = False
    folder: str = ""
    """Where the weights are on this machine; else empty."""
    about: str = ""


class PresetCard(BaseModel):
    """What a recipe proposes for cards of ``gib`` GB and more: a model of the catalogue, and values of its own.

    ``evidence`` says what was measured, on what; empty where nothing was, or the recipe has changed since.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    gib: int
    model: str
    values: dict[str, Any] = Field(default_factory=dict)
    evidence: str = ""
    peak_bytes: int = 0
    """Of a card's memory, as measured; 0 without evidence."""


class Preset(BaseModel):
    """A recipe for a goal. ``values`` maps dotted RunConfig keys; all others keep their defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    key: str
    title: str
    goal: str
    method: Method = DEFAULT_METHOD
    values: dict[str, Any] = Field(default_factory=dict)
    for_samples: tuple[str, ...] = ()
    """Keys of ``values`` that apply to our samples only, not to a person's own file."""
    cards: tuple[PresetCard, ...] = ()
    """By card size, smallest first; empty where the recipe proposes no model."""

    def on(self, total_bytes: int | None) -> PresetCard | None:
        """The proposal for a card of this size; None without a card, or for one smaller than all proposals."""
        size = (total_bytes or 0) / GIB + SHY
        return max((card for card in self.cards if card.gib <= size), key=lambda card: card.gib, default=None)
