"""ROPE_SCALINGS: how rotary positions (RoPE) are stretched over rows longer than a model was made for, a row each.

Positional interpolation (Chen et al. 2023, arXiv:2306.15595), dynamic NTK (its origin: reddit.com/r/LocalLLaMA, bloc97
and emozilla), YaRN (Peng et al. 2023, arXiv:2309.00071), and Llama 3.1's own (arXiv:2407.21783).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

RopeScalingName = Literal["none", "linear", "dynamic", "yarn", "llama3"]
AskedRopeScaling = Literal["auto", "none", "linear", "dynamic", "yarn", "llama3"]
MOST_FACTOR = 32.0
"""As far as YaRN's paper goes."""


@dataclass(frozen=True)
class RopeScaling:
    """One way. ``parameters``: transformers' names and values beside ``rope_type``, ``rope_theta`` and ``factor``."""

    title: str
    rope_type: str = ""
    """transformers' name of it; empty: positions stay as they are."""
    parameters: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    grown: bool = False
    """Whether a config.json says the longer length in ``max_position_embeddings`` and the model's own beside the
    parameters. Of the others loaders multiply ``max_position_embeddings`` by the factor."""
    by_length: bool = False
    """Whether a row's own length decides."""
    flags: str = ""
    """What llama.cpp is told where its file does not say it; empty: it cannot be told."""


ROPE_SCALINGS: dict[RopeScalingName, RopeScaling] = {
    "none": RopeScaling("none"),
    "linear": RopeScaling("linear", "linear", flags="--rope-scaling linear --rope-scale {factor:g}"),
    "dynamic": RopeScaling("dynamic NTK", "dynamic", by_length=True),
    "yarn": RopeScaling(
        "YaRN", "yarn", grown=True,
        flags="--rope-scaling yarn --rope-scale {factor:g} --yarn-orig-ctx {original}",
    ),
    "llama3": RopeScaling(
        "Llama 3", "llama3", MappingProxyType({"low_freq_factor": 1.0, "high_freq_factor": 4.0}), grown=True
    ),
}  # fmt: skip
PROPOSED_SCALING: RopeScalingName = "yarn"
BY_ROPE_TYPE = {row.rope_type: row for row in ROPE_SCALINGS.values() if row.rope_type}
