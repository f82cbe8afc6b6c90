"""Which rows a run holds out, as it keeps them beside its log: drawn once, read by training and by the window alike.

rows.json   rows, sha256 of their tokens, the held-out ones, sha256 of the order in which the others are dealt;
            of the held-out ones also their numbers in the data file, and the sha256 of their tokens alone
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.machine.disk import read_sealed, write_sealed

_MOST_BYTES = 1 << 23
"""A hundred thousand held-out rows, as many as a config may ask for, take a quarter of it."""


class Draw(BaseModel):
    """The draw of one run. ``held_out`` counts the rows that could be trained, from 0; ``numbers`` are the same rows as
    the data file numbers them, from 1. Runs of earlier versions have neither these nor the hash of the rows alone."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")
    rows: Annotated[int, Field(ge=0)]
    tokens_sha256: str
    held_out: list[Annotated[int, Field(ge=0)]]
    order_sha256: str
    numbers: list[Annotated[int, Field(ge=1)]] = []
    held_out_sha256: str = ""

    def measures_alike(self, other: Draw) -> bool:
        """Whether the held-out rows of both are the same tokens, trained at the same places."""
        if self.held_out_sha256 and other.held_out_sha256:
            return self.held_out_sha256 == other.held_out_sha256
        return (self.tokens_sha256, self.held_out) == (other.tokens_sha256, other.held_out)


def draw_path(run: Path) -> Path:
    """Where a run keeps its draw."""
    return run / "rows.json"


def read_draw(path: Path) -> Draw:
    """What ``write_draw`` wrote. Raises OSError where nothing can be read, ValueError where it is damaged."""
    try:
        return Draw.model_validate(read_sealed(path, _MOST_BYTES))
    except ValidationError as error:
        raise ValueError(f"{path.name} is no draw of rows") from error


def kept_draw(run: Path) -> Draw | None:
    """The draw of the run in this folder; None where there is none that can be read."""
    try:
        return read_draw(draw_path(run))
    except (OSError, ValueError):
        return None


def write_draw(path: Path, draw: Draw) -> None:
    """Writes it, whole or not at all, to stay after the power went. Raises OSError where the disk refuses."""
    write_sealed(path, draw.model_dump(), durable=True)
