"""How far a model's positions reach, and what stretches them: one place for window, command line, estimate, worker and
export. Nothing is loaded.

The factor that is proposed is the smallest power of two with which the longest row fits: a larger one would blur
positions that the model knows.
"""

import copy
import math
from collections.abc import Mapping
from typing import Any

from core.contract.catalogue import ModelSpec, Positions
from core.contract.config import ModelChoice
from core.contract.config.positions import (
    BY_ROPE_TYPE,
    MOST_FACTOR,
    PROPOSED_SCALING,
    ROPE_SCALINGS,
    RopeScaling,
    RopeScalingName,
)
from core.models.families import FAMILIES

_KEYS = ("rope_theta", "rope_scaling", "rope_parameters")
"""Of config.json, before transformers 5 and since."""
_ORIGINAL = "original_max_position_embeddings"
_LIMITS = ("max_position_embeddings", "n_positions")
_WHY: dict[Positions, str] = {
    "scaled": "its maker has scaled its positions already",
    "learned": "its positions are learned ones, and there are no more of them",
    "other": "it has no rotary positions",
}


def positions_in(config: Mapping[str, Any]) -> Positions:
    """What a config.json says of a language model's positions."""
    kind = str(config.get("model_type"))
    if kind in FAMILIES or any(config.get(key) for key in _KEYS):
        parameters = _parameters(config)
        named = parameters.get("rope_type") or parameters.get("type")
        return "rotary" if named in (None, "default") else "scaled"
    limited = any(config.get(key) for key in _LIMITS) and not config.get("alibi")
    return "learned" if limited else "other"


def unstretchable(spec: ModelSpec) -> str:
    """Why a model's positions cannot be stretched; empty where they can."""
    if spec.encoder:
        return "an encoder reads no further than it was made for"
    if spec.positions in _WHY:
        return _WHY[spec.positions]
    family = FAMILIES.get(spec.model_type)
    if family is None:
        return f"models of the type {spec.model_type} are not known well enough"
    return "" if family.stretches else "transformers has no such scaling for its type"


def scaling_for(choice: ModelChoice, spec: ModelSpec, longest: int) -> tuple[RopeScalingName, float]:
    """Which scaling a run with rows of up to so many tokens takes, and its factor: as chosen, else as proposed."""
    beyond = longest / spec.shape.max_position_embeddings
    name = choice.rope_scaling
    if name == "auto":
        name = PROPOSED_SCALING if beyond > 1 and not unstretchable(spec) else "none"
    if not ROPE_SCALINGS[name].rope_type:
        return name, 1.0
    return name, choice.rope_factor or min(MOST_FACTOR, 2.0 ** max(1, math.ceil(math.log2(max(beyond, 1)))))


def reach(choice: ModelChoice, spec: ModelSpec, longest: int) -> int:
    """The longest row that is read whole."""
    return int(spec.shape.max_position_embeddings * scaling_for(choice, spec, longest)[1])


def limited(spec: ModelSpec) -> bool:
    """Whether rows end where positions do."""
    return spec.positions != "other"


def position_fields(config: Any, choice: ModelChoice) -> dict[str, Any]:
    """The fields of transformers' ``config`` that a choice changes; none where it changes none."""
    row = chosen_row(choice)
    own = dict(getattr(config, "rope_parameters", None) or {})
    theta = choice.rope_theta or own.get("rope_theta", 10_000.0)
    if not row.rope_type:
        return {"rope_parameters": own | {"rope_theta": theta}} if choice.rope_theta else {}
    most, factor = int(config.max_position_embeddings), choice.rope_factor or 2.0
    share = {key: own[key] for key in ("partial_rotary_factor",) if key in own}
    original = {_ORIGINAL: most} if row.grown else {}
    scaled = {"rope_type": row.rope_type, "rope_theta": theta, "factor": factor, **row.parameters, **original, **share}
    return {"max_position_embeddings": int(most * factor) if row.grown else most, "rope_parameters": scaled}


def written_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """``position_fields`` for a config.json: also under the names that loaders knew before transformers 5."""
    if not fields:
        return {}
    scaling = dict(fields["rope_parameters"])
    theta = scaling.pop("rope_theta")
    if "max_position_embeddings" not in fields:
        return {**fields, "rope_theta": theta}
    original = scaling.get(_ORIGINAL, fields["max_position_embeddings"])
    return {**fields, "rope_theta": theta, "rope_scaling": scaling, _ORIGINAL: original}


def stretch(config: Any, choice: ModelChoice) -> Any:
    """transformers' config with the positions of a choice, itself where that changes none."""
    fields = position_fields(config, choice)
    if not fields:
        return config
    if chosen_row(choice).rope_type:
        fields[_ORIGINAL] = config.max_position_embeddings
    config = copy.deepcopy(config)
    for name, value in fields.items():
        setattr(config, name, value)
    return config


def reach_of(config: Mapping[str, Any]) -> int:
    """Tokens that a config reaches, whatever stands in it. Whose maker scaled it says so in ``max_position_embeddings``
    alone; one of ours also names what that was."""
    most, parameters = int(config["max_position_embeddings"]), _parameters(config)
    row, factor = BY_ROPE_TYPE.get(str(parameters.get("rope_type"))), parameters.get("factor")
    by_factor = row is not None and not row.grown and config.get(_ORIGINAL)
    return int(most * factor) if by_factor and isinstance(factor, (int, float)) and 1 <= factor <= 1024 else most


def _parameters(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = config.get("rope_parameters") or config.get("rope_scaling")
    return found if isinstance(found, Mapping) else {}


def chosen_row(choice: ModelChoice) -> RopeScaling:
    """The scaling that a model is loaded with; one that was never chosen is none."""
    return ROPE_SCALINGS["none" if choice.rope_scaling == "auto" else choice.rope_scaling]


def is_placed(choice: ModelChoice) -> bool:
    """Whether positions differ from the model's own."""
    return bool(chosen_row(choice).rope_type or choice.rope_theta)


def scaling_words(choice: ModelChoice) -> str:
    """A chosen scaling with its factor; empty for none."""
    row = chosen_row(choice)
    return f"{row.title} {choice.rope_factor:g}" if row.rope_type else ""
