"""ENCODERS, by ``model_type`` of config.json: encoders of the BERT kind whose rows we lay end to end instead of padding
them, and where their classes in transformers keep what."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.contract.catalogue import ModelShape

CLASSES = ("ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "Model")
"""How the classes of transformers end whose weights hold an encoder's body; a head of theirs is not read."""
NOT_CLASSES = ("LMHeadModel",)
TOKENIZERS = ("vocab.txt", "sentencepiece.bpe.model", "spm.model")
"""Files that an encoder's tokenizer is made from where it has no tokenizer.json."""
USUAL_ROWS, USUAL_PADDING = 512, 1
"""Positions, and the padding's id of RoBERTa, where a config is silent."""


@dataclass(frozen=True)
class EncoderFamily:
    """How a family's classifier differs from BERT's. Paths are names of submodules.

    Of the body (``base_model_prefix`` of the model's class):
        ``layers``: its list of layers; ``last``: the norm after them.
        ``positions``: whether its embeddings take positions, ``after_padding``: which begin after the padding's id;
        ``rotary``: the module of its rotary angles, by the layer's ``attention_type``;
        ``relative``: the module that gives embeddings of distances, where attention takes these: its rows are computed
        in blocks of rows of like length.
        ``token_types``: whether its embeddings take them.

    Of a layer:
        ``attention``; ``between``: what follows up to the residual add; ``feed``: the MLP up to its residual add;
        ``norms``: after attention and after the MLP, or (``norm_first``) before each.

    Of the model:
        ``pooling``: the config's field that names it (``cls`` or ``mean``); empty: the row's first token.
        ``head``: from a pooled row to logits, submodules or a function of torch; ``takes_states``: the first of them
        takes ``[rows, 1, D]`` and pools by itself.

    Of its config.json and its weights:
        ``sizes``: sizes that have a name of its own there; ``bias``: whether layers have biases; ``fused``: whether q,
        k and v are one matrix, and gate and up one; ``dropouts`` of a layer beside attention's, as they are published;
        ``global_share``: of layers that see the whole row, where the others see a window of it; ``usual``: published
        fields that a shape leaves open.
    """

    layers: str = "encoder.layer"
    last: str = ""
    positions: bool = True
    after_padding: bool = False
    rotary: str = ""
    relative: str = ""
    token_types: bool = True
    attention: str = "attention.self"
    between: tuple[str, ...] = ("attention.output.dense", "attention.output.dropout")
    feed: tuple[str, ...] = ("intermediate", "output.dense", "output.dropout")
    norms: tuple[str, str] = ("attention.output.LayerNorm", "output.LayerNorm")
    norm_first: bool = False
    pooling: str = ""
    head: tuple[str, ...] = ("bert.pooler", "dropout", "classifier")
    takes_states: bool = True
    sizes: tuple[tuple[str, str], ...] = ()
    bias: bool = True
    fused: bool = False
    dropouts: int = 2
    global_share: float = 1.0
    usual: tuple[tuple[str, Any], ...] = ()


_ROBERTA = EncoderFamily(after_padding=True, head=("classifier",))
ENCODERS: dict[str, EncoderFamily] = {
    "bert": EncoderFamily(),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": EncoderFamily(
        layers="transformer.layer",
        token_types=False,
        attention="attention",
        between=(),
        feed=("ffn",),
        norms=("sa_layer_norm", "output_layer_norm"),
        head=("pre_classifier", "relu", "dropout", "classifier"),
        takes_states=False,
        sizes=(
            ("hidden_size", "dim"),
            ("num_hidden_layers", "n_layers"),
            ("num_attention_heads", "n_heads"),
            ("intermediate_size", "hidden_dim"),
        ),
        dropouts=1,
    ),
    "modernbert": EncoderFamily(
        layers="layers",
        last="final_norm",
        positions=False,
        rotary="rotary_emb",
        token_types=False,
        attention="attn",
        between=(),
        feed=("mlp",),
        norms=("attn_norm", "mlp_norm"),
        norm_first=True,
        pooling="classifier_pooling",
        head=("head", "drop", "classifier"),
        takes_states=False,
        sizes=(("sliding_window", "local_attention"),),
        bias=False,
        fused=True,
        dropouts=0,
        global_share=1 / 3,
    ),
    # Versions 2 and 3.
    "deberta-v2": replace(
        EncoderFamily(),
        relative="encoder",
        head=("pooler", "dropout", "classifier"),
        usual=(
            ("relative_attention", True),
            ("position_biased_input", False),
            ("share_att_key", True),
            ("pos_att_type", "p2c|c2p"),
            ("norm_rel_ebd", "layer_norm"),
        ),
    ),
}


def encoder_of(config: Any) -> EncoderFamily | None:
    """The family of a transformers config, or None."""
    return ENCODERS.get(str(getattr(config, "model_type", "")))


def first_position(config: Any) -> int:
    """The position of a row's first token in this model's table of positions."""
    family = encoder_of(config)
    return int(config.pad_token_id) + 1 if family is not None and family.after_padding else 0


def longest_row(config: Any) -> int:
    """Tokens of the longest row that the model's positions reach; longer ones must be cut."""
    return int(config.max_position_embeddings) - first_position(config)


def sizes_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json's fields, sizes under the names that most have, and with ``max_position_embeddings`` of the longest
    row; ``other_embeddings`` as in ``ModelShape``."""
    family = ENCODERS[str(config.get("model_type"))]
    said = {**config, **{name: config[own] for name, own in family.sizes if own in config}}
    rows, pad = said.get("max_position_embeddings", USUAL_ROWS), said.get("pad_token_id", USUAL_PADDING)
    first = _whole(pad) + 1 if family.after_padding else 0
    if isinstance(rows, int) and rows > first:
        said["max_position_embeddings"] = rows - first
    biased = family.positions and said.get("position_biased_input", True)
    said["other_embeddings"] = _whole(rows) if biased else 0
    said["other_embeddings"] += _whole(said.get("type_vocab_size")) if family.token_types else 0
    if family.relative and said.get("relative_attention"):
        reach = [_whole(said.get(name)) for name in ("position_buckets", "max_relative_positions")]
        said["other_embeddings"] += 2 * next((size for size in reach if size > 0), _whole(rows))
    return said


def fields_of(model_type: str, shape: ModelShape) -> dict[str, Any]:
    """A config's fields for a shape, which ``sizes_of`` reads back."""
    family, rows = ENCODERS[model_type], shape.max_position_embeddings
    fields = {**shape.model_dump(exclude={"gated_mlp", "other_embeddings"}), **dict(family.usual), "pad_token_id": 0}
    if family.after_padding:
        rows += USUAL_PADDING + 1
        fields |= {"max_position_embeddings": rows, "pad_token_id": USUAL_PADDING}
    if family.relative:
        fields |= {"position_buckets": shape.other_embeddings // 2, "type_vocab_size": 0}
    elif family.token_types:
        fields["type_vocab_size"] = max(0, shape.other_embeddings - rows)
    return {dict(family.sizes).get(name, name): value for name, value in fields.items() if value is not None}


def _whole(value: object) -> int:
    return value if type(value) is int else 0
