"""MAKERS: for each row of FORMS what writes it, from a checkpoint's adapter and the base model's folder."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.contract.forms import Form
from core.export.forms.merge import merge_weights, merged_bytes
from core.machine.disk import folder_bytes


@dataclass(frozen=True)
class Parts:
    """What an export is made of: the base model's folder, what a card calls it, and the checkpoint's adapter."""

    base: Path
    base_name: str
    adapter: Path


@dataclass(frozen=True)
class Maker:
    """How one form is made."""

    stage: str
    """What is being done, in words."""
    bytes_of: Callable[[Parts], int]
    make: Callable[[Parts, Path, Callable[[int, int], None], Callable[[], None]], str]
    """Writes the weights and their config into a folder, told how far it is and asking whether it may go on; returns
    the dtype of weights that it made, empty where they were copied."""


def _make_adapter(parts: Parts, draft: Path, _progress: Callable[[int, int], None], _check: Callable[[], None]) -> str:
    shutil.copy2(parts.adapter / "adapter_model.safetensors", draft)
    config = json.loads((parts.adapter / "adapter_config.json").read_text(encoding="utf-8"))
    # A folder of this machine means nothing elsewhere, and is nobody's business.
    config["base_model_name_or_path"] = parts.base_name
    (draft / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
    return ""


def _make_merged(parts: Parts, draft: Path, progress: Callable[[int, int], None], check: Callable[[], None]) -> str:
    dtype = str(merge_weights(parts.base, parts.adapter, draft, progress, check)).removeprefix("torch.")
    config: dict[str, Any] = json.loads((parts.base / "config.json").read_text(encoding="utf-8"))
    config.pop("quantization_config", None)
    config.pop("_name_or_path", None)
    config["torch_dtype" if "torch_dtype" in config else "dtype"] = dtype
    (draft / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return dtype


MAKERS: dict[Form, Maker] = {
    "adapter": Maker("Copying the adapter", lambda parts: folder_bytes(parts.adapter), _make_adapter),
    "merged": Maker("Merging the adapter into 16-bit weights", lambda parts: merged_bytes(parts.base), _make_merged),
}
