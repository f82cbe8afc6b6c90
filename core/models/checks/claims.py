"""What a model's config and its tokenizer's config claim, checked against limits and against the weights.

Libraries follow what these files name: a class to import, a file to open, a kernel to fetch, a number of layers to
allocate. So names must be plain, code is refused, and the sizes must be those of the tensors.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import inf, prod
from pathlib import Path
from typing import Any

from core.contract.catalogue import ModelShape
from core.contract.errors import ModelError
from core.models.checks.files import check_files, is_plain_name, read_json

LARGEST = 2**31 - 1
LARGEST_SIZE = 1 << 27
MOST_LAYERS = 1024
"""Beyond any model: vocabularies have 262,144 words, contexts 10 million tokens, the deepest model 200 layers."""
_SIZE = re.compile(
    r"(_size|_dim|^dim|_heads|_rank|_embeddings|_experts|_length|_len|_groups|d_model|n_embd|_positions|_buckets)$"
)
_LAYERS = re.compile(r"(_layers|n_layer)$")
_COUNTS = {
    "num_labels": 1 << 16,
    "num_beams": 64,
    "num_beam_groups": 64,
    "num_return_sequences": 64,
    "extra_ids": 1 << 14,
}
"""Counts that a library makes lists of or loops over; an image classifier has 21,841 labels."""
_GENERATION_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
_GENERATION_NUMBERS = {"do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty"}
_MOST_ENDS = 256
_NO_SIZE = re.compile(r"theta|base|seed|_id$|eps")
_ATTENTION = re.compile(r"[\w|]*")
_FILE_KEYS = re.compile(r"(^|_)files?$")
_HARMLESS_FILES = ("special_tokens_map_file",)
"""Written by old versions with a path of whoever saved it; never read."""
_TEMPLATE_NAME = re.compile(r"[\w-]{1,64}")
_VOCABULARY = (
    "embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight", "tok_embeddings.weight",
)  # fmt: skip
_LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks)\.(\d{1,9})\.")


def check_claims(config: Mapping[str, Any], name: str) -> None:
    """Refuses sizes that no model has, and words that make a library import, fetch or open something.

    Raises:
        ModelError: the first of them, in one line.
    """
    for key, value in _entries(config):
        if key == "trust_remote_code" and value:
            raise ModelError("model.remote_code", name=name, key=key)
        if key in ("attn_implementation", "_attn_implementation", "experts_implementation"):
            # A name with a slash makes transformers fetch a kernel from the hub, which is code.
            named = list(value.values()) if isinstance(value, dict) else [value]
            if not all(one is None or (isinstance(one, str) and _ATTENTION.fullmatch(one)) for one in named):
                raise ModelError("model.remote_code", name=name, key="an attention to fetch")
        if key == "transformers_weights" and value:
            raise ModelError("model.outside/weights", name=name)
        if type(value) is int:
            _check_size(key, value, name)


def check_tokenizer(folder: Path) -> None:
    """Refuses a tokenizer that brings code, names files elsewhere, or has templates that would be written elsewhere.

    Raises:
        ModelError: the first of them, in one line.
    """
    check_files(folder)
    for name in ("tokenizer_config.json", "special_tokens_map.json", "chat_template.json"):
        path = folder / name
        if path.is_file():
            _check_tokenizer_config(read_json(path), str(path))


def check_fit(shape: ModelShape, tensors: Mapping[str, Any], name: str) -> None:
    """Checks that the weights have the sizes that the config claims.

    Raises:
        ModelError: fewer layers, another vocabulary, or less than half of the numbers that the config wants.
    """
    for key, entry in tensors.items():
        if key.endswith(_VOCABULARY) and entry["shape"] != [shape.vocab_size, shape.hidden_size]:
            expected = f"{shape.vocab_size:,} × {shape.hidden_size:,} numbers in {key[:80]}"
            raise ModelError("model.misfit", expected=expected, name=name, found=entry["shape"])
    layers = {named[1] for key in tensors if (named := _LAYER.search(key))}
    if layers and len(layers) < shape.num_hidden_layers:
        expected = f"{shape.num_hidden_layers:,} layers"
        raise ModelError("model.misfit", expected=expected, name=name, found=f"{len(layers):,}")
    numbers = sum(prod(entry["shape"]) for entry in tensors.values())
    if 2 * numbers < shape.parameters:  # an MLP without a gate, or a tied head, has fewer
        expected = f"about {shape.parameters:,} weights"
        raise ModelError("model.misfit", expected=expected, name=name, found=f"{numbers:,}")


def _check_tokenizer_config(config: Mapping[str, Any], name: str) -> None:
    for key, value in _entries(config):
        if key in ("auto_map", "trust_remote_code") and value:
            raise ModelError("model.remote_code", name=name, key=key)
        if key in _COUNTS and type(value) is int:
            _check_size(key, value, name)
        for file in (value if isinstance(value, list) else [value]) if _FILE_KEYS.search(key) else ():
            if isinstance(file, str) and key not in _HARMLESS_FILES and not is_plain_name(file):
                raise ModelError("model.outside/tokenizer", name=name, key=key)
    if config.get("init_inputs"):
        raise ModelError("model.outside/init_inputs", name=name)
    templates = config.get("chat_template")
    for named in templates if isinstance(templates, list | dict) else ():
        named = named.get("name") if isinstance(named, dict) else named
        if not isinstance(named, str) or not _TEMPLATE_NAME.fullmatch(named):
            raise ModelError("model.outside/templates", name=name, shown=json.dumps(named)[:80])


def plain_generation(said: Mapping[str, Any]) -> dict[str, Any]:
    """What of a foreign generation config is used: where an answer begins and ends, and plain numbers of sampling.
    Beams, assistants, watermarks and caches multiply memory or need code."""
    numbers = {key: value for key, value in said.items() if key in _GENERATION_NUMBERS}
    kept: dict[str, Any] = {
        key: value for key, value in numbers.items() if isinstance(value, int | float) and abs(value) <= LARGEST
    }
    for key in _GENERATION_IDS:
        value = said.get(key)
        ids = value if isinstance(value, list) else [value]
        if all(type(one) is int for one in ids) and 0 < len(ids) <= _MOST_ENDS:
            kept[key] = value
    return kept


def _entries(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every key with its value, nested ones too; numbers of a list under the list's key."""
    waiting: list[tuple[str, Any]] = list(config.items())
    while waiting:
        key, value = waiting.pop()
        yield key, value
        if isinstance(value, dict):
            waiting.extend((str(name), inner) for name, inner in value.items())
        elif isinstance(value, list):
            waiting.extend((key, inner) for inner in value if not isinstance(inner, str))


@lru_cache
def _most(key: str) -> float:
    """The largest number under this key; asked for each number of a list, which may have a million."""
    if _NO_SIZE.search(key):
        return inf
    return _COUNTS.get(key) or (MOST_LAYERS if _LAYERS.search(key) else LARGEST_SIZE if _SIZE.search(key) else LARGEST)


def _check_size(key: str, value: int, name: str) -> None:
    most = _most(key)
    if abs(value) > most:
        shown = f"{value:,}" if abs(value) < 10**15 else "far more"
        raise ModelError("model.absurd/config", key=key[:60], most=most, name=name, shown=shown)
