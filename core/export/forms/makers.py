"""MAKERS: how each form of export is written, from what a checkpoint holds and the base model's folder."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.contract.forms import Form
from core.contract.tasks import OUTPUTS_FILE
from core.export.forms.classifier import classifier_of
from core.export.forms.gguf import adapter_bytes, make_adapter, make_model, model_bytes, try_adapter, try_model
from core.export.forms.merge import write_weights
from core.export.gguf.model import Check, Progress
from core.export.gguf.proof.check import Verified
from core.export.parts import Parts
from core.export.script.write import script_bytes, write_script
from core.export.weights import finished, merged_bytes, written_dtype
from core.machine.disk import folder_bytes
from core.models.positions import written_fields

Make = Callable[[Parts, Path, Progress, Check], str]


@dataclass(frozen=True)
class Maker:
    """How one form is made."""

    stage: str
    """What is being done, for people."""
    bytes_of: Callable[[Parts], int]
    make: Make
    """Writes weights and their config, from parts, folder, on_tensor(done, total) and a safe point; returns the
    dtype of merged weights, else empty."""
    try_it: Callable[[Parts, Path, Check], Verified] | None = None
    """Compares what was written with what it was written of; None: plain peft and transformers reload it, whose
    tokenizer stands beside it then."""
    copies: int = 1
    """How many times the base's bytes that takes at most."""


def _make_adapter(parts: Parts, draft: Path, _progress: Progress, _check: Check) -> str:
    shutil.copy2(parts.trained / "adapter_model.safetensors", draft)
    if parts.head:
        shutil.copy2(parts.trained / OUTPUTS_FILE, draft)
    config = json.loads((parts.trained / "adapter_config.json").read_text(encoding="utf-8"))
    # peft wrote a path of this machine.
    config["base_model_name_or_path"] = parts.base_name
    (draft / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
    if parts.positions:  # without them the adapter is beside another model
        own: dict[str, Any] = json.loads((parts.base / "config.json").read_text(encoding="utf-8"))
        (draft / "config.json").write_text(
            json.dumps(own | written_fields(parts.positions), indent=2), encoding="utf-8"
        )
    return ""


def _make_whole(parts: Parts, draft: Path, progress: Progress, check: Check) -> str:
    """The finished weights, and the base's config with their dtype."""
    fields, shapes = classifier_of(parts.base, parts.head) if parts.head else ({}, None)
    weights = finished(parts.base, parts.trained, parts.learns, parts.weights, parts.dtype, shapes)
    write_weights(weights, draft, progress, check, parts.made_of)
    dtype = str(written_dtype(parts.base)).removeprefix("torch.")
    config: dict[str, Any] = json.loads((parts.base / "config.json").read_text(encoding="utf-8"))
    config.pop("quantization_config", None)
    config.pop("_name_or_path", None)
    config["torch_dtype" if "torch_dtype" in config else "dtype"] = dtype
    (draft / "config.json").write_text(
        json.dumps(config | fields | written_fields(parts.positions), indent=2), encoding="utf-8"
    )
    return dtype


MAKERS: dict[Form, Maker] = {
    "adapter": Maker("Copying the adapter", lambda parts: folder_bytes(parts.trained), _make_adapter),
    "merged": Maker("Merging the adapter into 16-bit weights", lambda parts: merged_bytes(parts.base), _make_whole),
    "whole": Maker("Writing the weights", lambda parts: merged_bytes(parts.base), _make_whole, copies=2),
    "gguf": Maker(
        "Writing the GGUF file",
        lambda parts: model_bytes(parts.base, parts.quantisation),
        make_model,
        try_model,
    ),
    "gguf_adapter": Maker(
        "Writing the adapter as GGUF",
        lambda parts: adapter_bytes(parts.base, parts.trained),
        make_adapter,
        try_adapter,
    ),
    "script": Maker("Writing the script and its rows", script_bytes, write_script),
}
