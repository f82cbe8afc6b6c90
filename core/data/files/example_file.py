"""Examples as JSON lines, by position, by row number, or by search. Memory holds where each line begins, and the result
of the last search for the pages that follow.
"""

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from core.contract.data import Example
from core.contract.methods import BAD, EQUAL, RowKind

_ROW = re.compile(rb'\s*\{\s*"row":\s*(\d+)(?:\s*,\s*("mark":\s*false|"equal":\s*true))?')
_KINDS: dict[bytes, RowKind] = {b"mark": BAD, b"equal": EQUAL}


class ExampleFile:
    """Rows by position, from 0, without those of the kinds ``left_out``; ``numbers`` are their row numbers."""

    def __init__(self, path: Path, left_out: Sequence[str] = ()) -> None:
        self.path, self._left_out = path, left_out
        self.numbers = array("Q")
        self._offsets = array("Q")
        self._last_search: tuple[str, list[int]] = ("", [])
        place = 0
        with path.open("rb") as stream:
            for line in stream:
                if not left_out or _kind_in(line) not in left_out:
                    self._offsets.append(place)
                    self.numbers.append(_number_in(line))
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
            chosen = [place for place, number in enumerate(self.numbers) if number in wanted]
        needle = search.casefold()
        if not needle:
            return chosen
        if self._last_search[0] != needle:
            # Only lines whose JSON holds the needle are parsed.
            written = json.dumps(needle, ensure_ascii=False)[1:-1]
            with self.path.open("rb") as stream:
                lines = enumerate(line for line in stream if _kind_in(line) not in self._left_out)
                likely = ((place, line) for place, line in lines if written in line.decode().casefold())
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


def examples_in(path: Path, left_out: Sequence[str] = ()) -> Iterator[Example]:
    """All Examples of a file in order, without those of the kinds ``left_out``."""
    with path.open("rb") as lines:
        for line in lines:
            if not left_out or _kind_in(line) not in left_out:
                yield Example.model_validate_json(line)


def kinds_in(path: Path) -> Iterator[tuple[int, RowKind | None]]:
    """The row number of each line, and ``Example.kind``."""
    with path.open("rb") as lines:
        for line in lines:
            yield _number_in(line), _kind_in(line)


def _number_in(line: bytes) -> int:
    head = _ROW.match(line)
    return int(head[1]) if head else Example.model_validate_json(line).row


def _kind_in(line: bytes) -> RowKind | None:
    """``Example.kind`` of a line, without reading the whole of it."""
    head = _ROW.match(line)
    return _KINDS[head[2].split(b'"')[1]] if head and head[2] else None


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
