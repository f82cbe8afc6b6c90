"""run.yaml: a RunConfig as a file for people, read with every fault named at once."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from core.contract.config import RunConfig
from core.contract.errors import ConfigError

__all__ = ["dump_config", "read_config"]


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
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError("config.yaml", f"{path} is not YAML: {_one_line(error)}.", "Mend that line.") from error
    if not isinstance(raw, dict):
        raise ConfigError(
            "config.yaml", f"Expected fields in {path}, found {type(raw).__name__}.", "See README, run.yaml."
        )
    try:
        config = RunConfig.model_validate(raw)
    except ValidationError as error:
        raise _faults(path, [_say(dict(fault)) for fault in error.errors()]) from error
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


def _faults(path: Path, problems: list[str]) -> ConfigError:
    count = f"{len(problems)} fault" + ("s" if len(problems) > 1 else "")
    return ConfigError("config.faults", f"{path.name} has {count}:", "", problems)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _say(fault: dict[str, Any]) -> str:
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(fault["loc"][-1]), _siblings(fault["loc"]), n=1)
        return f"{key}: no such field." + (f" Did you mean {near[0]!r}?" if near else "")
    return f"{key}: {fault['msg'].lower()}, found {fault['input']!r}."


def _siblings(location: tuple[Any, ...]) -> list[str]:
    model: type[BaseModel] = RunConfig
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)
