"""One row of a file, and its cells as texts or JSON."""

import json
import math
from dataclasses import dataclass
from typing import Any

from core.data.read.jsonstream import LongNumber
from core.machine.textfile import broken

JOIN = " + "
"""Between the names of columns that are read as one."""


@dataclass(frozen=True, slots=True)
class Record:
    """One row: ``values`` by column, or the ``fault`` for which it has none; ``size`` in characters, about."""

    row: int
    values: dict[str, Any]
    fault: str = ""
    size: int = 0


def cell_at(values: dict[str, Any], column: str) -> Any:
    """The cell of a column; None where there is none. Where no column has this name, " + " in it parts several, whose
    texts are joined (``title + body``), and dots part the keys of objects within each other (``data.question``)."""
    if column in values or not ("." in column or JOIN in column):
        return values.get(column)
    if JOIN in column:
        cells = [cell for one in column.split(JOIN) if (cell := cell_at(values, one)) not in (None, "")]
        others = [cell for cell in cells if not isinstance(cell, str)]
        return others[0] if others else "\n\n".join(cells) or None
    name, _, rest = column.partition(".")
    inner = values.get(name)
    if isinstance(inner, str) and inner.lstrip().startswith("{"):
        inner = parsed(inner)
    return cell_at(inner, rest) if isinstance(inner, dict) else None


class RowError(Exception):
    """Why a row cannot be used: a stable code and a line for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def text_of(value: Any, where: str) -> str:
    """The cell as a text. Raises RowError where it is no text."""
    if not isinstance(value, str):
        raise RowError("row.type", f"{where} is {kind_of(value)}, expected text")
    if broken(value):
        raise RowError("row.encoding", f"{where} holds bytes that are no UTF-8 text")
    return value


def kind_of(value: Any) -> str:
    """What a cell holds, in words."""
    if value is None:
        return "null or missing"
    if isinstance(value, LongNumber):
        return f"a number of {len(value.digits):,} digits"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "an infinite number"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {str(value)[:20]}" if abs(value) < 10**15 else "a very long number"
    names: dict[type[Any], str] = {dict: "an object", list: "a list", str: "text", bytes: "bytes"}
    cell_type: type[Any] = type(value)
    return names.get(cell_type, f"of type {cell_type.__name__}")


def parsed(text: str) -> Any:
    """The value of a JSON text; None where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def as_json(value: Any, where: str) -> str:
    """The value as JSON text. Raises RowError where JSON has no such value."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RowError("row.tools", f"{where} is no JSON") from error
    return text_of(text, where)
