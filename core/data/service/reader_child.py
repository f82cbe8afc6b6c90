"""``python -m core.data.service.reader_child``: reads files with pyarrow into Examples in the cache.

Requests are short: a look at the first rows, or the next slice of one of a few checks.
"""

import json
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import DataReport
from core.contract.errors import DataError
from core.data.files.checking import Check, remember
from core.data.files.disk_room import sweep
from core.data.read.examples import read_columns
from core.data.service import rows_child
from core.machine.children.serve import give_back_memory, serve

_LOOK_ROWS = 200
_LOOK_LIMIT_SECONDS = 1.0
"""A first look shows what it has by then; it fails after twice as long where it has no row."""
_CHECKS = 4
_WAITED_SECONDS = 10
"""A check whose next slice was not asked for within this time is idle."""
_LARGE = 4 << 20
_checks: OrderedDict[str, Check] = OrderedDict()


def look(request: dict[str, Any]) -> dict[str, Any]:
    """``{path, named, choice, cache, seconds}`` → ``{report, examples}`` of the first rows, or of all within
    ``seconds``."""
    with _check(request) as check:
        if check.is_looked_at():
            return _told(check.head())
        until = time.monotonic() + _LOOK_LIMIT_SECONDS
        while not check.advance(request["seconds"]):
            late = time.monotonic() - until
            if check.tally and (check.rows >= _LOOK_ROWS or late > 0):
                return _told(check.head())
            if late > _LOOK_LIMIT_SECONDS:
                raise DataError("data.time/beginning", name=check.named.name, seconds=2 * _LOOK_LIMIT_SECONDS)
        return _told(check.answer())


def check(request: dict[str, Any]) -> dict[str, Any]:
    """``{path, named, choice, cache, seconds, begun}`` → ``{done, bytes, size, rows}``, and at the end
    ``{report, examples}`` too. ``begun``: it is no first slice, so a file that changed since is a fault."""
    with _check(request) as check:
        check.waited_for = time.monotonic()
        done = check.advance(request["seconds"])
        so_far = {"done": done, "bytes": check.bytes, "size": check.size, "rows": check.rows}
        return {**so_far, **_told(check.answer())} if done else so_far


def columns(request: dict[str, Any]) -> list[str]:
    """``{path, named}`` → the names of the columns."""
    return list(read_columns(Path(request["path"]), Path(request["named"])))


def known(request: dict[str, Any]) -> dict[str, Any] | None:
    """``{path, named, choice, cache}`` → ``{report, examples}`` of the whole file where that was read before, without
    any work; else None."""
    path, cache = Path(request["path"]), Path(request["cache"])
    check = Check(path, DataChoice.model_validate(request["choice"]), cache, Path(request["named"]))
    return _told(check.answer()) if check.is_known() else None


def _told(answer: tuple[DataReport, str]) -> dict[str, Any]:
    return {"report": answer[0].model_dump(mode="json"), "examples": answer[1]}


def know(request: dict[str, Any]) -> None:
    """``{path, sha256}``: the content hash of a file that was just written."""
    remember(Path(request["path"]), request["sha256"])


def drop(request: dict[str, Any]) -> None:
    """Forgets a check that was begun."""
    check = _checks.pop(_key(request), None)
    if check:
        check.close()
        give_back_memory()


@contextmanager
def _check(request: dict[str, Any]) -> Iterator[Check]:
    """The check of this request, begun or continued; forgotten when it ends or fails."""
    key = _key(request)
    check = _checks.pop(key, None)
    if check and not check.is_current():
        check.close()
        if request.get("begun"):
            raise DataError("data.changed", name=check.named.name)
        check = None
    if check is None:
        path, cache = Path(request["path"]), Path(request["cache"])
        sweep(cache.glob("*.part"))
        check = Check(path, DataChoice.model_validate(request["choice"]), cache, Path(request["named"]))
    ended = True
    try:
        yield check
        ended = check.done
    finally:
        if ended:
            check.close()
            if check.size > _LARGE:
                give_back_memory()
        else:
            _checks[key] = check
            _make_room()


def _make_room() -> None:
    """Forgets the idle check used longest ago; where none is idle the newest, since if each check made room for the
    next none would ever end."""
    while len(_checks) > _CHECKS:
        late = time.monotonic() - _WAITED_SECONDS
        idle = [key for key, check in _checks.items() if check.waited_for < late]
        _checks.pop(idle[0] if idle else next(reversed(_checks))).close()


def _key(request: dict[str, Any]) -> str:
    return json.dumps([request[name] for name in ("path", "named", "cache", "choice")], sort_keys=True)


if __name__ == "__main__":
    import pyarrow.parquet  # before the first file comes

    # Other pools reserve a gigabyte of addresses at once, which counts towards the reader's memory limit.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    files = {"look": look, "check": check, "drop": drop, "know": know, "known": known, "columns": columns}
    serve(files | {"table": rows_child.table, "row": rows_child.row, "roles": rows_child.roles})
