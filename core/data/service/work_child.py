"""``python -m core.data.service.work_child``: long work over rows: examining, fixing, mixing, fetching from the hub.

It reports progress, and may be killed at any time: files are written atomically.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from core.contract.config import DataChoice
from core.data.doctor.examine import Examination
from core.data.doctor.findings.answers import RowLength
from core.data.doctor.fixes import OF_LABELS, Fixing
from core.data.doctor.split_groups import MOST_ROWS, find_groups
from core.data.files.example_file import examples_in
from core.data.files.hub_data import hub_rows
from core.data.files.keep import KEPT_FILE
from core.data.files.made import EDITED, as_row, write_blocks, write_rows
from core.data.files.mix import PARTS, mixed_rows, origin_of_mixture
from core.data.table.changes import changes_in
from core.data.table.edited import edited_blocks
from core.data.tokens.facts import Measures
from core.data.tokens.table import TokenTable
from core.machine.children.serve import Tell, give_back_memory, serve
from core.machine.locations import Locations

_TELL_SECONDS = 0.1
_READING = 0.8
"""The share of an examination's time that goes by rows; the rest compares them."""


def examine(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """``{examples, left_out, usable, choice, seed, max_length, tokens, pairs, groups}`` → a Checkup.

    ``tokens`` are parts of the token cache, of all rows or of a sample; ``groups``: where to keep the rows' groups,
    unless rows are left out.
    """
    try:
        tables = (table for part in request["tokens"] if (table := TokenTable.load(Path(part))))
        lengths = row_lengths(tables, request["max_length"], request["pairs"])
        choice = DataChoice.model_validate(request["choice"])
        examination = Examination(Path(request["groups"]).parent)
        usable = min(request["usable"], MOST_ROWS)
        say = _seldom(tell)
        examples = examples_in(Path(request["examples"]), request["left_out"])
        for number, example in enumerate(islice(examples, MOST_ROWS), start=1):
            examination.add(example)
            say(int(_READING * number), usable)
        for share in examination.steps():
            say(int((_READING + (1 - _READING) * share) * usable), usable)
        with suppress(OSError):
            if not request["left_out"]:
                examination.kept_groups().save(Path(request["groups"]))
        return examination.checkup(choice, request["seed"], request["max_length"], lengths).model_dump(mode="json")
    finally:
        give_back_memory()


def groups(request: dict[str, Any], tell: Tell) -> None:
    """``{examples, groups}``: computes which rows belong together and writes the file ``groups``."""
    target, say = Path(request["groups"]), _seldom(tell)
    try:
        examples = examples_in(Path(request["examples"]))
        find_groups(examples, target.parent, lambda rows: say(rows, MOST_ROWS)).save(target)
    finally:
        give_back_memory()


def fix(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """``{examples, fixes, name, source, home}`` → the kept file that was made."""
    fixes = [(code, rows) for code, rows in request["fixes"]]
    labels: Counter[str] = Counter()
    if not OF_LABELS.isdisjoint(code for code, _ in fixes):
        for example in examples_in(Path(request["examples"])):
            labels.update(example.labels)
    fixing = Fixing(fixes, labels)
    origin: dict[str, Any] = {}

    def rows() -> Iterator[dict[str, Any]]:
        yield from map(as_row, fixing.rows(examples_in(Path(request["examples"]))))
        origin.update(fixing.origin(request["source"]))

    return _made(rows(), 0, origin, request, tell)


def mix(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """``{parts, name, seed, home}`` → the kept file."""
    parts, seed = PARTS.validate_python(request["parts"]), request["seed"]
    total, rows = mixed_rows(parts, seed)
    return _made(rows, total, origin_of_mixture(parts, seed), request, tell)


def hub(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """``{name, subset, split, rows_at_most, home}`` → the kept file."""
    rows, origin = hub_rows(request["name"], request["subset"], request["split"], request["rows_at_most"])
    named = {**request, "name": request["name"].replace("/", "_") + ".jsonl"}
    return _made(rows, request["rows_at_most"], origin, named, tell)


def edit(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """``{path, changes, name, source, home}`` → the kept file with a person's changes."""
    path, changes = Path(request["path"]), changes_in(Path(request["changes"]))
    counts = {"edited": len(changes.edits.keys() - changes.excluded), "excluded": len(changes.excluded)}
    origin = {"made": EDITED, "from": request["source"], **counts}
    blocks = edited_blocks(path, path, changes, _seldom(tell))
    kept = write_blocks(blocks, request["name"], origin, Locations(Path(request["home"])))
    said: dict[str, Any] = KEPT_FILE.dump_python(kept, mode="json")
    return said


def _made(
    rows: Iterator[dict[str, Any]], total: int, origin: dict[str, Any], request: dict[str, Any], tell: Tell
) -> dict[str, Any]:
    """Writes the rows as a made data set; ``total``: how many they will be, 0 where that is unknown."""

    def told() -> Iterator[dict[str, Any]]:
        count, say = 0, _seldom(tell)
        for count, row in enumerate(rows, start=1):
            yield row
            say(count, total, count)
        tell([count, max(total, count), count])

    kept = write_rows(told(), request["name"], origin, Locations(Path(request["home"])))
    said: dict[str, Any] = KEPT_FILE.dump_python(kept, mode="json")
    return said


def row_lengths(tables: Iterable[TokenTable], max_length: int, pairs: bool) -> Iterator[RowLength]:
    """The lengths of rows, of a preference row the longer side; tables of raw text, which is never cut, have none."""
    for table in tables:  # one at a time: their tokens together may exceed the memory limit
        if not np.any(table.flags & TokenTable.FLOWS):
            numbers = table.rows[:: 2 if pairs else 1].tolist()
            yield from map(RowLength, numbers, *Measures.of([table], pairs).rows(max_length))


def _seldom(tell: Tell) -> Callable[..., None]:
    """``tell``, called ten times a second at most."""
    last = time.monotonic()

    def say(*numbers: int) -> None:
        nonlocal last
        if time.monotonic() - last > _TELL_SECONDS:
            last = time.monotonic()
            tell(numbers)

    return say


if __name__ == "__main__":
    serve({}, {"examine": examine, "groups": groups, "fix": fix, "mix": mix, "hub": hub, "edit": edit})
