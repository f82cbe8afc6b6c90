"""What a run was asked for, beside what it became: ``asked.json`` in its folder, written once at its start.

``run.yaml`` holds every automatic value resolved. To run it again with changes one wants to know which values were a
person's and which were chosen for the machine as it was then; and the queue wants to know how long a run that has not
begun is expected to take. A run without this file loses nothing but that.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from core.contract.config import RunConfig
from core.disk import write_whole
from core.runs.folder import JobFolder

__all__ = ["Asked", "note_asked", "read_asked"]


class Asked(BaseModel):
    """The config with its automatic values open, and the estimated seconds (low, high) where they were known."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    config: RunConfig
    seconds: tuple[float, float] | None = None


def note_asked(folder: JobFolder, config: RunConfig, seconds: tuple[float, float] | None = None) -> None:
    """Writes it down. A disk that refuses loses the note, never the run."""
    try:
        write_whole(folder.path / "asked.json", Asked(config=config, seconds=seconds).model_dump_json())
    except OSError:
        return


def read_asked(folder: JobFolder) -> Asked | None:
    """What was written down; None where nothing can be read."""
    try:
        return Asked.model_validate_json((folder.path / "asked.json").read_bytes())
    except (OSError, ValidationError):
        return None
