"""Which characters of a rendered conversation are trained: each answer, through its end of turn.

``marking`` says where every turn's words stand. What lies between the last word of one turn and the first of the next
is the template's (a *gap*). Only there an answer may begin or end, so that none reaches into another turn.

- It begins where the model begins to write: behind what the template writes when it asks for this very turn. A template
  may ask with an open ``<think>`` and write the turn without one: then it begins where the two differ.
- It ends behind the turn's end mark: what the template writes behind this turn both as the last one and in its place.

A row whose answers cannot be determined so is refused.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Protocol

from core.contract.errors import DataError
from core.data.render.marking import Marker, Place, Turns, thoughtless, untagged, unthinking

_PIECE = re.compile(r"<[^<>]+>|\[[^\[\]]+\]|\w+")
"""A tag or a word."""
Ranges = list[tuple[int, int]]


class Render(Protocol):
    """Renders turns to text; ``generation``: asking for an answer. Raises DataError where the template refuses them."""

    def __call__(self, turns: Turns, *, generation: bool = False) -> str: ...


@dataclass(frozen=True)
class Opening:
    """What a template writes behind a question to ask for an answer (``asked``), or before an answer where it never
    asks (``unasked``)."""

    asked: str
    unasked: str = ""


@dataclass(frozen=True)
class Ending:
    """What a template writes right behind an answer (``text``), and the special tokens that may end one."""

    text: str
    specials: tuple[str, ...] = ()

    def directly(self, gap: str) -> int:
        """The length of the end mark that the gap begins with, blanks before it included; 0 where there is none."""
        if not self.text.strip():
            return 0
        if gap.startswith(self.text):
            return len(self.text)
        blanks = len(gap) - len(gap.lstrip())
        end = self.text.lstrip()
        return blanks + len(end) if gap.startswith(end, blanks) else 0

    def within(self, gap: str, own: int, close: bool) -> int:
        """The position behind the end mark in the first ``own`` characters, which surely are the turn's; 0 for none.

        ``close``: the gap ends at the very next turn, so that an answers' end mark in it is this turn's.
        """
        if self.text.strip() and (place := gap.find(self.text)) >= 0:
            stop = place + len(self.text)
            if stop <= own or (close and not self.special_tokens(gap[own:place])):
                return stop
        tokens = self.special_tokens(gap[:own])
        last = self.special_tokens(self.text)
        for token, stop in tokens:
            if last and token == last[-1][0]:
                return stop
        return tokens[-1][1] if tokens else 0

    def special_tokens(self, text: str) -> list[tuple[str, int]]:
        """The special tokens of a text, each with the position behind it."""
        if not self.specials:
            return []
        return [(one[0], one.end()) for one in self._any.finditer(text)]

    @cached_property
    def _any(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self.specials)))

    def next_to(self, gap: str, opening: str) -> int:
        """The position behind a special token that follows an answer directly and begins no turn; 0 for none."""
        tokens = self.special_tokens(gap)
        if not tokens:
            return 0
        token, stop = tokens[0]
        opens = token in opening or (len(tokens) == 1 and self.text.strip())
        return 0 if opens or gap[:stop].strip() != token else stop


def alike(one: str, other: str) -> int:
    """The length of the common beginning of two texts, without a tag or word in which they differ."""
    size = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), -1)
    if size < 0:
        size = min(len(one), len(other))
    if size == len(one) or not size:
        return size
    tag = max(one.rfind(opens, 0, size) for opens in "<[")
    if tag > max(one.rfind(closes, 0, size) for closes in ">]"):
        return tag
    while one[size].isalnum() and size and one[size - 1].isalnum():
        size -= 1
    return size


def find_answers(render: Render, turns: Turns, opening: Opening, ending: Ending) -> tuple[str, list[Ranges]]:
    """The rendered conversation and the character ranges of each of its answers, through its end of turn.

    Mostly one range an answer; none for an empty one that is not shown; several where the template writes what was said
    beside a call behind the tool's answer.

    Raises:
        DataError: the template refuses the conversation, or its answers cannot be determined.
    """
    text = render(turns)
    if not any(turn["role"] == "assistant" for turn in turns):
        return text, []
    marker = Marker(render, turns, text)
    places = marker.places()
    if places is None:
        raise _lost("changes the turns so that they cannot be found again")
    finder = _Finder(render, marker, places, text, (opening, ending))
    return text, [finder.ranges(number) for number, turn in enumerate(turns) if turn["role"] == "assistant"]


class _Finder:
    """The edges of the answers of one conversation."""

    def __init__(
        self, render: Render, marker: Marker, places: list[Place], text: str, around: tuple[Opening, Ending]
    ) -> None:
        self._render = render
        self._marker = marker
        self._places = _once(places)
        self._text = text
        self._opening, self._ending = around
        self._rows: dict[int, list[int]] = {}
        for row, place in enumerate(self._places):
            self._rows.setdefault(place.turn, []).append(row)

    def ranges(self, number: int) -> Ranges:
        """The ranges of one answer, ascending."""
        turn = self._marker.turns[number]
        said = bool(turn.get("tool_calls") or thoughtless(turn["content"]).strip())
        rows = self._rows.get(number, [])
        runs = list(_runs(rows))
        if not runs and said:
            raise _lost("leaves an answer out")
        if len({self._places[row].number for row in rows}) < len(rows):
            raise _lost("writes an answer twice")
        if len(runs) > 1 and not turn.get("tool_calls"):
            raise _lost("mixes an answer with other turns")
        spans = [self._range(number, run, first=not place) for place, run in enumerate(runs)]
        if None in spans and said:
            raise _lost("writes an answer otherwise than it asks for one")
        return [span for span in spans if span and span[0] < span[1]]

    def _range(self, number: int, run: tuple[int, int], first: bool) -> tuple[int, int] | None:
        """The range of a ``run`` of a turn's marks; one that is not its ``first`` begins with its own first word."""
        opens, closes = (self._places[row].at for row in run)
        low = self._places[run[0] - 1].at if run[0] else 0
        high = self._places[run[1] + 1].at if run[1] + 1 < len(self._places) else len(self._text)
        begin = self._begin(number, run[0], low) if first else self._first(number, opens)
        stop = self._stop(number, run[1], high)
        return (begin, stop) if begin is not None and low <= begin <= opens <= closes <= stop <= high else None

    def _begin(self, number: int, row: int, low: int) -> int | None:
        """Where the model begins to write this turn: from ``low``, behind the words before, to its own first word."""
        first = self._places[row].at
        gap = self._text[low:first]
        before = self._marker.turns[number - 1]["role"] if number else ""
        header = whole = _behind_one(gap, self._opening.asked)
        if header is None:
            header = _behind_one(gap, unthinking(self._opening.asked))
        if header is not None and (before == "assistant" or whole is not None):
            return low + header
        asking = self._behind(number, row, generation=True)
        closed = self._behind(number, row)
        if asking is None or len(asking) < len(closed or ""):
            if header is None and not number and not self._marker.turns[number].get("tool_calls"):
                return self._first(number, first)
            return None if header is None else low + header
        same = min(alike(asking, self._text[low:]), first - low)
        if same == len(asking):
            return low + same + (self._silent(number, low + same, first) if asking == closed else 0)
        parts = closed is not None and asking != closed and asking.startswith(closed)
        sure = len(closed or "") if parts else 0
        if asking[sure:same].strip():
            return low + same
        if header is not None:
            return low + header
        # The header is missing: behind a tool's answer, the turn before may go on without one.
        tags = _PIECE.findall(unthinking(asking[sure:]))
        silent = parts and sure <= same and not any(one in gap[sure:] for one in tags or [asking[sure:]])
        return low + sure if before in ("tool", "assistant") and silent else None

    def _first(self, number: int, mark: int) -> int:
        """Where a turn's own words begin, with the tags and blanks before its first mark."""
        lead = self._marker.lead(number)
        return mark - next((len(one) for one in (lead, lead.lstrip()) if self._text[:mark].endswith(one)), 0)

    def _behind(self, number: int, row: int, generation: bool = False) -> str | None:
        """What the template writes behind the last word of the conversation up to this turn."""
        try:
            text, marks = self._marker.read(self._render(self._marker.turns[:number], generation=generation))
        except DataError:
            return None
        places = _once(marks)
        if not row:
            return None if places else text
        before = self._places[row - 1]
        same = places and (places[-1].turn, places[-1].number) == (before.turn, before.number)
        return text[places[-1].at :] if same else None

    def _silent(self, number: int, begin: int, first: int) -> int:
        """The length of the turn's header at ``begin`` where the template never asks; blanks are the model's own."""
        silent = self._opening.unasked
        if silent.strip() and self._text.startswith(silent, begin):
            return len(silent)
        between = self._text[begin:first]
        calls = self._marker.turns[number].get("tool_calls")
        return len(between) if untagged(between).strip() and not calls else 0

    def _stop(self, number: int, row: int, high: int) -> int:
        """The position behind the end mark of a turn, at most ``high``, the next turn's first word."""
        last = self._places[row].at
        gap = self._text[last:high]
        trail = self._marker.trail(number)
        said = next((len(one) for one in (trail, trail.rstrip(), trail.strip()) if one and gap.startswith(one)), 0)
        if size := self._ending.directly(gap[said:]):
            return last + said + size
        after = self._places[row + 1].turn if row + 1 < len(self._places) else len(self._marker.turns)
        close = after == number + 1
        if close and (size := self._ending.within(gap, 0, close)):
            return last + size
        calls = self._marker.turns[number].get("tool_calls")
        own = self._own(number, row, gap)
        size = self._ending.within(gap, len(own), close)
        if not size:
            size = len(own.rstrip()) if calls or not own.strip() else 0
            size += self._ending.next_to(gap[size:], self._opening.asked)
        return last + size

    def _own(self, number: int, row: int, gap: str) -> str:
        """The beginning of the gap that surely is this turn's: it also stands there where the turn is the last."""
        turns = self._marker.turns
        if number + 1 == len(turns):
            return gap
        try:
            text, marks = self._marker.read(self._render(turns[: number + 1]))
        except DataError:
            return ""
        place = self._places[row]
        ends = [*((one.turn, one.number, one.at) for one in _once(marks)), (-1, -1, len(text))]
        here = [row for row, end in enumerate(ends) if end[:2] == (place.turn, place.number)]
        alone = text[ends[here[0]][2] : ends[here[0] + 1][2]] if here else ""
        return gap[: alike(alone, gap)]


def _runs(rows: list[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive numbers."""
    for _, run in groupby(enumerate(rows), lambda one: one[1] - one[0]):
        numbers = [number for _, number in run]
        yield numbers[0], numbers[-1]


def _once(places: list[Place]) -> list[Place]:
    """The places without repeated names."""
    if not any(place.name for place in places):
        return places
    first = {(place.turn, place.number): place for place in reversed(places)}
    return [place for place in places if not place.name or first[place.turn, place.number] is place]


def _behind_one(gap: str, header: str) -> int | None:
    """The position behind the only ``header`` in a gap; None where there is none, or several."""
    return gap.index(header) + len(header) if header.strip() and gap.count(header) == 1 else None


def _lost(what: str) -> DataError:
    return DataError("data.template_answers/not_once", what=what)
