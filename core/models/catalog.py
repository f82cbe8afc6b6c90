"""Base models and recipes that can be chosen, listed without loading anything.

Models: the built-in starter, the catalogue (``presets/models``), the Hugging Face cache, and a folder or hub id that a
person names. Recipes: ``presets/recipes``, with what was measured of them in ``presets/evidence.yaml``.
"""

import hashlib
import json
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from core.contract.catalogue import ModelSpec, Preset, PresetCard
from core.contract.config import DataChoice, LoraChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.errors import ConfigError, ModelError
from core.contract.methods import METHODS
from core.machine.locations import ASSETS, PRESETS
from core.machine.yaml_text import load_yaml
from core.models.checks.folder import check_folder, read_config_json, spec_of
from core.models.checks.weights import fingerprint, weights_bytes
from core.models.hub import cache as hub_cache
from core.models.hub import client as hub

STARTER = ASSETS / "starter"
EVIDENCE = PRESETS / "evidence.yaml"
"""Written by ``tests/gpu/preset_evidence.py --write``."""
RECIPE_ORDER = (
    "try-it", "chat-style", "follow-a-format", "preferences", "sort-texts",
    "thumbs", "domain-knowledge", "long-context",
)  # fmt: skip


def starter() -> ModelSpec:
    """The built-in model, from ``assets/starter``.

    Raises:
        ModelError: the folder is missing or damaged (an incomplete checkout).
    """
    spec = spec_of(read_config_json(STARTER), "starter", "starter", fingerprint(STARTER), STARTER)
    return spec.model_copy(
        update={
            "key": "starter",
            "title": "Starter (built in)",
            "licence": "Apache-2.0",
            "about": "A tiny model that comes with Luthier: it is not clever, and it trains in a minute anywhere.",
        }
    )


def catalogue() -> list[ModelSpec]:
    """The catalogue, smallest first; ``cached`` and ``folder`` say what is in the Hugging Face cache."""
    folders = [(spec, hub_cache.cached_folder(spec.name)) for spec in _catalogue_files()]
    return [
        spec.model_copy(update={"cached": True, "folder": str(folder), "revision": folder.name}) if folder else spec
        for spec, folder in folders
    ]


def cached_models() -> list[ModelSpec]:
    """Models in the Hugging Face cache that can be trained on here, by name."""
    entries = {spec.name: spec for spec in _catalogue_files()}
    models = []
    for name in hub_cache.cached_repositories():
        # A cache also holds embeddings, images and half downloads.
        with suppress(ModelError):
            if folder := hub_cache.cached_folder(name):
                check_folder(folder)
                models.append(_describe_cached(name, folder, entries.get(name)))
    return sorted(models, key=lambda spec: spec.name.lower())


def find_model(source: Literal["starter", "folder", "hub"], name: str, revision: str = "") -> ModelSpec:
    """One model by source and name. A hub id is looked up in the cache, then the catalogue, then on the hub.

    Raises:
        ModelError: a folder that cannot be used.
        HubError: the hub does not have it, does not give it, or does not answer.
    """
    if source == "starter":
        return starter()
    if source == "folder":
        folder = Path(name)
        with suppress(RuntimeError, ValueError):  # a home that nobody has: the check below says what is missing
            folder = folder.expanduser()
        if not folder.is_absolute():
            raise ModelError("model.relative", name=name)
        check_folder(folder)
        return spec_of(read_config_json(folder), "folder", str(folder), fingerprint(folder), folder)
    entry = next((spec for spec in _catalogue_files() if spec.name == name), None)
    if folder_of := hub_cache.cached_folder(name, revision):
        return _describe_cached(name, folder_of, entry)
    if entry is not None and not revision:
        return entry
    return hub.describe(name, revision)


def presets() -> list[Preset]:
    """All recipes, "Try it" first."""
    return list(_recipe_files())


def preset(key: str) -> Preset:
    """One recipe.

    Raises:
        ConfigError: there is none of this key.
    """
    recipes = {recipe.key: recipe for recipe in _recipe_files()}
    if key not in recipes:
        raise ConfigError("config.preset/unknown", known=", ".join(recipes), key=key)
    return recipes[key]


def apply_preset(config: RunConfig, preset: Preset, card: PresetCard | None = None) -> RunConfig:
    """The config under a recipe: method, adapter and training from their defaults, then its values. Model, data file,
    columns and name stay.

    Args:
        card: one of the recipe's proposals (``preset.on``), whose model and values are taken as well.

    Raises:
        ConfigError: a value of the preset is no field of the config or out of range.
    """
    defaults = DataChoice()
    raw = config.model_dump()
    raw |= {"preset": preset.key, "method": preset.method if METHODS[preset.method].layouts else "auto"}
    raw |= {"lora": LoraChoice().model_dump(), "train": TrainChoice().model_dump()}
    raw["data"] |= {"train_on": defaults.train_on, "template": defaults.template}
    if card is not None:
        names = {spec.key: spec.name for spec in _catalogue_files()}
        if card.model not in names:
            raise ConfigError("config.preset/no_model", key=card.model)
        raw["model"] = ModelChoice(source="hub", name=names[card.model]).model_dump()
    for key, value in {**preset.values, **(card.values if card else {})}.items():
        part, _, field = key.partition(".")
        if not field or part not in raw or not isinstance(raw[part], dict):
            raise ConfigError("config.preset/flat_key", preset=preset.key, key=key)
        raw[part][field] = value
    try:
        return RunConfig.model_validate(raw)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise ConfigError("config.preset/faults", preset=preset.key, problems=faults) from error


def _describe_cached(name: str, folder: Path, entry: ModelSpec | None) -> ModelSpec:
    """A cached hub model, with the catalogue's words where it has any."""
    spec = spec_of(read_config_json(folder), "hub", name, folder.name, folder)
    known = {} if entry is None else entry.model_dump(include={"key", "title", "licence", "gated", "about", "instruct"})
    return spec.model_copy(update={"download_bytes": weights_bytes(folder), **known})


@lru_cache(maxsize=1)
def _catalogue_files() -> tuple[ModelSpec, ...]:
    models = [
        ModelSpec.model_validate({"key": path.stem, "source": "hub", **_read_yaml(path)})
        for path in (PRESETS / "models").glob("*.yaml")
    ]
    return tuple(sorted(models, key=lambda spec: (spec.shape.parameters, spec.key)))


@lru_cache(maxsize=1)
def _recipe_files() -> tuple[Preset, ...]:
    measured = _read_yaml(EVIDENCE)["rows"] if EVIDENCE.is_file() else {}
    recipes = {path.stem: _recipe(path, measured) for path in (PRESETS / "recipes").glob("*.yaml")}
    order = {key: place for place, key in enumerate(RECIPE_ORDER)}
    return tuple(sorted(recipes.values(), key=lambda recipe: (order.get(recipe.key, len(order)), recipe.title)))


def _recipe(path: Path, measured: dict[str, Any]) -> Preset:
    raw = _read_yaml(path)
    cards = [{"gib": gib, **said} for gib, said in sorted(raw.pop("cards", {}).items())]
    recipe = Preset.model_validate({"key": path.stem, **raw, "cards": cards})
    proved = tuple(card.model_copy(update=measured.get(evidence_key(recipe, card), {})) for card in recipe.cards)
    return recipe.model_copy(update={"cards": proved})


def evidence_key(recipe: Preset, card: PresetCard) -> str:
    """Names a proposal by a hash of all that it says: a changed recipe has no evidence."""
    said = {"method": recipe.method, "model": card.model, "values": {**recipe.values, **card.values}}
    mark = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]
    return f"{recipe.key} {card.gib} GB {mark}"


def _read_yaml(path: Path) -> dict[str, Any]:
    raw = load_yaml(path.read_text(encoding="utf-8"))
    if not isinstance(raw, dict):
        raise ConfigError("config.preset/no_fields", name=path.name, kind=type(raw).__name__)
    return raw
