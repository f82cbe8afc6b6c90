"""The child's end of a pipe: one JSON line in, one JSON line out, until the pipe closes."""

import contextlib
import ctypes
import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self, TextIO

from core.contract.errors import DataError, Fault
from core.machine.disk import is_full
from core.machine.textfile import one_line

Handler = Callable[[dict[str, Any]], Any]
Tell = Callable[[Any], None]


class LineWriter:
    """Writes JSON lines to the asking end, which never interleave."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._lock = out, threading.Lock()

    @classmethod
    def take_stdout(cls) -> Self:
        """Keeps stdout for these lines; what libraries print to it goes to stderr from now on."""
        writer = cls(os.fdopen(os.dup(1), "w", encoding="utf-8"))
        os.dup2(2, 1)
        return writer

    def say(self, word: dict[str, Any]) -> None:
        """Writes one line; ends this process where the other end is closed."""
        with self._lock:
            try:
                self._out.write(json.dumps(word) + "\n")
                self._out.flush()
            except BrokenPipeError:
                os._exit(0)


def serve(handlers: Mapping[str, Handler], telling: Mapping[str, Callable[..., Any]] = {}) -> None:
    """Answers requests ``{"do": name, ...}`` with ``{"ok": value}`` or ``{"error": {code, message, hint}}``.

    Those of ``telling`` may report progress by their argument ``tell``: ``{"told": value}``.
    """
    writer = LineWriter.take_stdout()
    writer.say({"ready": os.getpid()})

    def tell(value: Any) -> None:
        writer.say({"told": value})

    known: dict[str, Handler] = {**handlers}
    known |= {name: partial(handler, tell=tell) for name, handler in telling.items()}
    for line in sys.stdin.buffer:
        request = json.loads(line)
        writer.say(_handled(known[request["do"]], request))


def give_back_memory() -> None:
    """Returns freed memory to the system, so that it does not count towards the next file's limit."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
        trim(0)


def _handled(handler: Handler, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"ok": handler(request)}
    except Fault as error:
        return {"error": {**error.told(), "message": one_line(error.message, 1000)}}
    except MemoryError:
        return {"error": DataError("data.memory/rows", of=_of(request)).told()}
    except Exception as error:  # noqa: BLE001 - a hostile file may raise anything
        if is_full(error):
            return {"error": DataError("disk.full/reading", reason=error.strerror).told()}
        said = one_line(str(error), 200)
        what = f"{type(error).__name__}: {said}" if said else type(error).__name__
        return {"error": DataError("data.unexpected", of=_of(request), found=what).told()}


def _of(request: dict[str, Any]) -> str:
    path = request.get("path")
    return f" in {one_line(Path(path).name, 200)}" if isinstance(path, str) else ""
