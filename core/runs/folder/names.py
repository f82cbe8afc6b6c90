"""The name that a person gave a run after it was made: the file ``name`` in the run's folder.

``run.yaml`` is written once and the log belongs to whoever works, so a name given later has a file of its own, renamed
whole. It changes nothing but what the run is called: no config, no checkpoint and no folder knows it.
"""

from __future__ import annotations

from core.contract.config import RunConfig
from core.contract.errors import MachineError, RunError, StudioError
from core.machine.disk import cure, read_plain, write_whole
from core.runs.folder.flaws import MOST_BYTES
from core.runs.folder.job_folder import JobFolder

__all__ = ["NAME_LENGTH", "given_name", "named_config", "rename"]

NAME_LENGTH = 120


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
    except StudioError:
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
        message = f"Expected a name of at most {NAME_LENGTH} characters, found {len(name)}."
        raise RunError("run.name", message, "Shorten it.")
    try:
        write_whole(folder.given_name, name)
    except OSError as error:
        message = f"Could not write {folder.given_name} ({error.strerror})."
        raise MachineError("disk.write", message, cure(error, "then try again")) from error
    return name
