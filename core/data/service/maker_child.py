"""``python -m core.data.service.maker_child``: makes data sets, of other files or of the hub's, and tells how far it
is.

A process of its own: a mixture of large files takes its time, the hub may fall silent, and either may be stopped by
ending the process. What it leaves is a whole kept file, or nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.data.files.hub_data import hub_rows
from core.data.files.made import write_rows
from core.data.files.mix import deal, from_json, mixed_rows, origin_of_mixture
from core.machine.children.serve import Tell, serve
from core.machine.locations import Locations

__all__ = ["hub", "mix"]

_TELL_SECONDS = 0.1


def mix(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """``{parts, name, seed, home}`` → the kept file."""
    parts, seed = from_json(request["parts"]), request["seed"]
    total = len(deal([part.usable for part in parts], [part.weight for part in parts], seed))
    rows = _told(mixed_rows(parts, seed), total, tell)
    kept = write_rows(rows, request["name"], origin_of_mixture(parts, seed), Locations(Path(request["home"])))
    return kept.to_json()


def hub(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """``{name, subset, split, rows_at_most, home}`` → the kept file."""
    found, origin = hub_rows(request["name"], request["subset"], request["split"], request["rows_at_most"])
    rows = _told(found, request["rows_at_most"], tell)
    name = request["name"].replace("/", "_")
    return write_rows(rows, f"{name}.jsonl", origin, Locations(Path(request["home"]))).to_json()


def _told(rows: Iterator[dict[str, Any]], total: int, tell: Tell) -> Iterator[dict[str, Any]]:
    """The rows, with a word about their number now and then."""
    told, count = time.monotonic(), 0
    for count, row in enumerate(rows, start=1):
        yield row
        if time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            tell([count, total, count])
    tell([count, max(total, count), count])


if __name__ == "__main__":
    serve({}, {"mix": mix, "hub": hub})
