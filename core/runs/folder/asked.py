"""What a run was asked for, beside what it became: ``asked.json`` in its folder, written once at its start.

``run.yaml`` holds every automatic value resolved. To run it again with changes one wants to know which values were a
person's and which were chosen for the machine as it was then; and the queue wants to know how long a run that has not
begun is expected to take. A run without this file loses nothing but that.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from core.contract.config import RunConfig
from core.contract.methods import DEFAULT_METHOD
from core.machine.disk import read_plain, write_whole
from core.runs.folder.flaws import MOST_BYTES
from core.runs.folder.job_folder import JobFolder

__all__ = ["Asked", "note_asked", "read_asked"]


_VERSION = 2
"""Since 2 the method is "auto" where nobody chose one; before, what nobody had chosen was written as "sft"."""


class Asked(BaseModel):
    """The config with its automatic values open, and the estimated seconds (low, high) where they were known."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    config: RunConfig
    seconds: tuple[float, float] | None = None
    version: int = 1


def note_asked(folder: JobFolder, config: RunConfig, seconds: tuple[float, float] | None = None) -> None:
    """Writes it down. A disk that refuses loses the note, never the run."""
    asked = Asked(config=config, seconds=seconds, version=_VERSION)
    try:
        write_whole(folder.path / "asked.json", asked.model_dump_json())
    except OSError:
        return


def read_asked(folder: JobFolder) -> Asked | None:
    """What was written down; None where nothing can be read. The method that nobody had chosen in an older version is
    "auto"."""
    try:
        found = Asked.model_validate_json(read_plain(folder.path / "asked.json", MOST_BYTES["asked.json"]))
    except (OSError, ValidationError):
        return None
    if found.version < _VERSION and found.config.method == DEFAULT_METHOD:
        return found.model_copy(update={"config": found.config.model_copy(update={"method": "auto"})})
    return found
