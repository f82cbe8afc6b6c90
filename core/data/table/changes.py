"""A person's changes of rows over an untouched file: a list that is only added to, under the file's content hash.

A line is a change, or that the last one is undone or made again. Lines are written whole under a lock, so that neither
a kill nor a second window loses any.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from core.contract.rows import RowChange
from core.data.read.cells import Record, cell_at, parsed
from core.machine.disk import append_line
from core.machine.locks import locked

_WORD = "do"
Step = Literal["undo", "redo"]


@dataclass(frozen=True)
class Changes:
    """What is in force: new texts by row and column, and the rows left out. ``count`` of them can be undone, ``undone``
    made again."""

    edits: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    excluded: frozenset[int] = frozenset()
    count: int = 0
    undone: int = 0

    def applied(self, record: Record) -> Record:
        """The row with its changes."""
        edits = self.edits.get(record.row)
        if not edits or record.fault:
            return record
        values = record.values
        for column, text in edits.items():
            before = cell_at(values, column)  # its new text is a value of the kind that the cell had
            value = None if before is None or isinstance(before, (str, bytes)) else parsed(text)
            values = _with_cell(values, column, text if value is None else value)
        return Record(record.row, values, "", record.size)


def changes_in(path: Path) -> Changes:
    """What a list says; none where there is no list."""
    try:
        status = path.stat()
    except OSError:
        return Changes()
    return _folded(path, status.st_size, status.st_mtime_ns)


def add_change(path: Path, change: RowChange) -> None:
    """Adds a change to the list. Raises OSError."""
    if not change.column and change.excluded is None:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(_lock_of(path)):
        append_line(path, change.model_dump_json(exclude_defaults=True).encode())


def step(path: Path, do: Step) -> None:
    """Undoes the last change in force, or makes the last one again that was undone. Raises OSError."""
    if not path.exists():
        return
    with locked(_lock_of(path)):
        known = changes_in(path)
        if known.count if do == "undo" else known.undone:
            append_line(path, json.dumps({_WORD: do}).encode())


def _lock_of(path: Path) -> Path:
    return path.with_suffix(".lock")


@lru_cache(maxsize=8)
def _folded(path: Path, _size: int, _written: int) -> Changes:
    made: list[RowChange] = []
    undone: list[RowChange] = []
    with path.open("rb") as lines:
        for line in lines:
            said = parsed(line.decode("utf-8", "replace"))
            word = said.get(_WORD) if isinstance(said, dict) else ""
            if word == "undo" and made:
                undone.append(made.pop())
            elif word == "redo" and undone:
                made.append(undone.pop())
            elif word is None and (change := _change(said)):
                made.append(change)
                undone.clear()
    edits: dict[int, dict[str, str]] = {}
    excluded: set[int] = set()
    for change in made:
        if change.column:
            for row in change.rows:
                edits.setdefault(row, {})[change.column] = change.value
        if change.excluded is not None:
            (excluded.update if change.excluded else excluded.difference_update)(change.rows)
    return Changes(edits, frozenset(excluded), len(made), len(undone))


def _change(said: Any) -> RowChange | None:
    try:
        return RowChange.model_validate(said)
    except ValidationError:  # a torn line, or another version's
        return None


def _with_cell(values: dict[str, Any], column: str, value: Any) -> dict[str, Any]:
    """The values with another one at a column, or at a path as ``cell_at`` reads it."""
    name, dot, rest = column.partition(".")
    if column in values or not dot:
        return {**values, column: value}
    inner = values.get(name)
    if isinstance(inner, dict):
        return {**values, name: _with_cell(inner, rest, value)}
    told = parsed(inner) if isinstance(inner, str) else None
    if isinstance(told, dict):
        return {**values, name: json.dumps(_with_cell(told, rest, value), ensure_ascii=False)}
    return {**values, column: value}
