"""run.yaml: a RunConfig as a file for people, read with every fault named at once."""

from __future__ import annotations

import copy
import difflib
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from core.contract.config import RunConfig
from core.contract.errors import ConfigError

__all__ = ["dump_config", "read_config"]


_NOT_YAML = (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError)
"""A tagged scalar (a date such as 2026-13-45, ``!!bool perhaps``) has PyYAML's constructors raise what Python does."""


def dump_config(config: RunConfig) -> str:
    """The whole config as YAML, in the order of declaration."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def read_config(path: Path) -> RunConfig:
    """Reads a run.yaml.

    Raises:
        ConfigError: the file is missing, is no YAML mapping, or has faults; all of them are named at once.
    """
    try:
        raw = _load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("config.unreadable", f"Expected a run file at {path}, found {error.strerror}.") from error
    except _NOT_YAML as error:
        raise ConfigError("config.yaml", f"{path} is not YAML: {_one_line(error)}.", "Mend that line.") from error
    if not isinstance(raw, dict):
        raise ConfigError(
            "config.yaml", f"Expected fields in {path}, found {type(raw).__name__}.", "See README, run.yaml."
        )
    try:
        config = RunConfig.model_validate(raw)
    except ValidationError as error:
        faults = [dict(fault) for fault in error.errors()]
        raise _faults(path, [*map(_say, faults), *_between(raw, faults)]) from error
    if problems := config.problems():
        raise _faults(path, problems)
    return config


def _load(text: str) -> Any:
    """As ``yaml.safe_load``, ten times faster where libyaml is there: a listing reads hundreds of these."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _between(raw: dict[str, Any], faults: list[dict[str, Any]]) -> list[str]:
    """The faults between fields of what is left without the faulty ones; nothing is said of a faulty field again."""
    rest, blamed = copy.deepcopy(raw), set()
    for fault in faults:
        _drop(rest, fault["loc"])
        blamed.add(_key(fault))
        if near := _near(fault):
            blamed.add(".".join([*map(str, fault["loc"][:-1]), near]))
    if "method" in blamed:
        blamed.add("data")  # what data must be depends on the method
    try:
        problems = RunConfig.model_validate(rest).problems()
    except ValidationError:
        return []
    keys = {problem: problem.partition(":")[0] for problem in problems}
    return [problem for problem in problems if not {keys[problem], keys[problem].split(".")[0]} & blamed]


def _drop(raw: Any, location: tuple[Any, ...]) -> None:
    """Takes the field away whose value is faulty: of a list or a free mapping the whole, as one field."""
    depth = min(2, len(location))
    for part in location[: depth - 1]:
        raw = raw.get(part) if isinstance(raw, dict) else None
    if isinstance(raw, dict):
        raw.pop(location[depth - 1], None)


def _faults(path: Path, problems: list[str]) -> ConfigError:
    count = f"{len(problems)} fault" + ("s" if len(problems) > 1 else "")
    return ConfigError("config.faults", f"{path.name} has {count}:", "", problems)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _say(fault: dict[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        near = _near(fault)
        return f"{_key(fault)}: no such field." + (f" Did you mean {near!r}?" if near else "")
    return f"{_key(fault)}: {fault['msg'].lower()}, found {fault['input']!r}."


def _key(fault: dict[str, Any]) -> str:
    return ".".join(str(part) for part in fault["loc"])


def _near(fault: dict[str, Any]) -> str:
    if fault["type"] != "extra_forbidden":
        return ""
    near = difflib.get_close_matches(str(fault["loc"][-1]), _siblings(fault["loc"]), n=1)
    return near[0] if near else ""


def _siblings(location: tuple[Any, ...]) -> list[str]:
    model: type[BaseModel] = RunConfig
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)
