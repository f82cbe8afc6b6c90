"""The child's end of a pipe: one JSON line in, one JSON line out, until the pipe closes.

What a library prints must not get between the answers: the real stdout is moved away first, and file descriptor 1 leads
to stderr from then on.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from core.contract.errors import StudioError

__all__ = ["Handler", "serve"]

_MAKE_ROOM = "Free some disk space, or move Luthier's folder with --home."

Handler = Callable[[dict[str, Any]], Any]


def serve(handlers: Mapping[str, Handler]) -> None:
    """Answers requests ``{"do": name, ...}`` with ``{"ok": value}`` or ``{"error": {code, message, hint}}``."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        _answer(answers, {"ready": os.getpid()})
        for line in sys.stdin.buffer:
            request = json.loads(line)
            _answer(answers, _handled(handlers[request["do"]], request))


def _handled(handler: Handler, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"ok": handler(request)}
    except StudioError as error:
        return {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    except Exception as error:  # noqa: BLE001 - a hostile file may raise anything; the studio gets one line
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"Expected room on the disk to read the data, found: {error.strerror}."
            return {"error": {"code": "disk.full", "message": message, "hint": _MAKE_ROOM}}
        said = " ".join(str(error).split())[:200]
        found = f"{type(error).__name__}: {said}" if said else type(error).__name__
        message = f"Expected data that can be read, found something else ({found})."
        return {"error": {"code": "data.unexpected", "message": message, "hint": "Choose another file or template."}}


def _answer(answers: Any, value: dict[str, Any]) -> None:
    answers.write(json.dumps(value).encode() + b"\n")
    answers.flush()
