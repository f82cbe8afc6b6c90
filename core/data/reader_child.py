"""``python -m core.data.reader_child``: reads files (pyarrow lives here), and leaves their Examples in the cache.

What was read is written once as JSON lines under a name made of the file's content and the choice, so that preview,
search and facts read a plain list of our own words and never the person's file again.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import DataReport, Example
from core.data.examples import Tally, open_reading, read_columns
from core.data.keep import file_sha256
from core.data.serve import serve

__all__ = ["read"]

_VERSION = 1
"""Counts up when reading changes, so that what older code left is not used."""
_hashes: dict[tuple[str, int, int], str] = {}


def read(request: dict[str, Any]) -> dict[str, Any]:
    """``{path, choice, cache}`` → ``{report, examples}``, from the cache where it was read before."""
    path, cache = Path(request["path"]), Path(request["cache"])
    choice = DataChoice.model_validate(request["choice"])
    key = _key(path, choice)
    examples, kept = cache / f"examples-{key}.jsonl", cache / f"report-{key}.json"
    if not (kept.is_file() and examples.is_file()):
        report = _read_into(path, choice, examples)
        _written(kept, report.model_dump_json().encode())
    report = DataReport.model_validate_json(kept.read_bytes()).model_copy(update={"path": str(path)})
    return {"report": report.model_dump(mode="json"), "examples": str(examples)}


def _read_into(path: Path, choice: DataChoice, target: Path) -> DataReport:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}.part")
    tally = Tally(open_reading(path, choice))
    try:
        with part.open("wb") as stream:
            for row in tally.reading.rows():
                tally.add(row)
                if isinstance(row, Example):
                    stream.write(row.model_dump_json(exclude_defaults=True).encode() + b"\n")
        report = tally.report()
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return report


def _written(target: Path, content: bytes) -> None:
    part = target.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(target)


def _key(path: Path, choice: DataChoice) -> str:
    if not path.is_file():
        open_reading(path, choice)  # says in one line what is wrong
    status = path.stat()
    known = (str(path), status.st_size, status.st_mtime_ns)
    if known not in _hashes:
        _hashes[known] = file_sha256(path)
    parts = [_VERSION, _hashes[known], path.suffix.lower(), choice.layout, sorted(choice.columns.items())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _columns(request: dict[str, Any]) -> list[str]:
    return list(read_columns(Path(request["path"])))


if __name__ == "__main__":
    import pyarrow.parquet  # noqa: F401 - warm before the first file comes

    serve({"read": read, "columns": _columns})
