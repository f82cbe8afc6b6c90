"""How a run is had again: the command line that repeats it, and the settings that such a line carries.

::

    python3 launcher.py train RUN.yaml --set train.learning_rate=0.0001

``RUN.yaml`` is what the run began with; ``--set`` brings what was corrected since, so that the line and
``effective_config`` say the same.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from core.contract.config import RunConfig
from core.contract.errors import ConfigError

__all__ = ["command_line", "flat", "with_settings"]


def command_line(run_yaml: Path, asked: RunConfig, effective: RunConfig, home: Path | None = None) -> str:
    """The line that repeats a run, quoted for a shell; ``home`` where the runs lie elsewhere than usual."""
    began = flat(asked)
    changed = [f"{key}={json.dumps(value)}" for key, value in flat(effective).items() if began[key] != value]
    words = ["python3", "launcher.py", "train", str(run_yaml)]
    words += [word for setting in changed for word in ("--set", setting)]
    return shlex.join([*words, *(("--home", str(home)) if home else ())])


def flat(config: RunConfig) -> dict[str, Any]:
    """Every setting by its dotted key, in the order of declaration."""
    return dict(_flat(config, ""))


def _flat(part: BaseModel, prefix: str) -> Iterator[tuple[str, Any]]:
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, BaseModel):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def with_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """The config with ``KEY=VALUE`` settings, values written as in run.yaml.

    Raises:
        ConfigError: a setting without ``=``, an unknown key or a value out of range; all of them are named.
    """
    values, faults = config.model_dump(), []
    for setting in settings:
        key, equals, text = setting.partition("=")
        part, _, name = key.rpartition(".")
        section = values.get(part) if part else values
        if not equals or not isinstance(section, dict) or name not in section or isinstance(section[name], dict):
            faults.append(
                f"{setting!r}: expected KEY=VALUE with a key of run.yaml, such as train.learning_rate=0.0001."
            )
            continue
        try:
            section[name] = yaml.safe_load(text)
        except yaml.YAMLError:
            section[name] = text
    try:
        changed = RunConfig.model_validate(values)
    except ValidationError as error:
        found = error.errors()
        faults += [f"{'.'.join(map(str, one['loc']))}: {one['msg'].lower()}, found {one['input']!r}." for one in found]
        changed = config
    if faults := [*faults, *changed.problems()]:
        raise ConfigError("config.faults", f"--set has {len(faults)} fault(s):", "", faults)
    return changed
