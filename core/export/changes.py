"""What a run changed of its base model: an adapter's pairs of matrices and trained tensors, as they lie in its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path

import torch
from safetensors import safe_open

from core.contract.errors import ModelError
from core.export.sources import MOST_ELEMENTS, Held, LowRank, Rows, held_in
from core.model.pissa import CORRECTED

Shapes = Mapping[str, tuple[int, ...]]
_PREFIX = "base_model.model."
_SUFFIXES = {
    ".lora_A.weight": "a",
    ".lora_B.weight": "b",
    ".lora_magnitude_vector": "magnitude",
    ".lora_magnitude_vector.weight": "magnitude",
}


@dataclass(frozen=True)
class Pair:
    """LoRA's or DoRA's change of a matrix; ``transposed``: the base holds it as ``[in, out]`` (GPT-2's Conv1D).
    ``rank``: only so many of A's rows and B's columns count."""

    scale: float
    rank: int
    transposed: bool
    a: Held
    b: Held
    magnitude: Held | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the base tensor must have."""
        sizes = (self.b.shape[0], self.a.shape[1])
        return sizes[::-1] if self.transposed else sizes

    @property
    def dtype(self) -> torch.dtype:
        """A's and B's."""
        return self.a.dtype

    def over(self, base: Rows | None) -> LowRank:
        """The changed tensor; A, B and magnitudes are read."""
        assert base is not None
        a, b = self.a.whole().float()[: self.rank], self.b.whole().float()[:, : self.rank]
        magnitude = self.magnitude.whole().float() if self.magnitude else None
        return LowRank(base, self.scale, self.transposed, a, b, magnitude)


@dataclass(frozen=True)
class Replaced:
    """A trained bias, embedding or head, in place of the base's."""

    held: Held

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the base tensor must have."""
        return self.held.shape

    @property
    def dtype(self) -> torch.dtype:
        """As it was trained."""
        return self.held.dtype

    def over(self, _base: Rows | None) -> Rows:
        """The trained tensor."""
        return self.held


Change = Pair | Replaced


def read_changes(adapter: Path, corrected: bool = False) -> dict[str, Change]:
    """The adapter's changes by the name of the base tensor.

    Args:
        corrected: with the correction of quantised weights that it began at (LoftQ), where it did: its second half
            takes that off again (``core.model.loftq``).

    Raises:
        ModelError: it changes something else than projections, their biases, and modules in ``modules_to_save``.
    """
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    for part in ("rank_pattern", "alpha_pattern", "layer_replication", "trainable_token_indices"):
        if config.get(part):
            raise _unknown(part)
    if config.get("peft_type", "LORA") != "LORA":
        raise _unknown(str(config["peft_type"]))
    weights = adapter / "adapter_model.safetensors"
    rank, alpha = int(config["r"]), float(config["lora_alpha"])
    scale = alpha / rank**0.5 if config.get("use_rslora") else alpha / rank
    with safe_open(weights, "pt") as file:
        used = rank // 2 if corrected and CORRECTED in (file.metadata() or {}) else rank
    changes: dict[str, Change] = {}
    pairs: dict[str, dict[str, Held]] = {}
    whole = tuple(f".{module}.weight" for module in config.get("modules_to_save") or ())
    tied = bool(config.get("ensure_weight_tying"))
    for key, held in held_in(weights).items():
        name = key.removeprefix(_PREFIX)
        if suffix := next((one for one in _SUFFIXES if name.endswith(one)), ""):
            pairs.setdefault(name.removesuffix(suffix) + ".weight", {})[_SUFFIXES[suffix]] = held
        elif name.endswith(".bias") and ".lora_" not in name:
            changes[name.replace(".base_layer.bias", ".bias")] = Replaced(held)
        elif ".lora_" not in name and (f".{name}".endswith(whole) or (tied and name.endswith(".weight"))):
            changes[name] = Replaced(held)
        else:
            raise _unknown(name)
    for name, tensors in pairs.items():
        if not {"a", "b"} <= tensors.keys():
            raise _unknown(name)
        changes[name] = Pair(scale, used, bool(config.get("fan_in_fan_out")), **tensors)
    return changes


def placed(changes: Mapping[str, Change], shapes: Shapes) -> dict[str, Change]:
    """The changes by the names that the tensors to change have.

    Raises:
        ModelError: there is no such tensor, or one of another shape.
    """
    found: dict[str, Change] = {}
    for name, change in changes.items():
        held = name if name in shapes else name.partition(".")[2]  # some bases lack the model's prefix (transformer.)
        if held not in shapes and isinstance(change, Replaced):  # of tied matrices the base has the first alone
            others = (one for one in changes.values() if isinstance(one, Replaced) and one is not change)
            if any(_same(change.held, one.held) for one in others):
                continue
        if shapes.get(held) != change.shape:
            actual = f"{shapes[held]}" if held in shapes else "no such tensor"
            raise ModelError("export.mismatch", name=name, shape=change.shape, found=actual)
        found[held] = change
    return found


def _same(one: Held, other: Held) -> bool:
    count = prod(one.shape)
    steps = range(0, count, MOST_ELEMENTS)
    ends = chain(steps[1:], [count])
    return one.shape == other.shape and all(
        one.flat(begin, end).equal(other.flat(begin, end)) for begin, end in zip(steps, ends, strict=True)
    )


def _unknown(name: str) -> ModelError:
    return ModelError("export.unknown_part", name=name)
