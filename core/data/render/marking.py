"""Where each turn's words stand in a rendered conversation, for any chat template.

A template may trim, escape, leave out, add, move or reorder. So marks are put around the words of every turn, and the
conversation is rendered once more::

    real     <|user|>Hi<|end|><|assistant|>Hello there<|end|>
    marked   <|user|>①Hi②<|end|><|assistant|>③Hello there④<|end|>

If the marked rendering without its marks equals the real one, the marks stand where the words do. A mark is letters and
digits only, which no trim, escape or JSON touches; it stands inside the blanks at a text's edges and inside thinking
tags, since templates look for these at the beginning of a text. Where marks change what a template writes, a turn gets
fewer of them.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.contract.errors import DataError

Turns = Sequence[dict[str, Any]]
_TAGS = re.compile(r"(<\|?/?[a-z_]*:?think(?:ing)?(?::[a-z]+)?\|?>|\[/?THINK\])")
_THOUGHTS = re.compile(r"<think>.*?</think>|\[THINK\].*?\[/THINK\]", re.DOTALL)
_UNSAID = frozenset({"role", "name", "tool_call_id"})


def thoughtless(content: str) -> str:
    """An answer without its thoughts, which a template may leave out."""
    return _THOUGHTS.sub("", content)


def untagged(text: str) -> str:
    """A text without thinking tags."""
    return "".join(_TAGS.split(text)[::2])


def unthinking(text: str) -> str:
    """A text up to its first thinking tag."""
    return _TAGS.split(text, maxsplit=1)[0]


class Place(NamedTuple):
    """A mark in a rendering: its turn, its number within the turn, and its position in the text without marks."""

    turn: int
    number: int
    at: int
    name: bool
    """In the name of a function or argument, which a template may repeat where a tool answers."""


@dataclass(frozen=True)
class _Marks:
    """The marks that a turn gets: before and behind its texts, in an empty one, in names of functions and arguments."""

    before: bool = True
    behind: bool = True
    blank: bool = False
    names: bool = True


_ALL = _Marks(blank=True)
_FEWER = (_Marks(), _Marks(before=False), _Marks(behind=False), _Marks(names=False), _Marks(before=False, names=False))
"""From the most marks to the fewest."""


class Marker:
    """The marks of one conversation. Args: render: turns to text; turns: the conversation; text: what it renders to."""

    def __init__(self, render: Callable[[Turns], str], turns: Turns, text: str) -> None:
        self._render = render
        self._turns = turns
        self._text = text
        self._stem = "Xq"
        while self._stem in text:
            self._stem += "x"
        self._mark = re.compile(self._stem + r"(\d+)([nc])(\d+)Q")
        self.turns: list[dict[str, Any]] = list(turns)
        """The turns with those marks that do not change the text."""

    def places(self) -> list[Place] | None:
        """All marks in the order of the text; None where every mark on some answer changes the text."""
        blank = any(_is_blank(turn) for turn in self._turns)
        for marks in (_ALL, _Marks())[not blank :]:
            places = self._tried([self._marked(number, marks) for number in range(len(self._turns))])
            if places is not None:
                return places
        turns = [self._alone(number) for number in range(len(self._turns))]
        same = [turn["role"] == "assistant" and turn == own for turn, own in zip(turns, self._turns, strict=True)]
        lost = any(unmarked and not _is_blank(turn) for unmarked, turn in zip(same, turns, strict=True))
        return None if lost else self._tried(turns)

    def lead(self, number: int) -> str:
        """What a turn says before its first mark: blanks, and thinking tags."""
        content = str(self.turns[number]["content"])
        match = self._mark.search(content)
        return content[: match.start()] if match else ""

    def trail(self, number: int) -> str:
        """What a turn says behind its last mark: blanks, and thinking tags."""
        return self._mark.split(str(self.turns[number]["content"]))[-1]

    def read(self, marked: str) -> tuple[str, list[Place]]:
        """The text of a marked rendering without its marks, and the marks."""
        places, pieces, position, at = [], [], 0, 0
        for match in self._mark.finditer(marked):
            pieces.append(marked[position : match.start()])
            at += match.start() - position
            position = match.end()
            places.append(Place(int(match[1]), int(match[3]), at, match[2] == "c"))
        return "".join([*pieces, marked[position:]]), places

    def _tried(self, turns: list[dict[str, Any]]) -> list[Place] | None:
        """The marks of these turns, which are kept; None where the marks change the text."""
        try:
            text, places = self.read(self._render(turns))
        except DataError:
            return None
        if text != self._text:
            return None
        self.turns = turns
        return places

    def _alone(self, number: int) -> dict[str, Any]:
        """The turn with the most marks that do not change the text while the other turns have none."""
        for marks in (_ALL, *_FEWER):
            turn = self._marked(number, marks)
            if self._tried([*self._turns[:number], turn, *self._turns[number + 1 :]]) is not None:
                return turn
        return self._turns[number]

    def _marked(self, number: int, marks: _Marks) -> dict[str, Any]:
        return _Marking(f"{self._stem}{number}", marks).turn(self._turns[number])


class _Marking:
    def __init__(self, stem: str, marks: _Marks) -> None:
        self._stem = stem
        self._marks = marks
        self._count = 0

    def turn(self, turn: dict[str, Any]) -> dict[str, Any]:
        made = {
            key: self._said(value) if isinstance(value, str) and key not in _UNSAID else value
            for key, value in turn.items()
        }
        if self._marks.blank and _is_blank(turn):
            made["content"] += self._new()
        if calls := turn.get("tool_calls"):
            marked = []
            for call in calls:
                function = dict(call["function"])
                if self._marks.names:
                    function["name"] = f"{self._new(True)}{function['name']}{self._new(True)}"
                function["arguments"] = self._arguments(function["arguments"])
                marked.append({**call, "function": function})
            made["tool_calls"] = marked
        return made

    def _new(self, name: bool = False) -> str:
        self._count += 1
        return f"{self._stem}{'nc'[name]}{self._count}Q"

    def _said(self, text: str) -> str:
        if "hink" not in text and "THINK" not in text:
            return self._around(text)
        return "".join(part if place % 2 else self._around(part) for place, part in enumerate(_TAGS.split(text)))

    def _around(self, text: str) -> str:
        core = text.strip()
        if not core:
            return text
        start = text.index(core)
        before = self._new() if self._marks.before else ""
        behind = self._new() if self._marks.behind else ""
        return f"{text[:start]}{before}{core}{behind}{text[start + len(core) :]}"

    def _arguments(self, value: Any) -> Any:
        """Texts within arguments, and their keys; arguments that are written as JSON stay JSON."""
        if not isinstance(value, str):
            return self._within(value)
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return self._around(value)
        again = json.dumps(parsed, ensure_ascii=False)
        return json.dumps(self._within(parsed), ensure_ascii=False) if again == value else value

    def _within(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                (key + self._new(True) if self._marks.names else key): self._within(one) for key, one in value.items()
            }
        if isinstance(value, list):
            return [self._within(one) for one in value]
        return self._around(value) if isinstance(value, str) else value


def _is_blank(turn: dict[str, Any]) -> bool:
    return not turn["content"].strip() and not turn.get("tool_calls")
