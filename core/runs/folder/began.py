"""What a run's settings were when it was made: ``began.json`` in its folder, sealed, beside the run.yaml that decides.

run.yaml is a person's to read, and so may be changed by hand. Before anything was trained a change is obeyed and said;
once a checkpoint stands it is refused (``core.train.keep.depends``); both name the settings. A run of an older version,
or one whose file is damaged, has nothing to compare with until the file is written at its next attempt.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from core.contract.config import RunConfig
from core.machine.disk import read_sealed, write_sealed
from core.runs.folder.flaws import MOST_BYTES
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.repeat import flat

__all__ = ["changed_since", "note_began"]

_SHOWN = 6
_LONGEST = 60


def note_began(folder: JobFolder, config: RunConfig) -> None:
    """Writes down what the run is made with. A disk that refuses loses the note, never the run."""
    with suppress(OSError):
        write_sealed(folder.path / "began.json", {"settings": _plain(config)})


def changed_since(folder: JobFolder, config: RunConfig) -> str:
    """The settings that are others than those written down, a few words each; empty where none is."""
    try:
        then: dict[str, Any] = read_sealed(folder.path / "began.json", MOST_BYTES["began.json"])["settings"]
    except (OSError, ValueError, KeyError):
        return ""
    now = _plain(config)
    others = [
        f"{key} {_short(now[key])} in place of {_short(then[key])}"
        for key in now
        if key in then and then[key] != now[key]
    ]
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return ", ".join(others[:_SHOWN]) + more


def _plain(config: RunConfig) -> dict[str, Any]:
    """Every setting by its dotted key, as JSON gives it back."""
    found: dict[str, Any] = json.loads(json.dumps(flat(config)))
    return found


def _short(value: object) -> str:
    said = json.dumps(value, ensure_ascii=False)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
