"""A knob: one setting, declared once for window, command line and YAML.

It is a pydantic field: title is its label, description its hint, unit and group are in ``json_schema_extra``.
``knobs(model)`` reads them back, so no other place repeats a label, a range or a default.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from core.contract.glossary.words import GLOSSARY

Kind = Literal["integer", "number", "switch", "choice", "text"]


class Part(BaseModel):
    """A part of a config: frozen, and without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Knob:
    """One setting; ``key`` is its dotted path in RunConfig (``train.learning_rate``)."""

    key: str
    label: str
    hint: str
    unit: str
    group: str
    kind: Kind
    default: Any
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    above: bool = False
    """Whether the minimum itself is excluded."""
    maximum: float | None = None
    simple: bool = False
    term: str = ""
    """The glossary's word that explains it."""


def knob(
    default: Any,
    label: str,
    hint: str = "",
    *,
    unit: str = "",
    group: str,
    simple: bool = False,
    term: str = "",
    see: str = "",
    **bounds: Any,
) -> Any:
    """Declares a setting. ``bounds`` are pydantic's own (``ge``, ``gt``, ``le``).

    ``term`` names the glossary's word whose first sentence is the help, followed by ``hint``. With ``see`` the help is
    ``hint`` alone, and leads to the word.
    """
    extra: dict[str, Any] = {"unit": unit, "group": group, "simple": simple, "term": term or see}
    help_ = f"{GLOSSARY[term].brief} {hint}".strip() if term else hint
    return Field(default, title=label, description=help_, json_schema_extra=extra, **bounds)


def knobs(model: type[BaseModel], prefix: str = "") -> dict[str, Knob]:
    """Every knob of a config by dotted key, in the order of declaration."""
    by_key: dict[str, Knob] = {}
    for name, info in model.model_fields.items():
        key = f"{prefix}{name}"
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            by_key.update(knobs(info.annotation, f"{key}."))
        elif isinstance(info.json_schema_extra, dict):
            by_key[key] = _read(key, info, dict(info.json_schema_extra))
    return by_key


def _read(key: str, info: FieldInfo, extra: dict[str, Any]) -> Knob:
    kinds: dict[Any, Kind] = {bool: "switch", int: "integer", float: "number", str: "text"}
    bounds = {name: getattr(part, name) for part in info.metadata for name in ("ge", "gt", "le") if hasattr(part, name)}
    return Knob(
        key=key,
        label=info.title or key,
        hint=info.description or "",
        kind=kinds.get(info.annotation, "choice"),
        default=info.default,
        choices=get_args(info.annotation),
        minimum=bounds.get("ge", bounds.get("gt")),
        above="gt" in bounds,
        maximum=bounds.get("le"),
        **extra,
    )
