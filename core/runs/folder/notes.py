"""Small files beside a run's log, each written whole; a run works without them.

    asked.json   the config as asked for, automatic values open, and the estimated seconds
    began.json   the settings that the run was made with, sealed, to tell changes of run.yaml by
    name         what a person called the run later
    marks.json   what a person keeps of it: a note, tags, a colour, a pin
    opened.json  of a run that was opened from a file: which run it was where it was made

run.yaml has every automatic value resolved; "run again with changes" needs to know which values a person chose. Who
changes run.yaml by hand is obeyed before the first checkpoint and refused after it (``core.train.keep.depends``).
"""

import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.contract.config import RunConfig
from core.contract.errors import Fault, RunError
from core.contract.methods import DEFAULT_METHOD
from core.machine.disk import not_written, read_model, read_plain, read_sealed, write_sealed, write_whole
from core.runs.folder.flaws import MOST_BYTES
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import flat

NAME_LENGTH = 120
NOTE_LENGTH, TAG_LENGTH, MOST_TAGS, COLOURS = 4_000, 32, 12, 5
_VERSION = 2
"""Since 2 a method that nobody chose is "auto"; before, it was written as "sft"."""
_SHOWN, _LONGEST = 6, 60
_MARKING = threading.Lock()
"""One change of marks at a time: a page sends several at once, each of its own field."""


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
    asked = read_model(folder.path / "asked.json", MOST_BYTES["asked.json"], Asked)
    if asked and asked.version < _VERSION and asked.config.method == DEFAULT_METHOD:
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
    _keep(folder.given_name, name)
    return name


Tag = Annotated[str, Field(min_length=1, max_length=TAG_LENGTH)]


class Marks(BaseModel):
    """What a person keeps of a run beside its name; ``colour`` 0 is none."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    note: Annotated[str, Field(max_length=NOTE_LENGTH)] = ""
    tags: Annotated[tuple[Tag, ...], Field(max_length=MOST_TAGS)] = ()
    colour: Annotated[int, Field(ge=0, le=COLOURS)] = 0
    pinned: bool = False


def read_marks(folder: JobFolder) -> Marks:
    """What ``marks.json`` says; nothing where it is missing or cannot be read."""
    return read_model(folder.marks_json, MOST_BYTES["marks.json"], Marks) or Marks()


def mark(folder: JobFolder, changes: Mapping[str, Any]) -> Marks:
    """Changes some of a run's marks, by their fields; tags are trimmed, each is kept once.

    Raises:
        RunError: the note or a tag is too long, there are too many tags, or a colour that is none.
        MachineError: the disk does not take it.
    """
    with _MARKING:
        wanted = {**read_marks(folder).model_dump(), **changes}
        note, tags = str(wanted["note"]).strip(), tuple(" ".join(str(tag).split()) for tag in wanted["tags"])
        wanted |= {"note": note, "tags": tuple({tag.casefold(): tag for tag in tags if tag}.values())}
        try:
            marks = Marks.model_validate(wanted)
        except ValidationError as error:
            raise RunError("run.marks", note=NOTE_LENGTH, tags=MOST_TAGS, tag=TAG_LENGTH) from error
        _keep(folder.marks_json, marks.model_dump_json())
        return marks


def _keep(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise not_written(path, error, "then try again") from error


class Opened(BaseModel):
    """Where a run comes from that was opened from a file: its id there, and when it was opened."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    run_id: Annotated[str, Field(max_length=200)] = ""
    at: float = 0.0


def read_opened(folder: JobFolder) -> Opened | None:
    """What ``opened.json`` says; None for a run that was made here."""
    known = read_model(folder.opened_json, MOST_BYTES["opened.json"], Opened)
    return known or (Opened() if os.path.lexists(folder.opened_json) else None)
