"""How a run is had again: the command line that repeats it, and the settings that such a line carries.

::

    python3 launcher.py train RUN.yaml --set train.learning_rate=0.0001

``RUN.yaml`` is what the run began with; ``--set`` brings what was corrected since, so that the line and
``effective_config`` say the same.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from core.contract.config import RunConfig
from core.machine.locations import Locations
from core.machine.yaml_text import NOT_YAML, load_yaml
from core.runs.folder.run_yaml import checked, read_fields

_SETTING = "expected KEY=VALUE with a key of run.yaml, such as train.learning_rate=0.0001."


def command_line(locations: Locations, run_yaml: Path, asked: RunConfig, effective: RunConfig) -> str:
    """The line that repeats a run."""
    began = flat(asked)
    changed = [f"{key}={json.dumps(value)}" for key, value in flat(effective).items() if began[key] != value]
    return locations.command("train", run_yaml, *(word for setting in changed for word in ("--set", setting)))


def flat(config: RunConfig) -> dict[str, Any]:
    """Every setting by its dotted key, in the order of declaration."""
    return dict(_flat(config))


def _flat(part: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name in type(part).model_fields:
        value = getattr(part, name)
        yield from _flat(value, f"{prefix}{name}.") if isinstance(value, BaseModel) else [(f"{prefix}{name}", value)]


def read_wish(path: Path, settings: Sequence[str] = ()) -> RunConfig:
    """A run.yaml that a person hands over, with ``KEY=VALUE`` settings put over it before anything is checked.

    A relative ``data.path`` lies beside the file; one that a setting brings lies in the current folder.

    Raises:
        ConfigError: the file cannot be read, a setting without ``=``, an unknown key or a value out of range; all of
            them are named at once.
    """
    raw = read_fields(path)
    data = raw.get("data")
    given = data.get("path") if isinstance(data, dict) else None
    if isinstance(data, dict) and isinstance(given, str) and given and not given.startswith("~"):
        data["path"] = str(path.absolute().parent / given)  # an absolute path stays
    return checked(raw, path, [f"--set {setting!r}: {_SETTING}" for setting in settings if not _put(raw, setting)])


def _put(raw: dict[str, Any], setting: str) -> bool:
    """Puts one setting among a file's fields; False for one that is none. What it means is checked with the file."""
    key, equals, text = setting.partition("=")
    *parts, name = key.split(".")
    if not equals or not all((*parts, name)):
        return False
    for part in parts:
        if raw.get(part) is None:
            raw[part] = {}
        raw = raw[part]
        if not isinstance(raw, dict):
            return False
    try:
        raw[name] = load_yaml(text)
    except NOT_YAML:
        raw[name] = text
    return True
