"""ENCODERS, by ``model_type`` of config.json: encoders of the BERT kind whose rows we lay end to end instead of padding
them, and where their classes in transformers keep what. An encoder that is not in the table is trained padded."""

from dataclasses import dataclass, replace
from typing import Any


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
    ),
    # Versions 2 and 3.
    "deberta-v2": replace(EncoderFamily(), relative="encoder", head=("pooler", "dropout", "classifier")),
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
