"""Small files beside a run's log, each written whole; a run works without them.

    asked.json   the config as asked for, automatic values open, and the estimated seconds
    began.json   the settings that the run was made with, sealed, to tell changes of run.yaml by
    name         what a person called the run later

run.yaml has every automatic value resolved; "run again with changes" needs to know which values a person chose. Who
changes run.yaml by hand is obeyed before the first checkpoint and refused after it (``core.train.keep.depends``).
"""

import json
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from core.contract.config import RunConfig
from core.contract.errors import Fault, MachineError, RunError
from core.contract.methods import DEFAULT_METHOD
from core.machine.disk import cure, read_plain, read_sealed, write_sealed, write_whole
from core.runs.folder.flaws import MOST_BYTES
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import flat

NAME_LENGTH = 120
_VERSION = 2
"""Since 2 a method that nobody chose is "auto"; before, it was written as "sft"."""
_SHOWN, _LONGEST = 6, 60


class Asked(BaseModel):
    """The config with its automatic values open, and the estimated seconds (low, high) where they were known."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    config: RunConfig
    seconds: tuple[float, float] | None = None
    version: int = 1


def note_asked(folder: JobFolder, config: RunConfig, seconds: tuple[float, float] | None = None) -> None:
    """Writes ``asked.json``; a disk that refuses is ignored."""
    asked = Asked(config=config, seconds=seconds, version=_VERSION)
    with suppress(OSError):
        write_whole(folder.path / "asked.json", asked.model_dump_json())


def read_asked(folder: JobFolder) -> Asked | None:
    """What ``asked.json`` says, None where it cannot be read; an older version's default method becomes "auto"."""
    try:
        asked = Asked.model_validate_json(read_plain(folder.path / "asked.json", MOST_BYTES["asked.json"]))
    except (OSError, ValidationError):
        return None
    if asked.version < _VERSION and asked.config.method == DEFAULT_METHOD:
        return asked.model_copy(update={"config": asked.config.model_copy(update={"method": "auto"})})
    return asked


def note_began(folder: JobFolder, config: RunConfig) -> None:
    """Writes ``began.json``; a disk that refuses is ignored."""
    with suppress(OSError):
        write_sealed(folder.path / "began.json", {"settings": _settings(config)})


def changed_since(folder: JobFolder, config: RunConfig) -> str:
    """The settings that differ from those the run was made with, in words; empty where none does, or where
    ``began.json`` is missing or damaged."""
    try:
        then: dict[str, Any] = read_sealed(folder.path / "began.json", MOST_BYTES["began.json"])["settings"]
    except (OSError, ValueError, KeyError):
        return ""
    now = _settings(config)
    others = [
        f"{key} {_short(now[key])} in place of {_short(then[key])}"
        for key in now
        if key in then and then[key] != now[key]
    ]
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return ", ".join(others[:_SHOWN]) + more


def _settings(config: RunConfig) -> dict[str, Any]:
    """Every setting by its dotted key, as JSON gives it back."""
    settings: dict[str, Any] = json.loads(json.dumps(flat(config)))
    return settings


def _short(value: object) -> str:
    said = json.dumps(value, ensure_ascii=False)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"


def given_name(folder: JobFolder) -> str | None:
    """The name that was given later; None where none was, "" for the original name."""
    try:
        return read_plain(folder.given_name, MOST_BYTES["name"]).decode()[:NAME_LENGTH]
    except (OSError, UnicodeDecodeError):
        return None


def named_config(folder: JobFolder) -> RunConfig | None:
    """The run's config under the name that was given later; None where run.yaml cannot be read."""
    try:
        config = folder.config()
    except Fault:
        return None
    name = given_name(folder)
    return config if name is None else config.model_copy(update={"name": name})


def rename(folder: JobFolder, name: str) -> str:
    """Gives a run another name, on one line; an empty one restores the original.

    Raises:
        RunError: the name is too long.
        MachineError: the disk does not take it.
    """
    name = " ".join(name.split())
    if len(name) > NAME_LENGTH:
        raise RunError("run.name", most=NAME_LENGTH, count=len(name))
    try:
        write_whole(folder.given_name, name)
    except OSError as error:
        raise MachineError(
            "disk.write/file", name=folder.given_name, reason=error.strerror, cure=cure(error, "then try again")
        ) from error
    return name
