"""A model folder, read without loading it: config.json, weight headers, and whether it can be trained on here.

A safetensors file starts with eight bytes, the length N of its header (little endian), then N bytes of JSON that name
every tensor with dtype, shape and place, then the tensors. So its true size, and what lies inside, are known from its
first kilobytes (https://huggingface.co/docs/safetensors, "Format").

What is refused, each in one line: weights that are not safetensors, code that would have to be run, pieces that are
missing or cut short, weights that somebody else quantised, an adapter without its base, a model that does not continue
text. Nothing here imports transformers: the window asks too.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.contract.catalogue import ModelShape
from core.contract.errors import ModelError

__all__ = [
    "INDEX_NAME",
    "check_config",
    "check_folder",
    "fingerprint",
    "is_instruct",
    "parameters_on_disk",
    "read_config_json",
    "read_shape",
    "weight_files",
]

INDEX_NAME = "model.safetensors.index.json"
HEADER_LIMIT_BYTES = 100_000_000
TOKENIZER_NAMES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".onnx")


def read_config_json(folder: Path) -> dict[str, Any]:
    """The folder's config.json.

    Raises:
        ModelError: the folder or the file is missing, or the file is no JSON object.
    """
    if not folder.is_dir():
        raise ModelError("model.no_folder", f"Expected a model folder at {folder}, found none.", "Check the path.")
    path = folder / "config.json"
    if not path.is_file():
        if (folder / "adapter_config.json").is_file():
            raise ModelError(
                "model.adapter",
                f"Expected a whole model in {folder}, found an adapter without its base.",
                "Choose its base model, and start from the run that made the adapter (resume_from).",
            )
        _refuse_other_weights(folder)
        raise ModelError(
            "model.no_config", f"Expected config.json in {folder}, found none.", "Choose the folder that has it."
        )
    return parse_config(path)


def parse_config(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or ModelError."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            "model.bad_json", f"Expected JSON in {path}, found something else ({error}).", "Fetch the file again."
        ) from error
    if not isinstance(config, dict):
        raise ModelError("model.bad_json", f"Expected an object in {path}, found {type(config).__name__}.")
    return config


def read_shape(config: dict[str, Any], name: str = "the model") -> ModelShape:
    """Sizes from a config.json, under Hugging Face's names; head_dim and key heads where they are implied.

    Raises:
        ModelError: a size is missing or is no positive number.
    """
    heads = _size(config, "num_attention_heads", name)
    hidden = _size(config, "hidden_size", name)
    return ModelShape(
        hidden_size=hidden,
        intermediate_size=_size(config, "intermediate_size", name),
        num_hidden_layers=_size(config, "num_hidden_layers", name),
        num_attention_heads=heads,
        num_key_value_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or hidden // heads,
        vocab_size=_size(config, "vocab_size", name),
        max_position_embeddings=config.get("max_position_embeddings") or 2048,
        tie_word_embeddings=bool(config.get("tie_word_embeddings", _ties(config))),
        sliding_window=_window(config),
    )


def check_config(config: dict[str, Any], name: str) -> None:
    """Refuses what cannot be trained here by config alone: remote code, foreign quantisation, other kinds of model.

    Raises:
        ModelError: one line that says which.
    """
    kind = str(config.get("model_type", ""))
    if not kind:
        raise ModelError("model.no_type", f"Expected model_type in the config.json of {name}, found none.")
    if not _known_to_transformers(kind):
        raise ModelError(
            "model.remote_code" if "auto_map" in config else "model.unknown_type",
            f"Expected an architecture that transformers knows, found {kind!r} in {name}"
            + (", which brings code of its own." if "auto_map" in config else "."),
            "Code from a model is never run here; choose another model.",
        )
    if "quantization_config" in config:
        found = dict(config["quantization_config"] or {}).get("quant_method", "quantised")
        raise ModelError(
            "model.quantised",
            f"Expected 16- or 32-bit weights in {name}, found {found} weights.",
            "Choose the original model; it is quantised to 4 bits here while it is loaded.",
        )
    if config.get("num_local_experts") or config.get("num_experts") or config.get("n_routed_experts"):
        raise ModelError(
            "model.experts",
            f"Expected one MLP a layer in {name}, found a mixture of experts.",
            "Choose a dense model.",
        )
    classes = [str(entry) for entry in config.get("architectures") or ()]
    if config.get("is_encoder_decoder") or (classes and not any(entry.endswith("ForCausalLM") for entry in classes)):
        raise ModelError(
            "model.not_causal",
            f"Expected a model that continues text (...ForCausalLM), found {', '.join(classes) or kind} in {name}.",
            "Choose a language model.",
        )


def check_folder(folder: Path) -> None:
    """Whether a folder can be trained on: config, tokenizer, whole safetensors, nothing that needs code.

    Raises:
        ModelError: the first fault, in one line.
    """
    config = read_config_json(folder)
    check_config(config, str(folder))
    read_shape(config, str(folder))
    if not any((folder / name).is_file() for name in TOKENIZER_NAMES):
        raise ModelError(
            "model.no_tokenizer",
            f"Expected a tokenizer ({TOKENIZER_NAMES[0]}) in {folder}, found none.",
            "Copy the tokenizer files of the model into it.",
        )
    for path in weight_files(folder):
        _check_place(folder, path)
        read_header(path)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model, as its index names them, else those that lie there.

    Raises:
        ModelError: there are none, or the index names one that is missing or lies outside the folder.
    """
    index = folder / INDEX_NAME
    if not index.is_file():
        found = sorted(path for path in folder.glob("*.safetensors") if not path.name.startswith("adapter"))
        if not found:
            _refuse_other_weights(folder)
            raise ModelError("model.no_weights", f"Expected safetensors files in {folder}, found no weights.")
        return found
    names = parse_config(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelError("model.bad_index", f"Expected weight_map in {index}, found none.", "Fetch the file again.")
    shards = [folder / str(name) for name in sorted({str(name) for name in names.values()})]
    for path in shards:
        if path.parent != folder or path.suffix != ".safetensors":
            raise ModelError("model.outside", f"Expected file names in {index}, found {path.name!r} elsewhere.")
    missing = [path.name for path in shards if not path.is_file()]
    if missing:
        raise ModelError(
            "model.missing_shard",
            f"Expected {len(shards)} weight files in {folder}, found {len(shards) - len(missing)}; "
            f"missing: {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}.",
            "Finish the download or copy the missing files.",
        )
    return shards


def read_header(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file by name, checked against the file's size.

    Raises:
        ModelError: the file is no safetensors, or is shorter or longer than its header says.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size, HEADER_LIMIT_BYTES):
                raise ValueError("header longer than the file")
            header = json.loads(file.read(length))
            tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
            expected = 8 + length + max((int(entry["data_offsets"][1]) for entry in tensors.values()), default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error) as error:
        raise ModelError(
            "model.bad_weights", f"Expected safetensors in {path}, found something else.", "Fetch the file again."
        ) from error
    if size != expected:
        word = "cut short" if size < expected else "longer than its header says"
        raise ModelError(
            "model.truncated",
            f"Expected {expected:,} bytes in {path}, found {size:,}: the file is {word}.",
            "Fetch the file again.",
        )
    return tensors


def parameters_on_disk(folder: Path) -> int:
    """Number of weights in all files of a model, from their headers."""
    return sum(_product(entry["shape"]) for path in weight_files(folder) for entry in read_header(path).values())


def fingerprint(folder: Path) -> str:
    """SHA-256 over config.json and every weight file's name, size and header: cheap, and changes with the model."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in weight_files(folder):
        digest.update(f"{path.name} {path.stat().st_size}".encode())
        digest.update(json.dumps(read_header(path), sort_keys=True).encode())
    return digest.hexdigest()


def is_instruct(folder: Path) -> bool:
    """Whether the tokenizer brings a chat template, which is what makes a model answer turns."""
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    path = folder / "tokenizer_config.json"
    return path.is_file() and bool(parse_config(path).get("chat_template"))


def _size(config: dict[str, Any], key: str, name: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ModelError(
            "model.shape",
            f"Expected {key} as a positive number in the config.json of {name}, found {value!r}.",
            "Choose a model of a Llama-like family.",
        )
    return value


def _ties(config: dict[str, Any]) -> bool:
    # Gemma's configs leave the key out, and their classes tie.
    return str(config.get("model_type", "")).startswith("gemma")


def _window(config: dict[str, Any]) -> int | None:
    # Qwen2 writes a window and a switch that turns it off.
    if config.get("use_sliding_window") is False:
        return None
    window = config.get("sliding_window")
    return int(window) if isinstance(window, int) else None


@lru_cache(maxsize=64)
def _known_to_transformers(model_type: str) -> bool:
    """Whether the installed transformers has a folder of this name; found without importing it (that costs seconds)."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None or not model_type.replace("_", "").replace("-", "").isalnum():
        return False
    models = Path(spec.origin).parent / "models"
    name = model_type.replace("-", "_")
    return any((models / entry).is_dir() for entry in (name, name.removesuffix("_text")))


def _refuse_other_weights(folder: Path) -> None:
    found = sorted(path.name for path in folder.iterdir() if path.suffix in OTHER_WEIGHTS)
    if found:
        raise ModelError(
            "model.not_safetensors",
            f"Expected safetensors files in {folder}, found {found[0]}.",
            "Only safetensors are loaded: other formats can run code or are made for other programs.",
        )


def _check_place(folder: Path, path: Path) -> None:
    """Links may lead to the hub cache's own blobs (snapshots/HASH/file → ../../blobs) and nowhere else outside."""
    target = path.resolve()
    blobs = folder.resolve().parents[1] / "blobs" if len(folder.resolve().parents) > 1 else folder.resolve()
    if target.is_relative_to(folder.resolve()) or target.is_relative_to(blobs):
        return
    raise ModelError(
        "model.outside", f"Expected {path.name} inside {folder}, found a link to {target}.", "Copy the file there."
    )


def _product(sizes: list[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
