"""A recipe of another program as a config of ours, and what became of each of its keys."""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from core.contract.config import RunConfig
from core.contract.errors import ConfigError
from core.estimate import total_steps
from core.machine.disk import read_plain
from core.machine.yaml_text import MOST_YAML_BYTES, NOT_YAML, load_yaml, shown
from core.runs.folder.run_yaml import flat
from core.runs.recipes import PROGRAMS
from core.runs.recipes.axolotl import AXOLOTL
from core.runs.recipes.keys import SHARE, Key, NoPlaceError, Recipe, Values, rows_in
from core.runs.recipes.kohya import KOHYA
from core.runs.recipes.llama_factory import LLAMA_FACTORY
from core.runs.recipes.unsloth_studio import UNSLOTH_STUDIO

RECIPES: dict[str, Recipe] = dict(zip(PROGRAMS, (LLAMA_FACTORY, AXOLOTL, UNSLOTH_STUDIO, KOHYA), strict=True))
LEAST_MARKS = 2
_SECRET = re.compile(r"(^|_)(token|api_?key|password|secret)$", re.I)
_HIDDEN = "(not shown)"


@dataclass(frozen=True)
class Mapped:
    """Keys of the file with their values, and what they became here. Without keys: what the program does where its
    files are silent."""

    theirs: tuple[tuple[str, Any], ...]
    ours: str
    value: Any


@dataclass(frozen=True)
class Left:
    """A key that became nothing, and why; ``decides``: whether something else is trained without it."""

    key: str
    value: Any
    why: str
    decides: bool


@dataclass(frozen=True)
class Imported:
    """What a recipe became. ``values`` are those of a run.yaml, all others keep their defaults; ``problems`` are faults
    between them, such as data that is still to be chosen."""

    recipe: Recipe
    mapped: tuple[Mapped, ...]
    left: tuple[Left, ...]
    values: Values
    config: RunConfig

    @property
    def problems(self) -> list[str]:
        """Faults between fields."""
        return self.config.problems()

    def run_yaml(self) -> str:
        """The config as a file for ``train``: what the recipe says; the rest keeps its defaults."""
        head = f"# {self.recipe.title}'s recipe\n"
        return head + yaml.safe_dump(nested(self.values), sort_keys=False, allow_unicode=True)


def read_recipe(path: Path, kind: str = "") -> Imported:
    """Reads a recipe; ``kind`` names one of RECIPES, empty: by its keys.

    Raises:
        ConfigError: the file cannot be read, or is no recipe that is known.
    """
    raw = _hidden(_fields(path))
    name = kind or _recognised(raw)
    if not name:
        raise ConfigError("recipe.unknown", path=path, known=", ".join(row.title for row in RECIPES.values()))
    recipe = RECIPES[name]
    fields = dict(_flat(raw, recipe))
    values, mapped, left = _mapped(recipe, fields, path.absolute().parent)
    config, refused = _sound(values)
    said = {one.ours: one.theirs for one in mapped}
    for ours, why in refused.items():
        keys = said.get(ours) or ((ours, values[ours]),)
        left += [Left(key, value, why, decides=True) for key, value in keys]
        values.pop(ours)
    order = {key: number for number, key in enumerate(flat(RunConfig()))}
    kept = {key: values[key] for key in sorted(values, key=lambda key: order.get(key, 0))}
    return Imported(recipe, tuple(one for one in mapped if one.ours not in refused), tuple(left), kept, config)


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as a tree."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *parts, last = key.split(".")
        part = tree
        for name in parts:
            part = part.setdefault(name, {})
        part[last] = value
    return tree


def _fields(path: Path) -> dict[str, Any]:
    """The tree of a YAML, JSON or TOML file."""
    try:
        text = read_plain(path, MOST_YAML_BYTES).decode()
        raw = tomllib.loads(text) if path.suffix.lower() == ".toml" else load_yaml(text)
    except OSError as error:
        raise ConfigError("config.unreadable", path=path, reason=error.strerror or error) from error
    except (*NOT_YAML, tomllib.TOMLDecodeError) as error:
        why = " ".join(str(error).split())[:400]
        raise ConfigError("config.yaml/syntax", path=path, reason=why) from error
    if not isinstance(raw, dict):
        raise ConfigError("config.yaml/no_fields", path=path, kind=type(raw).__name__)
    return raw


def _hidden(tree: Any) -> Any:
    """The tree without what must not be shown: tokens and keys of other services, which some keep in a recipe."""
    if isinstance(tree, dict):
        return {
            key: _HIDDEN if one and isinstance(one, str) and _SECRET.search(str(key)) else _hidden(one)
            for key, one in tree.items()
        }
    return [_hidden(one) for one in tree] if isinstance(tree, list) else tree


def _recognised(raw: Mapping[str, Any]) -> str:
    """The program whose own keys stand there most; empty where there are too few."""
    found = {name: len(row.marks & {key for key, _ in _flat(raw, row)}) for name, row in RECIPES.items()}
    best = max(found, key=lambda name: found[name])
    return best if found[best] >= LEAST_MARKS else ""


def _flat(raw: Mapping[str, Any], recipe: Recipe, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Its fields by key; sections that the table does not name as a whole are opened."""
    for name, value in raw.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key not in recipe.keys and any(
            recipe.flat or known.startswith(f"{key}.") for known in recipe.keys
        ):  # fmt: skip
            yield from _flat(value, recipe, "" if recipe.flat else f"{key}.")
        else:
            yield key, value


def _mapped(recipe: Recipe, fields: Mapping[str, Any], folder: Path) -> tuple[Values, list[Mapped], list[Left]]:
    found = recipe.together({key: value for key, value in fields.items() if value is not None}, folder)
    values: Values = {key: value for key, (value, _) in found.values.items()}
    mapped = [
        Mapped(tuple((key, fields[key]) for key in keys if key in fields), ours, value)
        for ours, (value, keys) in found.values.items()
    ]
    left: list[Left] = []
    taken = {key for _, keys in found.values.values() for key in keys}
    for key, value in fields.items():
        row = recipe.keys.get(key)
        if key in found.left:
            left.append(Left(key, value, found.left[key], decides=True))
        elif value is None or value == "" or (key in taken and not (row and row.ours)):
            continue
        elif row is None:
            left.append(Left(key, value, "no counterpart is known", bool(value)))
        elif not row.ours and row.why:
            left.append(Left(key, value, row.why, row.decides and bool(value)))
        else:
            _take(key, row, value, values, mapped, left)
    usual = {ours: value for ours, value in recipe.usual.items() if ours not in values}
    if SHARE in values:
        _warm_up(values, usual, mapped, left)
    for ours, value in usual.items():
        if ours not in values:
            values[ours] = value
            mapped.append(Mapped((), ours, value))
    if name := values.get("model.name"):
        values["model.source"], values["model.name"] = _source(name, folder)
    return values, mapped, left


def _take(key: str, row: Key, value: Any, values: Values, mapped: list[Mapped], left: list[Left]) -> None:
    """Adds what a key becomes; nothing where its value means nothing."""
    try:
        read = row.read(value)
    except NoPlaceError as error:
        left.append(Left(key, value, str(error), decides=True))
        return
    for ours, one in (read if isinstance(read, dict) else {row.ours: read}).items():
        if one is not None:
            values[ours] = one
            mapped.append(Mapped(((key, value),), ours, one))


def _warm_up(values: Values, usual: Values, mapped: list[Mapped], left: list[Left]) -> None:
    """Turns the share of the steps into steps, where these can be counted."""
    share, at = float(values.pop(SHARE)), next(number for number, one in enumerate(mapped) if one.ours == SHARE)
    (key, value), *_ = mapped.pop(at).theirs
    config = _sound(usual | values)[0]
    path = Path(config.data.path)
    rows = rows_in(path) if config.data.path and path.is_file() else None
    if rows is not None:
        rows -= min(round(rows * config.data.eval_fraction), config.data.eval_rows_max)
    steps = total_steps(config, rows) if rows else config.train.max_steps
    if share and not steps:
        why = f"warm-up is counted in steps: set train.warmup_steps to {share:g} of them once the data is chosen"
        left.append(Left(key, value, why, decides=True))
        return
    values["train.warmup_steps"] = math.ceil(share * steps)
    mapped.insert(at, Mapped(((key, value),), "train.warmup_steps", values["train.warmup_steps"]))


def _source(name: str, folder: Path) -> tuple[str, str]:
    """Where a model is: a folder, from the recipe's own on, or the hub."""
    try:
        place = (folder / Path(name).expanduser()).resolve()
        return ("folder", str(place)) if place.is_dir() or name.startswith(("/", "~", ".")) else ("hub", name)
    except (OSError, ValueError, RuntimeError):  # what no folder can be called, a home that nobody has
        return "hub", name


def _sound(values: Values) -> tuple[RunConfig, dict[str, str]]:
    """The config of those values that can be; why others cannot."""
    kept, refused = dict(values), dict[str, str]()
    while True:
        try:
            return RunConfig.model_validate(nested(kept)), refused
        except ValidationError as error:
            for fault in error.errors():
                key = next((key for key in kept if ".".join(map(str, fault["loc"])).startswith(key)), "")
                if not key:
                    raise
                refused[key] = f"{fault['msg'].lower()}, found {shown(kept[key])}"
            kept = {key: value for key, value in kept.items() if key not in refused}
