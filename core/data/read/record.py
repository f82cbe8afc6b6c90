"""One row of a file as it was found, whatever the file is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Record"]


@dataclass(frozen=True, slots=True)
class Record:
    """One row: ``values`` by column, or the ``fault`` for which it has none; ``size`` in characters, roughly."""

    row: int
    values: dict[str, Any]
    fault: str = ""
    size: int = 0
