"""Data sets that are made here (mixtures, data sets of the hub, fixed files): a JSONL, kept as a chosen file is, and
``ORIGIN.json`` beside it with what it was made from, and how.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from core.contract.data import Example
from core.contract.errors import DataError
from core.data.files.keep import KeptFile, keep_blocks, promised_sha256
from core.data.read.labels import NO_LABEL
from core.machine.disk import write_whole
from core.machine.locations import Locations

ORIGIN = "ORIGIN.json"
EDITED = "edited"
"""What such a data set says it was made by."""
_BLOCK = 1 << 20


def as_row(example: Example, plain: bool = False) -> dict[str, Any]:
    """The row of an Example, which reads back as an equal Example but for its number.

    ``{"text"}``, ``{"messages", "tools"?}``, ``{"messages", "label"}`` (a mark), ``{"messages", "chosen", "rejected",
    "margin"?}`` or ``{"text", "text_pair"?, "label"}``. The answers of a pair are lists of one turn, since a text that
    is a JSON list of turns would be read as these. ``plain``: a row with a mark or label as a conversation.
    """
    if not example.messages:
        return {"text": example.text}
    if example.texts and not plain:
        listed = example.labels != (example.label,) and (", ".join(example.labels) or NO_LABEL) == example.label
        label = list(example.labels) if listed else example.label
        return {**dict(zip(("text", "text_pair"), example.texts, strict=False)), "label": label}
    row: dict[str, Any] = {"messages": []}
    for message in example.messages:
        turn: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            turn["tool_calls"] = [{"type": "function", "function": call} for call in json.loads(message.tool_calls)]
        if message.reasoning:
            turn["reasoning_content"] = message.reasoning
        if not message.trained:
            turn["weight"] = 0
        row["messages"].append(turn)
    if example.chosen:
        for side, answer in (("chosen", example.chosen), ("rejected", example.rejected)):
            row[side] = [{"role": "assistant", "content": answer}]
        if example.margin is not None:
            row["margin"] = example.margin
    if example.mark is not None and not plain:
        row["label"] = example.label
    if example.tools:
        row["tools"] = json.loads(example.tools)
    return row


def write_rows(rows: Iterable[dict[str, Any]], name: str, origin: dict[str, Any], locations: Locations) -> KeptFile:
    """Writes rows as a made data set and keeps it as ``name`` with the suffix ``.jsonl``. ``origin`` is read after the
    last row. A data set of the same content keeps the origin that it has.

    Raises:
        DataError: there are no rows, or the disk is full.
    """
    return write_blocks(_blocks(rows, name), name, origin, locations)


def write_blocks(blocks: Iterable[bytes], name: str, origin: dict[str, Any], locations: Locations) -> KeptFile:
    """As ``write_rows``, of rows that are lines of JSON already."""
    kept = keep_blocks(blocks, f"{Path(name).stem}.jsonl", locations, f"the data set {name}")
    if not origin_of(kept.path):
        said = json.dumps(origin, ensure_ascii=False, indent=1, default=str) + "\n"
        write_whole(kept.path.with_name(ORIGIN), said.encode())
    return kept


def origin_of(kept: Path) -> dict[str, Any]:
    """What a kept file was made from; empty for a file that a person chose."""
    try:
        file = kept.with_name(ORIGIN)
        if not file.is_file() or file.stat().st_size > _BLOCK:  # beside a typed path anything may lie
            return {}
        origin = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return origin if isinstance(origin, dict) else {}


def source_of(path: Path, data: Path) -> Path:
    """The kept file that an edited data set in the folder ``data`` was made from; any other file itself."""
    origin = origin_of(path) if promised_sha256(path, data) else {}
    source = origin.get("from")
    if origin.get("made") != EDITED or not isinstance(source, dict):
        return path
    found = data / str(source.get("sha256")) / Path(str(source.get("name"))).name
    return found if promised_sha256(found, data) and found.is_file() else path


def _blocks(rows: Iterable[dict[str, Any]], name: str) -> Iterator[bytes]:
    """The rows as lines, in blocks. Text that is no UTF-8 is escaped, and reads back as it was."""
    pending = bytearray()
    written = False
    for row in rows:
        try:
            pending += json.dumps(row, ensure_ascii=False).encode() + b"\n"
        except UnicodeEncodeError:
            pending += json.dumps(row).encode() + b"\n"
        written = True
        if len(pending) >= _BLOCK:
            yield bytes(pending)
            pending.clear()
    if not written:
        raise DataError("data.nothing/made", name=name)
    yield bytes(pending)
