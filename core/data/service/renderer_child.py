"""``python -m core.data.service.renderer_child``: renders and tokenises Examples of the cache with transformers.

A process that can be killed, since a chat template is a foreign program.
"""

from bisect import bisect_right
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import Example, Preview, PreviewRow
from core.contract.errors import DataError
from core.data.files.example_file import ExampleFile
from core.data.render.chat_tokens import load_tokenizer, tokenise
from core.data.render.preview import encoded_sides, shown_rows
from core.data.render.renderer import Renderer, renderer
from core.data.render.template import drops_text
from core.data.render.template_limits import limited_memory
from core.data.tokens.cache import Entry, slices, tokenizer_digest
from core.data.tokens.table import Encoded, TokenTable
from core.machine.children.serve import serve

_REFUSALS_SHOWN = 5
_DROPPED = "Rows on this page whose text beside a function call the template leaves out, so it is not trained: {}."
_DECISIVE = attrgetter(
    "row", "ids", "trained", "bos", "flows", "ended", "mark", "margin", "labels", "classed", "texts", "keeps_end"
)


def preview(request: dict[str, Any]) -> dict[str, Any]:
    """``{examples, tokenizer, choice, reads, left_out, max_length, offset, limit, search, numbers, entry}`` → a
    Preview. Rows that are asked for by their ``numbers`` are shown though the method leaves them out.
    """
    rows, using = _opened(request)
    entry = Entry(Path(request["entry"]))
    starts = entry.starts()
    if request["numbers"] and request["left_out"]:
        rows, starts = ExampleFile(Path(request["examples"])), []
    matching = rows.matching(request["search"], request["numbers"])
    page = matching[request["offset"] : request["offset"] + request["limit"]]
    shown: list[PreviewRow] = []
    refused: list[str] = []
    dropped = 0
    for position, example in zip(page, rows.at(page), strict=True):
        try:
            sides = encoded_sides(using, example, request["reads"])
        except DataError as error:
            refused.append(f"Row {example.row:,}: {error.message}")
            continue
        dropped += drops_text(example, using.choice)
        if starts and _is_kept_otherwise(entry, starts, position, sides):
            entry.clear()
            starts = []
        shown.extend(shown_rows(using, sides, request["max_length"]))
    said = [_DROPPED.format(dropped)] if dropped else []
    notes = (*using.choice.notes, *said, *refused[:_REFUSALS_SHOWN])
    made = Preview(rows=tuple(shown), total=len(matching), template=using.choice.name, notes=notes)
    return made.model_dump(mode="json")


def tokenise_part(request: dict[str, Any]) -> dict[str, Any]:
    """``{examples, tokenizer, choice, reads, left_out, entry, start, stride}`` → ``{next, rows, tokens, refused}``:
    counts of that part of the entry, made where it is missing, and the next part's start (after the last: the number of
    rows)."""
    rows, using = _opened(request)
    start, stride = request["start"], request["stride"]
    examples: list[Example] = next(slices(rows.at(range(start, len(rows), stride))), [])
    place = Entry(Path(request["entry"])).open().part(start)
    table = TokenTable.load(place)
    if table is None:
        table = tokenise(using, examples, request["reads"])
        table.save(place)
    counts = {"rows": len(table), "tokens": len(table.ids), "refused": len(table.refused)}
    return {"next": min(len(rows), start + stride * len(examples)), **counts}


def _is_kept_otherwise(entry: Entry, starts: list[int], position: int, sides: tuple[Encoded, ...]) -> bool:
    """Whether the row at this position is kept otherwise in the entry, which a run would train from."""
    part = entry.part(starts[bisect_right(starts, position) - 1])
    try:
        table = _part(part, part.stat().st_mtime_ns)
    except OSError:
        return True
    place = None if table is None else table.place_of(sides[0].row)
    if table is None or place is None:
        return True
    kept = [table.item(place + number) for number in range(len(sides))]
    return [*map(_DECISIVE, kept)] != [*map(_DECISIVE, sides)]


def _opened(request: dict[str, Any]) -> tuple[ExampleFile, Renderer]:
    path, folder = request["examples"], Path(request["tokenizer"])
    tokenizer = _tokenizer(folder, tokenizer_digest(folder))
    choice = DataChoice.model_validate(request["choice"])
    with limited_memory():  # the template is tried here
        return _examples(path, tuple(request["left_out"]), Path(path).stat().st_mtime_ns), renderer(tokenizer, choice)


@lru_cache(maxsize=1)
def _examples(path: str, left_out: tuple[str, ...], _written: int) -> ExampleFile:
    return ExampleFile(Path(path), left_out)


@lru_cache(maxsize=1)
def _tokenizer(folder: Path, _digest: str) -> Any:
    return load_tokenizer(folder)


@lru_cache(maxsize=4)
def _part(path: Path, _written: int) -> TokenTable | None:
    return TokenTable.load(path)


if __name__ == "__main__":
    import sys

    # Tokenizers need no torch: without it the start takes half as long and 200 MB less.
    sys.modules["torch"] = None  # type: ignore[assignment]
    from transformers import AutoTokenizer  # noqa: F401 - before the first row comes

    serve({"preview": preview, "tokenise": tokenise_part})
