"""An adapter folder, read without loading it: peft's config and the header of its weights.

peft follows what an adapter's config names: a module to import (``megatron_core``), a cache to unpickle
(``corda_config``), another model to start from. All of that is refused; and the rank must be that of the tensors, since
peft allocates what the config says. Where peft takes a text for a pattern (``target_modules`` and others) only lists of
plain names are accepted: matching a pattern may take for ever, and cannot be interrupted.
"""

import json
import re
from pathlib import Path
from typing import Any

from core.contract.config import MOST_RANK
from core.contract.errors import ModelError
from core.models.checks.claims import MOST_LAYERS, check_claims
from core.models.checks.files import check_files, read_json
from core.models.checks.weights import read_header

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_KNOWN = {
    "r", "lora_alpha", "lora_dropout", "target_modules", "exclude_modules", "bias", "use_rslora", "use_dora",
    "task_type", "peft_type", "base_model_name_or_path", "revision", "inference_mode", "init_lora_weights",
    "fan_in_fan_out", "megatron_core", "peft_version", "qalora_group_size", "lora_bias", "layers_pattern",
    "layers_to_transform", "modules_to_save", "auto_mapping", "use_bdlora", "ensure_weight_tying",
}  # fmt: skip
"""Keys that may have a value. ``megatron_core`` is a default of peft's, without effect while ``megatron_config`` is
empty."""
_NAMES = ("target_modules", "exclude_modules", "layers_pattern", "modules_to_save")
_NAME = re.compile(r"[\w.-]{1,200}", re.ASCII)
_MOST_NAMES = 4096
"""A model of eighty layers with all its projections written out has six hundred."""
_CORE = "megatron.core"
_MODELS = "transformers.models."


def check_adapter(folder: Path) -> None:
    """Checks that a folder holds a plain LoRA adapter.

    Raises:
        ModelError: the first fault, in one line.
    """
    try:
        if not (folder / WEIGHTS).is_file() or not (folder / CONFIG).is_file():
            raise ModelError("model.adapter/files", config=CONFIG, weights=WEIGHTS, folder=folder)
        check_files(folder)
        config = read_json(folder / CONFIG)
        check_claims(config, str(folder / CONFIG))
        _check_config(config, folder)
        rank, tensors = config.get("r"), read_header(folder / WEIGHTS)
        held = {entry["shape"][0] for name, entry in tensors.items() if "lora_A" in name and entry["shape"]}
        if type(rank) is not int or not 1 <= rank <= MOST_RANK or held - {rank}:
            raise ModelError("model.adapter/rank", held=sorted(held)[:3], folder=folder / CONFIG, rank=str(rank)[:40])
    except (OSError, RuntimeError) as error:
        raise ModelError("model.adapter/none", folder=folder) from error


def _check_config(config: dict[str, Any], folder: Path) -> None:
    mapping = config.get("auto_mapping") or {"parent_library": _MODELS}
    layers = config.get("layers_to_transform")
    numbers = layers if isinstance(layers, list) else [layers or 0]
    far = len(numbers) > MOST_LAYERS or not all(type(one) is int and 0 <= one < MOST_LAYERS for one in numbers)
    plain = [
        ("peft_type", config.get("peft_type", "LORA") == "LORA"),
        ("megatron_core", config.get("megatron_core") in (None, "", _CORE)),
        ("init_lora_weights", isinstance(config.get("init_lora_weights", True), bool)),
        ("auto_mapping", isinstance(mapping, dict) and str(mapping.get("parent_library")).startswith(_MODELS)),
        ("layers_to_transform", not far),
        *((key, key in _KNOWN) for key, value in config.items() if value),
        *((key, _are_names(key, config.get(key))) for key in _NAMES),
    ]
    for key, is_plain in plain:
        if not is_plain:
            shown = json.dumps(config.get(key))[:60]
            raise ModelError("model.adapter/not_plain", folder=folder, key=key[:60], shown=shown)


def _are_names(key: str, value: object) -> bool:
    """Whether this is nothing, or plain names. A text is a pattern to peft, but for "all-linear"; ``layers_pattern``
    may be one plain name."""
    if not value or (key, value) == ("target_modules", "all-linear"):
        return True
    listed = [value] if key == "layers_pattern" and isinstance(value, str) else value
    if not isinstance(listed, list) or len(listed) > _MOST_NAMES:
        return False
    return all(isinstance(name, str) and _NAME.fullmatch(name) is not None for name in listed)
