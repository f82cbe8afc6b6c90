"""Cells as texts for a person, within bounds."""

import json
import math
from typing import Any

from core.data.read.cells import kind_of
from core.data.read.jsonstream import LongNumber
from core.machine.textfile import without_broken

_DIGITS = 40


def whole_text(value: Any) -> str:
    """A cell as text: nested values as JSON, nothing as ""."""
    if isinstance(value, str):
        return without_broken(value)
    if isinstance(value, (dict, list)):
        return without_broken(json.dumps(value, ensure_ascii=False, default=_plain))
    return "" if value is None else _plain(value)


def beginning(value: Any, most: int) -> tuple[str, bool]:
    """The first ``most`` characters of a cell as text, and whether it goes on. Of nested values no more is written."""
    if isinstance(value, (dict, list)):
        text = ""
        for piece in _ENCODER.iterencode(value):
            text += piece[: most + 1]
            if len(text) > most:
                break
        text = without_broken(text)
    else:
        text = without_broken(value[: most + 1]) if isinstance(value, str) else whole_text(value)
    return text[:most], len(text) > most


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, LongNumber):
        return f"{value.digits[:_DIGITS]}…"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return kind_of(value)
    return str(value)[: 1 << 16]


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=_plain)
