"""A model folder, read without loading it or importing transformers: config.json, weight headers, and whether it can be
trained on here.

Refused are weights that are not safetensors, code, missing or truncated files, quantised weights, an adapter without
its base, a model that neither continues text nor is an encoder of the BERT kind, and what ``files``, ``weights`` and
``claims`` refuse.
"""

import importlib.util
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from core.contract.catalogue import ModelShape, ModelSpec
from core.contract.errors import ModelError
from core.contract.tasks import TASKS
from core.models.checks.claims import check_claims, check_fit, check_tokenizer
from core.models.checks.files import check_files, read_json
from core.models.checks.weights import read_tensors, refuse_other_weights
from core.models.encoders import CLASSES, ENCODERS, NOT_CLASSES, TOKENIZERS, sizes_of
from core.models.families import is_gemma
from core.models.positions import positions_in, reach_of

TOKENIZER_NAMES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
_BASE = ("ForCausalLM",)
"""How the class of a decoder ends that can be trained on."""
_TRAINED = tuple(task.model_class.removeprefix("AutoModel") for task in TASKS.values())
"""How that of a checkpoint may end."""


def read_config_json(folder: Path) -> dict[str, Any]:
    """The folder's config.json.

    Raises:
        ModelError: the folder or the file is missing, or the file is no JSON object.
    """
    path = folder / "config.json"
    if not path.is_file():
        if (folder / "adapter_config.json").is_file():
            raise ModelError("model.adapter/no_base", folder=folder)
        if folder.is_dir():
            refuse_other_weights(folder)
        # The same words whether the folder is empty, unreadable or not there: they tell nothing about the disk.
        raise ModelError("model.no_folder", folder=folder)
    return read_json(path)


def read_shape(config: dict[str, Any], name: str = "the model") -> ModelShape:
    """Sizes from a config.json; head_dim and key heads may be implied.

    Raises:
        ModelError: a size is missing or is no positive number.
    """
    if encoder := is_encoder(config):
        config = sizes_of(config)
    heads = _size(config, "num_attention_heads", name)
    hidden = _size(config, "hidden_size", name)
    positions = _size(config, "max_position_embeddings", name, 2048)
    window = config.get("sliding_window")  # Qwen2 writes one, and a switch that turns it off
    return ModelShape(
        hidden_size=hidden,
        intermediate_size=_size(config, "intermediate_size", name),
        num_hidden_layers=_size(config, "num_hidden_layers", name),
        num_attention_heads=heads,
        num_key_value_heads=_size(config, "num_key_value_heads", name, heads),
        head_dim=_size(config, "head_dim", name, max(1, hidden // heads)),
        vocab_size=_size(config, "vocab_size", name),
        max_position_embeddings=reach_of({**config, "max_position_embeddings": positions}),
        tie_word_embeddings=encoder or bool(config.get("tie_word_embeddings", is_gemma(_kind(config)))),
        sliding_window=window if isinstance(window, int) and config.get("use_sliding_window") is not False else None,
        attention_bias=config.get("attention_bias") is True,
        mlp_bias=config.get("mlp_bias") is True,
        gated_mlp=not encoder or ENCODERS[_kind(config)].fused,
        other_embeddings=config["other_embeddings"] if encoder else 0,
    )


def is_encoder(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is one of an encoder of the BERT kind."""
    return _kind(config) in ENCODERS


def spec_of(
    config: dict[str, Any], source: Literal["starter", "folder", "hub"], name: str, revision: str, folder: Path | None
) -> ModelSpec:
    """What a config.json says of a model; ``folder``: where all of it is on this machine, if anywhere.

    Raises:
        ModelError: it cannot be trained on here.
    """
    check_config(config, str(folder or name))
    return ModelSpec(
        key=f"{source}:{name}",
        title=name.rpartition("/")[2],
        source=source,
        name=name,
        revision=revision,
        model_type=str(config["model_type"]),
        shape=read_shape(config, name),
        encoder=is_encoder(config),
        positions=positions_in(config),
        instruct=is_instruct(folder) if folder else False,
        cached=folder is not None,
        folder=str(folder or ""),
    )


def check_config(config: dict[str, Any], name: str, heads: tuple[str, ...] = _BASE) -> None:
    """Refuses what cannot be trained here by config alone: remote code, quantisation, other kinds of model, and claims
    that no model makes.

    Raises:
        ModelError: one line that says which.
    """
    check_claims(config, f"the config.json of {name}")
    kind = _kind(config)
    if not kind:
        raise ModelError("model.no_type", name=name)
    if not _known_to_transformers(kind):
        raise ModelError(
            "model.remote_code/type" if "auto_map" in config else "model.unknown_type", kind=kind, name=name
        )
    if "quantization_config" in config:
        said = config["quantization_config"]
        way = str(said.get("quant_method", "quantised") if isinstance(said, dict) else "quantised")[:40]
        raise ModelError("model.quantised", name=name, found=way)
    if config.get("num_local_experts") or config.get("num_experts") or config.get("n_routed_experts"):
        raise ModelError("model.experts", name=name)
    named = config.get("architectures")
    classes = [str(entry)[:80] for entry in named] if isinstance(named, list) else []
    if is_encoder(config):
        decoder = config.get("is_decoder") or any(entry.endswith(NOT_CLASSES) for entry in classes)
        if decoder or (classes and not any(entry.endswith(CLASSES) for entry in classes)):
            raise ModelError("model.not_encoder", classes=", ".join(classes[:3]) or kind, name=name)
    elif config.get("is_encoder_decoder") or (classes and not any(entry.endswith(heads) for entry in classes)):
        raise ModelError("model.not_causal", classes=", ".join(classes[:3]) or kind, name=name)


def check_folder(folder: Path, tokenizer: bool = True) -> None:
    """Checks that a folder can be trained on: config, tokenizer, whole safetensors, nothing that needs code. Takes
    seconds at most, whatever is in it.

    Args:
        tokenizer: False for a checkpoint's model, which has none.

    Raises:
        ModelError: the first fault, in one line.
    """
    try:
        config = read_config_json(folder)
        check_files(folder)
        check_config(config, str(folder), _BASE if tokenizer else _TRAINED)
        shape = read_shape(config, str(folder))
        if (folder / "adapter_config.json").exists():
            raise ModelError("model.adapter/config_beside", folder=folder)
        named = (*TOKENIZER_NAMES, *(TOKENIZERS if is_encoder(config) else ()))
        if tokenizer and not any((folder / name).is_file() for name in named):
            raise ModelError("model.no_tokenizer", file=TOKENIZER_NAMES[0], folder=folder)
        if tokenizer:
            check_tokenizer(folder)
        check_fit(shape, read_tensors(folder), str(folder))
    except ModelError as error:
        if error.message.isprintable():
            raise
        shown = "".join(letter if letter.isprintable() else "�" for letter in error.message)  # a name may hold newlines
        raise ModelError.told_by(error.told(), message=shown) from error
    except (OSError, RuntimeError, ValueError) as error:  # a link to itself, no right to read, a \0 in the name
        raise ModelError("model.no_folder", folder=folder) from error


def is_instruct(folder: Path) -> bool:
    """Whether the tokenizer has a chat template."""
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    path = folder / "tokenizer_config.json"
    return path.is_file() and bool(read_json(path).get("chat_template"))


def _kind(config: Mapping[str, Any]) -> str:
    return str(config.get("model_type") or "")[:80]


def _size(config: dict[str, Any], key: str, name: str, implied: int | None = None) -> int:
    value = config.get(key)
    if not value and implied:
        return implied
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ModelError("model.shape", key=key, name=name, value=str(value)[:40])
    return value


@lru_cache(maxsize=64)
def _known_to_transformers(model_type: str) -> bool:
    """Whether the installed transformers has a folder of this name; importing it to ask would take seconds."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None or not model_type.replace("_", "").replace("-", "").isalnum():
        return False
    models = Path(spec.origin).parent / "models"
    name = model_type.replace("-", "_")
    return any((models / entry).is_dir() for entry in (name, name.removesuffix("_text")))
