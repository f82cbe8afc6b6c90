"""Examples as JSON lines, by position, by row number, or by search. Memory holds where each line begins, and the result
of the last search for the pages that follow.
"""

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from core.contract.data import Example

_ROW = re.compile(rb'\s*\{\s*"row":\s*(\d+)')


class ExampleFile:
    """Rows by position, from 0."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets, self._numbers = array("Q"), array("Q")
        self._last_search: tuple[str, list[int]] = ("", [])
        place = 0
        with path.open("rb") as stream:
            for line in stream:
                self._offsets.append(place)
                head = _ROW.match(line)
                self._numbers.append(int(head[1]) if head else Example.model_validate_json(line).row)
                place += len(line)

    def __len__(self) -> int:
        return len(self._offsets)

    def at(self, positions: Iterable[int]) -> Iterator[Example]:
        """The rows at these positions."""
        with self.path.open("rb") as stream:
            for position in positions:
                stream.seek(self._offsets[position])
                yield Example.model_validate_json(stream.readline())

    def matching(self, search: str, numbers: Sequence[int]) -> Sequence[int]:
        """Positions of the rows with these row numbers whose texts hold ``search``; without either, all."""
        wanted = set(numbers)
        chosen: Sequence[int] = range(len(self))
        if wanted:
            chosen = [place for place, number in enumerate(self._numbers) if number in wanted]
        needle = search.casefold()
        if not needle:
            return chosen
        if self._last_search[0] != needle:
            # Only lines whose JSON holds the needle are parsed.
            written = json.dumps(needle, ensure_ascii=False)[1:-1]
            with self.path.open("rb") as stream:
                likely = ((place, line) for place, line in enumerate(stream) if written in line.decode().casefold())
                self._last_search = (needle, [place for place, line in likely if _holds(json.loads(line), needle)])
        among = set(chosen) if wanted else range(len(self))
        return [place for place in self._last_search[1] if place in among]


def _holds(value: object, needle: str) -> bool:
    """Whether any text of a row but its roles holds the needle."""
    if isinstance(value, str):
        return needle in value.casefold()
    if isinstance(value, list):
        return any(_holds(one, needle) for one in value)
    if isinstance(value, dict):
        return any(_holds(one, needle) for name, one in value.items() if name != "role")
    return False


def examples_in(path: Path) -> Iterator[Example]:
    """All Examples of a file in order."""
    with path.open("rb") as lines:
        for line in lines:
            yield Example.model_validate_json(line)


def in_groups(examples: Iterable[Example], rows: int, characters: int) -> Iterator[list[Example]]:
    """Examples in groups of at most ``rows``; a group also ends with the row that brings it to ``characters``."""
    group: list[Example] = []
    room = characters
    for example in examples:
        group.append(example)
        room -= example.characters
        if len(group) == rows or room <= 0:
            yield group
            group, room = [], characters
    if group:
        yield group
