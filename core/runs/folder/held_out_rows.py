"""Which rows a run holds out, drawn once and kept in its folder.

rows.json   count of rows, sha256 of their tokens, held-out rows, sha256 of the order of the others;
            of the held-out rows their numbers in the data file, and the sha256 of their tokens
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.machine.disk import read_sealed, write_sealed

_MOST_BYTES = 1 << 23
"""Four times what the most held-out rows that a config may ask for (100,000) take."""


class Draw(BaseModel):
    """The draw of one run. ``held_out`` are indices among the trainable rows, from 0; ``numbers`` are the same rows in
    the data file, from 1. Earlier versions wrote neither ``numbers`` nor ``held_out_sha256``."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")
    rows: Annotated[int, Field(ge=0)]
    tokens_sha256: str
    held_out: list[Annotated[int, Field(ge=0)]]
    order_sha256: str
    numbers: list[Annotated[int, Field(ge=1)]] = []
    held_out_sha256: str = ""

    def measures_alike(self, other: Draw) -> bool:
        """Whether the held-out rows of both have the same tokens and trained positions."""
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
    """Writes it whole and durably. Raises OSError where the disk refuses."""
    write_sealed(path, draw.model_dump(), durable=True)
