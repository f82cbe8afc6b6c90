"""What the reader child answers of a file's rows: a window of them, a whole row, what the columns are taken for."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.errors import DataError
from core.contract.rows import RowWish
from core.data.read.examples import look_at
from core.data.read.roles import guess_roles
from core.data.table.changes import changes_in
from core.data.table.window import SLICE_SECONDS, Asked, OpenTable

_OPEN = 3
"""Files whose rows are indexed at a time."""
_SLICES = 20
"""For a row that was asked for before the file was read up to it."""
_tables: OrderedDict[tuple[str, str, int, int], OpenTable] = OrderedDict()


def table(request: dict[str, Any]) -> dict[str, Any]:
    """``{path, named, cache, choice, method, wish, changes, tokens, findings,
    examples}`` → a RowTable."""
    asked = Asked(
        choice=DataChoice.model_validate(request["choice"]),
        method=request["method"],
        wish=RowWish.model_validate(request["wish"]),
        changes=changes_in(Path(request["changes"])),
        tokens=tuple(request["tokens"]),
        findings=request["findings"],
        examples=request["examples"],
    )
    return _table(request).window(asked).model_dump(mode="json")


def row(request: dict[str, Any]) -> dict[str, str]:
    """``{path, named, cache, choice, changes, number}`` → all cells of a row."""
    opened, changes = _table(request), changes_in(Path(request["changes"]))
    for _ in range(_SLICES):
        cells = opened.row(request["number"], changes, [one for one in request["choice"]["columns"].values() if one])
        if cells is not None:
            return cells
        if opened.index.complete:
            break
        opened.index.advance(SLICE_SECONDS)
    raise DataError("data.no_row", row=request["number"], name=Path(request["named"]).name)


def roles(request: dict[str, Any]) -> dict[str, Any]:
    """``{path, named, choice}`` → a RoleGuess."""
    look = look_at(Path(request["path"]), Path(request["named"]))
    guess = guess_roles(look.columns, look.sample, DataChoice.model_validate(request["choice"]), look.header)
    return guess.model_dump(mode="json")


def _table(request: dict[str, Any]) -> OpenTable:
    path, cache = Path(request["path"]), Path(request["cache"])
    status = path.stat()
    key = (str(path), request["named"], status.st_size, status.st_mtime_ns)
    opened = _tables.pop(key, None)
    if opened is None:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = OpenTable(path, Path(request["named"]), cache)
    _tables[key] = opened
    while len(_tables) > _OPEN:
        _tables.popitem(last=False)
    return opened
