"""``learned.jsonl`` under the root folder: one line a finished run, what was predicted of it and what it took.

Append only, one write a line under a lock. A torn or foreign line counts as none. The newest lines are enough.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from core.contract.estimate import LearnedRun
from core.estimate.learned import Learned
from core.locations import Locations
from core.runs.locks import locked

__all__ = ["append", "learned_file", "speeds"]

NEWEST = 500
MOST_BYTES = 1 << 20


def learned_file(locations: Locations) -> Path:
    """Where the lines lie."""
    return locations.home / "learned.jsonl"


def speeds(locations: Locations) -> Learned:
    """All that finished runs taught, the newest last; empty where there is no file."""
    return Learned(tuple(_lines(learned_file(locations)))[-NEWEST:])


def append(locations: Locations, line: LearnedRun) -> None:
    """Adds a line. A torn last line, left by a machine that went down, is closed first."""
    path = learned_file(locations)
    with locked(path), path.open("ab+") as file:
        torn = file.tell() > 0 and _last_byte(path) != b"\n"
        file.write((b"\n" if torn else b"") + line.model_dump_json().encode() + b"\n")


def _lines(path: Path) -> list[LearnedRun]:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - MOST_BYTES))
            raw = file.read()
    except OSError:
        return []
    return [line for text in raw.split(b"\n") if text and (line := _parsed(text)) is not None]


def _parsed(text: bytes) -> LearnedRun | None:
    try:
        return LearnedRun.model_validate_json(text)
    except ValidationError:
        return None


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1)
