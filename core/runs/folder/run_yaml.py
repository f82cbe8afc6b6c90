"""run.yaml: a RunConfig as a file for people; reading names every fault at once.

A person's file is read strictly. One in a run's folder may be another version's: unknown fields are left out and named,
and faults between fields are not looked for again.
"""

import copy
import difflib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from core.contract.config import RunConfig
from core.contract.errors import ConfigError
from core.machine.disk import read_plain, stamp_of
from core.machine.locations import Locations
from core.machine.yaml_text import MOST_YAML_BYTES, NOT_YAML, load_yaml, shown
from core.models.suited import faults_between

_FAULTS_NAMED = 20
_SETTING = "expected KEY=VALUE with a key of run.yaml, such as train.learning_rate=0.0001."


def dump_config(config: RunConfig) -> str:
    """The whole config as YAML, in the order of declaration."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def read_stored(path: Path) -> tuple[RunConfig, list[str]]:
    """Reads the run.yaml of a run's folder; the config, and the fields that this version does not know. A page that
    looks at a run asks for it every second or so: what was read is kept while the file stays the same.

    Raises:
        ConfigError: the file is missing or no plain file, is no YAML mapping, or has a value that cannot be used.
    """
    return _stored(path, stamp_of(path))


@lru_cache(maxsize=64)
def _stored(path: Path, _: object) -> tuple[RunConfig, list[str]]:
    raw = read_fields(path, lambda file: read_plain(file, MOST_YAML_BYTES).decode())
    try:
        return RunConfig.model_validate(raw), []
    except ValidationError as error:
        unknown = [fault["loc"] for fault in error.errors() if fault["type"] == "extra_forbidden"]
    rest = copy.deepcopy(raw)
    for location in unknown:
        _drop(rest, location)
    return _validated(path, rest), [".".join(map(str, location))[:80] for location in unknown]


def expect_sound(config: RunConfig) -> None:
    """Raises ConfigError where the config has faults between its fields."""
    if problems := config.problems():
        raise ConfigError("config.faults/before_start", problems=problems)


def _text(path: Path) -> str:
    """The text of a file, which may be a link or a pipe; too long a one is refused when it is loaded."""
    with path.open("rb") as file:
        return file.read(MOST_YAML_BYTES + 1).decode()


def read_fields(path: Path, read: Callable[[Path], str] = _text) -> dict[str, Any]:
    """The fields of a run.yaml, unchecked.

    Raises:
        ConfigError: the file is missing, or is no YAML mapping.
    """
    try:
        raw = load_yaml(read(path))
    except OSError as error:
        raise ConfigError("config.unreadable", path=path, reason=error.strerror) from error
    except NOT_YAML as error:
        why = " ".join(str(error).split())[:400]
        raise ConfigError("config.yaml/syntax", path=path, reason=why) from error
    if not isinstance(raw, dict):
        raise ConfigError("config.yaml/no_fields", path=path, kind=type(raw).__name__)
    return raw


def checked(raw: dict[str, Any], path: Path, besides: Sequence[str] = ()) -> RunConfig:
    """The config of these fields, which came from ``path``; ``besides`` are faults known already.

    Raises:
        ConfigError: all faults at once.
    """
    config = _validated(path, raw, besides)
    if problems := [*besides, *faults_between(config)]:
        raise _faults(path, problems)
    return config


def _validated(path: Path, raw: dict[str, Any], besides: Sequence[str] = ()) -> RunConfig:
    try:
        return RunConfig.model_validate(raw)
    except ValidationError as error:
        faults = [dict(fault) for fault in error.errors()]
        more = max(0, len(faults) - _FAULTS_NAMED)
        said = [*besides, *map(_say, faults[:_FAULTS_NAMED]), *_between(raw, faults)]
        raise _faults(path, [*said, f"and {more:,} more."] if more else said) from error


def _between(raw: dict[str, Any], faults: list[dict[str, Any]]) -> list[str]:
    """The faults between those fields that are sound by themselves."""
    rest, blamed = copy.deepcopy(raw), set()
    for fault in faults:
        _drop(rest, fault["loc"])
        blamed.add(_key(fault))
        if near := _near(fault):
            blamed.add(".".join([*map(str, fault["loc"][:-1]), near]))
    if "method" in blamed:
        blamed.add("data")  # what data must be depends on the method
    try:
        problems = faults_between(RunConfig.model_validate(rest))
    except ValidationError:
        return []
    keys = {problem: problem.partition(":")[0] for problem in problems}
    return [problem for problem in problems if not {keys[problem], keys[problem].split(".")[0]} & blamed]


def _drop(raw: Any, location: tuple[Any, ...]) -> None:
    """Removes the faulty field; a list or a free mapping is one field."""
    depth = min(2, len(location))
    for part in location[: depth - 1]:
        raw = raw.get(part) if isinstance(raw, dict) else None
    if isinstance(raw, dict):
        raw.pop(location[depth - 1], None)


def _faults(path: Path, problems: list[str]) -> ConfigError:
    count = f"{len(problems)} fault" + ("s" if len(problems) > 1 else "")
    return ConfigError("config.faults/file", name=path.name, count=count, problems=problems)


def _say(fault: dict[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        near = _near(fault)
        return f"{_key(fault)}: no such field." + (f" Did you mean {near!r}?" if near else "")
    return f"{_key(fault)}: {fault['msg'].lower()}, found {shown(fault['input'])}."


def _key(fault: dict[str, Any]) -> str:
    return ".".join(str(part) for part in fault["loc"])[:120]


def _near(fault: dict[str, Any]) -> str:
    """The field that a misspelt one is close to; empty where there is none."""
    if fault["type"] != "extra_forbidden":
        return ""
    model: Any = RunConfig
    for part in fault["loc"][:-1]:
        model = model.model_fields[str(part)].annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return ""
    return next(iter(difflib.get_close_matches(str(fault["loc"][-1])[:80], list(model.model_fields), n=1)), "")


# ── repeating a run from the command line ────────────────────────────────────────────────────────────────────────────


def command_line(locations: Locations, run_yaml: Path, asked: RunConfig, effective: RunConfig) -> str:
    """The line that repeats a run: ``train RUN.yaml --set KEY=VALUE …``, a setting for each value that was corrected
    since it began."""
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
    """A person's run.yaml, with ``KEY=VALUE`` settings put over it before it is checked.

    A relative ``data.path`` is relative to the file; in a setting, to the current folder.

    Raises:
        ConfigError: the file cannot be read, a setting has no ``=``, a key is unknown or a value out of range; all
            faults at once.
    """
    raw = read_fields(path)
    data = raw.get("data")
    given = data.get("path") if isinstance(data, dict) else None
    if isinstance(data, dict) and isinstance(given, str) and given and not given.startswith("~"):
        data["path"] = str(path.absolute().parent / given)  # an absolute path stays
    return checked(raw, path, [f"--set {setting!r}: {_SETTING}" for setting in settings if not _put(raw, setting)])


def wish_of(data: Path, settings: Sequence[str] = ()) -> tuple[RunConfig, frozenset[str]]:
    """What is wished of a data file with these settings, and the keys that they set. Raises as ``read_wish``."""
    raw: dict[str, Any] = {"data": {"path": str(data.expanduser().absolute())}}
    wrong = [f"--set {setting!r}: {_SETTING}" for setting in settings if not _put(raw, setting)]
    return checked(raw, data, wrong), frozenset(setting.partition("=")[0] for setting in settings)


def _put(raw: dict[str, Any], setting: str) -> bool:
    """Puts one setting among a file's fields; False where it is no ``KEY=VALUE``."""
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
