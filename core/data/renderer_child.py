"""``python -m core.data.renderer_child``: renders and measures rows (transformers lives here).

It reads Examples from the cache that the reader left, never a person's file; but the chat template is a program from
outside, which is why this too is a process that can be ended.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import Example, Preview, PreviewRow, RowProblem
from core.contract.errors import DataError
from core.data.preview import preview_rows
from core.data.render import load_tokenizer
from core.data.renderer import Renderer, renderer
from core.data.serve import serve

__all__ = ["ExampleFile", "measure", "preview"]

_REFUSALS_SHOWN = 5
_ROW = re.compile(rb'\{"row":(\d+)[,}]')


class ExampleFile:
    """The reader's JSON lines, with where each begins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offsets = array("Q")
        self.numbers = array("Q")
        place = 0
        with path.open("rb") as stream:
            for line in stream:
                self.offsets.append(place)
                self.numbers.append(int(_ROW.match(line)[1]))  # type: ignore[index] - the reader's own lines
                place += len(line)

    def __len__(self) -> int:
        return len(self.offsets)

    def positions(self, numbers: Iterable[int]) -> list[int]:
        """The positions of the rows with these numbers in the person's file, ascending; unknown ones are left out."""
        wanted = set(numbers)
        return [place for place, number in enumerate(self.numbers) if number in wanted]

    def at(self, indices: Any) -> Iterator[Example]:
        """The rows at these positions, from 0."""
        with self.path.open("rb") as stream:
            for index in indices:
                stream.seek(self.offsets[index])
                yield Example.model_validate_json(stream.readline())


class _Kept:
    """What was used last, so that paging and sliders do not load it again."""

    files: dict[str, ExampleFile] = {}  # noqa: RUF012 - one process, one keeper
    tokenizers: dict[tuple[str, int], Any] = {}  # noqa: RUF012
    matches: dict[str, list[int]] = {}  # noqa: RUF012


def preview(request: dict[str, Any]) -> dict[str, Any]:
    """``{examples, tokenizer, choice, max_length, offset, limit, search, numbers}`` → a Preview."""
    rows, using = _opened(request)
    found = _matching(request, rows, using)
    if request["numbers"]:
        among = set(rows.positions(request["numbers"]))
        found = [position for position in found if position in among]
    page = found[request["offset"] : request["offset"] + request["limit"]]
    shown: list[PreviewRow] = []
    refused: list[str] = []
    for example in rows.at(page):
        try:
            shown.extend(preview_rows(using, example, request["max_length"]))
        except DataError as error:
            refused.append(f"Row {example.row:,}: {error.message}")
    notes = (*using.choice.notes, *refused[:_REFUSALS_SHOWN])
    made = Preview(rows=tuple(shown), total=len(found), template=using.choice.name, notes=notes)
    return made.model_dump(mode="json")


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """``{examples, tokenizer, choice, rows: [start, stop, stride], method}`` → measures and refusals.

    A measure is ``[length, flows, bos, a, b, a, b, ...]``; of a preference row the longer answer's.
    """
    rows, using = _opened(request)
    start, stop, stride = request["rows"]
    examples = rows.at(range(start, min(stop, len(rows)), stride))
    measured: list[list[int]] = []
    refused: list[str] = []
    for item in _measured(using, examples):
        if isinstance(item, str):
            refused.append(item)
        else:
            measured.append(item)
    return {"measures": measured, "refused": len(refused), "why": refused[:1]}


def _measured(using: Renderer, examples: Iterator[Example]) -> Iterator[list[int] | str]:
    plain: list[Example] = []
    for example in examples:
        if not example.chosen:
            plain.append(example)
            continue
        try:
            side = max(using.pair(example), key=lambda one: one.trained[-1][1])
            yield [side.trained[-1][1], 0, 0, side.trained[0][0], side.trained[-1][1]]
        except DataError as error:
            yield f"row {example.row:,}: {error.message}"
    for item in using.encode_many(plain):
        if isinstance(item, RowProblem):
            yield f"row {item.row:,}: {item.text}"
        else:
            ranges = [edge for span in item.trained for edge in span]
            yield [len(item.ids), int(item.flows), item.bos, *ranges]


def _opened(request: dict[str, Any]) -> tuple[ExampleFile, Renderer]:
    path, folder = request["examples"], Path(request["tokenizer"])
    if path not in _Kept.files:
        _Kept.files = {path: ExampleFile(Path(path))}
    changed = max((file.stat().st_mtime_ns for file in folder.glob("*") if file.is_file()), default=0)
    key = (str(folder), changed)
    if key not in _Kept.tokenizers:
        _Kept.tokenizers = {key: load_tokenizer(folder)}
    return _Kept.files[path], renderer(_Kept.tokenizers[key], DataChoice.model_validate(request["choice"]))


def _matching(request: dict[str, Any], rows: ExampleFile, using: Renderer) -> list[int]:
    """Positions of the rows whose rendered text holds the search, whatever its case; all without one."""
    needle = request["search"].casefold()
    if not needle:
        return list(range(len(rows)))
    key = json.dumps([request[name] for name in ("examples", "tokenizer", "choice", "search")])
    if key not in _Kept.matches:
        examples = rows.at(range(len(rows)))
        found = [index for index, example in enumerate(examples) if _holds(using, example, needle)]
        _Kept.matches = {key: found}
    return _Kept.matches[key]


def _holds(using: Renderer, example: Example, needle: str) -> bool:
    try:
        return needle in using.text_of(example).casefold() or needle in example.rejected.casefold()
    except DataError:
        return False


if __name__ == "__main__":
    import sys

    # Tokenizers need no torch, and transformers goes without where there is none: half the start, 200 MB less.
    sys.modules["torch"] = None  # type: ignore[assignment]
    from transformers import AutoTokenizer  # noqa: F401 - warm before the first row comes

    serve({"preview": preview, "measure": measure})
