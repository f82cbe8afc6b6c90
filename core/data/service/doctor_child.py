"""``python -m core.data.service.doctor_child``: examines and mends files that the reader left as lists of Examples.

It tells how far it is; whoever asked may end it at any time, since all that it leaves are whole files of the cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from core.contract.config import DataChoice
from core.contract.data import Example
from core.data.doctor.examine import Examination, Setting
from core.data.doctor.findings.lengths import RowLength
from core.data.doctor.fixes import Mending
from core.data.doctor.kept_groups import MOST_ROWS, find_groups
from core.data.files.example_file import examples_in
from core.data.files.made import write_made
from core.data.tokens.facts import Measures
from core.data.tokens.table import TokenTable
from core.machine.children.serve import Tell, give_back_memory, serve
from core.machine.locations import Locations

__all__ = ["examine", "groups", "mend"]

_TELL_SECONDS = 0.1
_READING = 0.8
"""The share of an examination's time that goes by rows; the rest compares them."""


def examine(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """``{examples, usable, choice, seed, max_length, tokens, pairs, kinship}`` → a Checkup.

    ``tokens`` are parts of the token cache, of all rows or of a sample; ``kinship``: where to keep what was found.
    """
    try:
        tables = (table for part in request["tokens"] if (table := TokenTable.load(Path(part))))
        lengths = row_lengths(tables, request["max_length"], request["pairs"])
        choice = DataChoice.model_validate(request["choice"])
        setting = Setting(choice, request["seed"], request["max_length"], lengths)
        examination = Examination(setting, Path(request["kinship"]).parent)
        usable = min(request["usable"], MOST_ROWS)
        word = _Word(tell, usable)
        for number, example in enumerate(islice(examples_in(Path(request["examples"])), MOST_ROWS), start=1):
            examination.add(example)
            word.say(_READING * number / usable)
        for share in examination.steps():
            word.say(_READING + (1 - _READING) * share)
        with suppress(OSError):
            examination.kinship().save(Path(request["kinship"]))
        return examination.checkup().model_dump(mode="json")
    finally:
        give_back_memory()


def groups(request: dict[str, Any], tell: Tell) -> None:
    """``{examples, kinship}``: finds which rows belong together and keeps it there."""
    target = Path(request["kinship"])
    try:
        word = _Word(tell, MOST_ROWS)
        find_groups(
            examples_in(Path(request["examples"])), target.parent, lambda rows: word.say(rows / MOST_ROWS)
        ).save(target)
    finally:
        give_back_memory()


def mend(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """``{examples, fixes, name, source, home}`` → the kept file that was made."""
    mending = Mending([(code, rows) for code, rows in request["fixes"]])
    origin: dict[str, Any] = {}

    def rows() -> Iterator[Example]:
        for example in mending.rows(examples_in(Path(request["examples"]))):
            yield example
            if mending.read % 1000 == 0:
                tell([mending.read, mending.read])
        origin.update(mending.origin(request["source"]))

    return write_made(rows(), request["name"], origin, Locations(Path(request["home"]))).to_json()


def row_lengths(tables: Iterable[TokenTable], max_length: int, pairs: bool) -> Iterator[RowLength]:
    """Each row's tokens; none of raw text, of which nothing is cut. Of a preference row the longer side."""
    for table in tables:  # one at a time: their tokens together may be more than the memory given
        if not np.any(table.flags & TokenTable.FLOWS):
            numbers = table.rows[:: 2 if pairs else 1].tolist()
            yield from map(RowLength, numbers, *Measures.of([table], pairs).rows(max_length))


class _Word:
    """Says now and then how far the work is, in rows."""

    def __init__(self, tell: Callable[[Any], None], rows: int) -> None:
        self._tell, self._rows, self._last = tell, rows, 0.0

    def say(self, share: float) -> None:
        now = time.monotonic()
        if now - self._last > _TELL_SECONDS:
            self._last = now
            self._tell([int(share * self._rows), self._rows])


if __name__ == "__main__":
    serve({}, {"examine": examine, "groups": groups, "mend": mend})
