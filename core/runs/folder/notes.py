"""Small files beside a run's log, each written whole; a run loses nothing but their content without them.

    asked.json   the config as it was asked for, automatic values open, and the estimated seconds; written at its start
    began.json   the settings it was made with, sealed; run.yaml decides, and a change of it is told by comparing
    name         what a person called the run later

run.yaml holds every automatic value resolved. To run it again with changes one wants to know which values were a
person's, and the queue wants to know how long a run that has not begun is expected to take. run.yaml is a person's to
read, and so may be changed by hand: before anything was trained that is obeyed and said, once a checkpoint stands it is
refused (``core.train.keep.depends``); both name the settings. A name given later changes nothing but what the run is
called: no config, no checkpoint and no folder knows it.
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
"""Since 2 the method is "auto" where nobody chose one; before, what nobody had chosen was written as "sft"."""
_SHOWN, _LONGEST = 6, 60


class Asked(BaseModel):
    """The config with its automatic values open, and the estimated seconds (low, high) where they were known."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    config: RunConfig
    seconds: tuple[float, float] | None = None
    version: int = 1


def note_asked(folder: JobFolder, config: RunConfig, seconds: tuple[float, float] | None = None) -> None:
    """Writes it down. A disk that refuses loses the note, never the run."""
    asked = Asked(config=config, seconds=seconds, version=_VERSION)
    with suppress(OSError):
        write_whole(folder.path / "asked.json", asked.model_dump_json())


def read_asked(folder: JobFolder) -> Asked | None:
    """What was written down; None where nothing can be read. The method that nobody had chosen in an older version is
    "auto"."""
    try:
        asked = Asked.model_validate_json(read_plain(folder.path / "asked.json", MOST_BYTES["asked.json"]))
    except (OSError, ValidationError):
        return None
    if asked.version < _VERSION and asked.config.method == DEFAULT_METHOD:
        return asked.model_copy(update={"config": asked.config.model_copy(update={"method": "auto"})})
    return asked


def note_began(folder: JobFolder, config: RunConfig) -> None:
    """Writes down what the run is made with. A disk that refuses loses the note, never the run."""
    with suppress(OSError):
        write_sealed(folder.path / "began.json", {"settings": _settings(config)})


def changed_since(folder: JobFolder, config: RunConfig) -> str:
    """The settings that are others than those it was made with, a few words each; empty where none is, or where there
    is nothing to compare with (an older version's run before its next attempt, a damaged file)."""
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
    """The name that was given later; None where none was, "" where it was taken back."""
    try:
        return read_plain(folder.given_name, MOST_BYTES["name"]).decode()[:NAME_LENGTH]
    except (OSError, UnicodeDecodeError):
        return None


def named_config(folder: JobFolder) -> RunConfig | None:
    """The run's config under the name that was given later; None where its file cannot be read: a page still shows
    what the log tells."""
    try:
        config = folder.config()
    except Fault:
        return None
    name = given_name(folder)
    return config if name is None else config.model_copy(update={"name": name})


def rename(folder: JobFolder, name: str) -> str:
    """Gives a run another name, on one line; empty goes back to what it is called by itself.

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
