"""``python -m core.data.service.reader_child``: reads files (pyarrow lives here), and leaves their Examples in the
cache.

Requests are short: a look at the first rows, or the next slice of a whole check, of which the child remembers a few.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.errors import DataError
from core.data.files.checking import Check, changed, remember, sweep
from core.data.read.examples import read_columns
from core.machine.children.serve import give_back_memory, serve

__all__ = ["check", "drop", "look"]

_LOOK_ROWS = 200
_LOOK_LIMIT_SECONDS = 1.0
"""A first look with fewer rows gives up then: its file's rows are long, or its disk is slow."""
_CHECKS = 4
_WAITED_SECONDS = 10
"""Whoever waits for a check asks for its next slice long before."""
_LARGE = 4 << 20
_checks: OrderedDict[str, Check] = OrderedDict()
_swept: set[str] = set()


def look(request: dict[str, Any]) -> dict[str, Any]:
    """``{path, named, choice, cache, seconds}`` → ``{report, examples}`` of the first rows; of the whole if that is
    quick."""
    with _check(request) as found:
        if found.is_looked_at():
            return found.head()
        until = time.monotonic() + _LOOK_LIMIT_SECONDS
        while not found.advance(request["seconds"]):
            late = time.monotonic() - until
            if found.is_begun and (found.rows >= _LOOK_ROWS or late > 0):
                return found.head()
            if late > _LOOK_LIMIT_SECONDS:
                raise _slow(found.named)
        return found.answer()


def _slow(path: Path) -> DataError:
    return DataError(
        "data.time",
        f"Expected to read the beginning of {path.name} within {2 * _LOOK_LIMIT_SECONDS:g} seconds, found a disk that "
        "is slower.",
        "Have the whole file checked, or copy it to another disk.",
    )


def check(request: dict[str, Any]) -> dict[str, Any]:
    """``{path, named, choice, cache, seconds, begun}`` → ``{done, bytes, size, rows}``, and at the end
    ``{report, examples}`` too.

    ``begun``: a slice of it was asked for before, so that a file which changed since is no new file but a fault.
    """
    with _check(request) as found:
        found.waited_for = time.monotonic()
        done = found.advance(request["seconds"])
        so_far = {"done": done, "bytes": found.bytes, "size": found.size, "rows": found.rows}
        return {**so_far, **found.answer()} if done else so_far


def know(request: dict[str, Any]) -> None:
    """``{path, sha256}``: the content hash of a file that was just written."""
    remember(Path(request["path"]), request["sha256"])


def drop(request: dict[str, Any]) -> None:
    """Forgets a check that was begun."""
    found = _checks.pop(_key(request), None)
    if found:
        found.close()
        give_back_memory()


@contextmanager
def _check(request: dict[str, Any]) -> Iterator[Check]:
    """The check of this request, gone on with; forgotten where it ends, well or not."""
    key = _key(request)
    found = _checks.pop(key, None)
    if found and not found.is_current():
        found.close()
        if request.get("begun"):
            raise changed(found.named)
        found = None
    if found is None:
        path, cache = Path(request["path"]), Path(request["cache"])
        if str(cache) not in _swept:
            sweep(cache)
            _swept.add(str(cache))
        found = Check(path, DataChoice.model_validate(request["choice"]), cache, _named(request))
    ended = True
    try:
        yield found
        ended = found.done
    finally:
        if ended:
            found.close()
            if found.size > _LARGE:
                give_back_memory()
        else:
            _checks[key] = found
            _make_room()


def _make_room() -> None:
    """Forgets the check used longest ago that nobody waits for. Where all are waited for the newest goes, and begins
    anew once another is done: if each made room for the next, none would ever end."""
    while len(_checks) > _CHECKS:
        late = time.monotonic() - _WAITED_SECONDS
        idle = [key for key, check in _checks.items() if check.waited_for < late]
        _checks.pop(idle[0] if idle else next(reversed(_checks))).close()


def _key(request: dict[str, Any]) -> str:
    choice = request["choice"]
    columns = sorted(choice.get("columns", {}).items())
    return repr([request["path"], request.get("named"), request["cache"], choice.get("layout"), columns])


def _named(request: dict[str, Any]) -> Path:
    """The path whose name and suffix the file goes by, where that is not its own."""
    return Path(request.get("named") or request["path"])


def _columns(request: dict[str, Any]) -> list[str]:
    return list(read_columns(Path(request["path"]), _named(request)))


if __name__ == "__main__":
    import pyarrow.parquet  # warm before the first file comes

    # Others set aside a gigabyte of addresses at once, which the reader's wall counts.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    serve({"look": look, "check": check, "drop": drop, "know": know, "columns": _columns})
