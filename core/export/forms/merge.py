"""Merged weights, tensor by tensor: base and adapter are read from safetensors, never loaded as models.

LoRA (Hu et al. 2021, arXiv:2106.09685), for a projection W ``[out, in]`` with A ``[R, in]`` and B ``[out, R]``::

    W' = W + s · B A            s = alpha / R, or alpha / sqrt(R) with rank-stabilised scaling (arXiv:2312.03732)

DoRA (Liu et al. 2024, arXiv:2402.09353), with the trained magnitudes m ``[out]``::

    W' = m · (W + s · B A) / ‖W + s · B A‖   row by row

Sums are float32; what is written has the base's 16-bit dtype (bfloat16 for a float32 base), an encoder's its own.
Memory is one shard. A classifier has the tensors that its class in transformers has: a trained head in place of the
base's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from core.contract.errors import ModelError
from core.export.forms.classifier import Shapes, own_name
from core.models.checks.folder import read_config_json
from core.models.checks.weights import read_header, weight_files
from core.models.encoders import ENCODERS

SHARD_BYTES = 2 << 30
_PREFIX = "base_model.model."
_SUFFIXES = {
    ".lora_A.weight": "a",
    ".lora_B.weight": "b",
    ".lora_magnitude_vector": "magnitude",
    ".lora_magnitude_vector.weight": "magnitude",
}
_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
_SIXTEEN = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class LowRank:
    """LoRA's or DoRA's change of a weight; ``transposed``: the base holds it as ``[in, out]`` (GPT-2's Conv1D)."""

    scale: float
    transposed: bool
    a: torch.Tensor
    b: torch.Tensor
    magnitude: torch.Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the base tensor must have."""
        sizes = (self.b.shape[0], self.a.shape[1])
        return sizes[::-1] if self.transposed else sizes

    def apply(self, weight: torch.Tensor) -> torch.Tensor:
        """The changed tensor, in float32."""
        held = weight.float()
        changed = (held.T if self.transposed else held) + self.scale * (self.b.float() @ self.a.float())
        if self.magnitude is not None:
            norms = changed.norm(dim=1, keepdim=True).clamp_min(
                torch.finfo(torch.float32).tiny
            )  # a row of zeros stays one
            changed = self.magnitude.float().reshape(-1, 1) * changed / norms
        return changed.T.contiguous() if self.transposed else changed


@dataclass(frozen=True)
class Replaced:
    """A trained bias, embedding or head, in place of the base's."""

    tensor: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the base tensor must have."""
        return tuple(self.tensor.shape)

    def apply(self, _weight: torch.Tensor) -> torch.Tensor:
        """The trained tensor, in float32."""
        return self.tensor.float()


Change = LowRank | Replaced


def read_changes(adapter: Path) -> dict[str, Change]:
    """The adapter's changes by the name of the base tensor.

    Raises:
        ModelError: it changes something else than projections, their biases, and modules in ``modules_to_save``.
    """
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    for part in ("rank_pattern", "alpha_pattern", "layer_replication", "trainable_token_indices"):
        if config.get(part):
            raise _unknown(part)
    if config.get("peft_type", "LORA") != "LORA":
        raise _unknown(str(config["peft_type"]))
    rank, alpha = int(config["r"]), float(config["lora_alpha"])
    scale = alpha / rank**0.5 if config.get("use_rslora") else alpha / rank
    changes: dict[str, Change] = {}
    low_rank: dict[str, dict[str, torch.Tensor]] = {}
    whole = tuple(f".{module}.weight" for module in config.get("modules_to_save") or ())
    tied = bool(config.get("ensure_weight_tying"))
    for key, tensor in load_file(adapter / "adapter_model.safetensors").items():
        name = key.removeprefix(_PREFIX)
        if suffix := next((one for one in _SUFFIXES if name.endswith(one)), ""):
            low_rank.setdefault(name.removesuffix(suffix) + ".weight", {})[_SUFFIXES[suffix]] = tensor
        elif name.endswith(".bias") and ".lora_" not in name:
            changes[name.replace(".base_layer.bias", ".bias")] = Replaced(tensor)
        elif ".lora_" not in name and (f".{name}".endswith(whole) or (tied and name.endswith(".weight"))):
            changes[name] = Replaced(tensor)
        else:
            raise _unknown(name)
    for name, tensors in low_rank.items():
        if not {"a", "b"} <= tensors.keys():
            raise _unknown(name)
        changes[name] = LowRank(scale, bool(config.get("fan_in_fan_out")), **tensors)
    return changes


def merge_weights(
    base: Path,
    adapter: Path,
    out: Path,
    on_tensor: Callable[[int, int], None],
    check: Callable[[], None],
    classifier: Shapes | None = None,
) -> torch.dtype:
    """Writes the merged safetensors and their index into ``out``.

    Args:
        base: model folder with safetensors.
        adapter: folder in peft's format.
        out: an empty folder.
        on_tensor: told of (tensors done, tensors in all).
        check: a safe point between tensors; may raise.
        classifier: the tensors of what is written, where that is a classifier.

    Returns:
        the dtype that was written.

    Raises:
        ModelError: the adapter changes a tensor that the base does not have, or another shape of it.
    """
    entries, changes = list(_entries(base)), read_changes(adapter)
    if classifier:
        entries = _of_classifier(entries, classifier)
    shapes = {entry.name: entry.shape for entry in entries}
    placed: dict[str, Change] = {}
    for name, change in changes.items():
        held = name if name in shapes else name.partition(".")[2]  # some bases lack the model's prefix (transformer.)
        if held not in shapes and isinstance(change, Replaced):  # of tied matrices the base has the first alone
            others = (one for one in changes.values() if isinstance(one, Replaced) and one is not change)
            if any(change.tensor.equal(one.tensor) for one in others):
                continue
        if shapes.get(held) != change.shape:
            actual = f"{shapes[held]}" if held in shapes else "no such tensor"
            raise ModelError("export.mismatch", name=name, shape=change.shape, found=actual)
        placed[held] = change
    for entry in entries:
        if entry.file is None and entry.name not in placed:
            raise ModelError("export.mismatch", name=entry.name, shape=entry.shape, found="no such tensor")
    return _write(entries, placed, written_dtype(base), out, on_tensor, check)


def _of_classifier(entries: Iterable[_Entry], classifier: Shapes) -> list[_Entry]:
    """The base's tensors that a classifier has, under its names, and those that it has alone."""
    named = {own_name(entry.name, classifier): entry for entry in entries}
    kept = [replace(entry, name=name, held=entry.name) for name, entry in named.items() if name]
    kept = [entry for entry in kept if entry.shape == classifier[entry.name]]  # a head that the base came with goes
    there = {entry.name for entry in kept}
    return kept + [_Entry(name, None, shape, torch.float32) for name, shape in classifier.items() if name not in there]


def round_weights(
    base: Path,
    model: Path,
    out: Path,
    on_tensor: Callable[[int, int], None],
    check: Callable[[], None],
    classifier: Shapes | None = None,
) -> torch.dtype:
    """The same of a whole model that was trained (``model``, its weights in float32), rounded to the base's dtype.

    Raises:
        ModelError: it does not have the base's tensors.
    """
    there = classifier or {entry.name: entry.shape for entry in _entries(base)}
    entries = list(_entries(model))
    for entry in entries:
        if there.get(entry.name, entry.shape) != entry.shape:
            raise ModelError("export.mismatch", name=entry.name, shape=entry.shape, found=there[entry.name])
    return _write(entries, {}, written_dtype(base), out, on_tensor, check)


def written_dtype(base: Path) -> torch.dtype:
    """The 16-bit dtype that the base has, bfloat16 where it has none; an encoder's own, since rounding a small model
    gains nothing."""
    held = [entry.dtype for entry in _entries(base) if entry.dtype.is_floating_point]
    small = str(read_config_json(base).get("model_type")) in ENCODERS
    return next((dtype for dtype in held if small or dtype in _SIXTEEN), torch.bfloat16)


def _write(
    entries: list[_Entry],
    changes: dict[str, Change],
    dtype: torch.dtype,
    out: Path,
    on_tensor: Callable[[int, int], None],
    check: Callable[[], None],
) -> torch.dtype:
    """Writes the changed entries in shards, with their index; returns the dtype."""
    shards = _shards(entries, dtype)
    file_of: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        several = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        file = several if len(shards) > 1 else "model.safetensors"
        tensors: dict[str, torch.Tensor] = {}
        for entry in shard:
            check()
            tensors[entry.name] = _merged(entry, changes.get(entry.name), dtype)
            file_of[entry.name] = file
            on_tensor(len(file_of), len(entries))
        save_file(tensors, out / file, metadata={"format": "pt"})
    if len(shards) > 1:
        size = sum(entry.elements * dtype.itemsize for entry in entries)
        index = {"metadata": {"total_size": size}, "weight_map": file_of}
        (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
    return dtype


def merged_bytes(base: Path) -> int:
    """How large the weights will be that are written of this base; a head of scores adds nothing to speak of."""
    return sum(entry.elements for entry in _entries(base)) * written_dtype(base).itemsize


def _unknown(name: str) -> ModelError:
    return ModelError("export.unknown_part", name=name)


@dataclass(frozen=True)
class _Entry:
    """A tensor to write; ``held``: its name in the file, where that is another. Without a file it is a new one."""

    name: str
    file: Path | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    held: str = ""

    @property
    def elements(self) -> int:
        return torch.Size(self.shape).numel()


def _entries(base: Path) -> Iterator[_Entry]:
    """Every tensor of the model's files; other safetensors may lie beside them."""
    for file in weight_files(base):
        for name, entry in read_header(file).items():
            yield _Entry(name, file, tuple(entry["shape"]), _DTYPES.get(entry["dtype"], torch.int8))


def _merged(entry: _Entry, change: Change | None, dtype: torch.dtype) -> torch.Tensor:
    tensor = torch.empty(0)
    if entry.file is not None:
        with safe_open(entry.file, framework="pt") as opened:
            tensor = opened.get_tensor(entry.held or entry.name)
    if change is None:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor
    return change.apply(tensor).to(dtype)


def _shards(entries: list[_Entry], dtype: torch.dtype) -> list[list[_Entry]]:
    """The tensors by the file that they go to: at most ``SHARD_BYTES``, or one tensor."""
    shards: list[list[_Entry]] = [[]]
    held = 0
    for entry in entries:
        size = entry.elements * dtype.itemsize
        if shards[-1] and held + size > SHARD_BYTES:
            shards.append([])
            held = 0
        shards[-1].append(entry)
        held += size
    return shards
