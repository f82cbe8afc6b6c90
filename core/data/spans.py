"""Where the answers stand in a rendered conversation, for any chat template.

A template is a program: it may trim, add, move or reorder. So nothing is guessed from its source. It is asked twice:
once with the real messages and once with every answer replaced by a marker::

    real       <|user|>Hi<|end|><|assistant|>Hello there<|end|>
    skeleton   <|user|>Hi<|end|><|assistant|>   MARK    <|end|>
               └──────── piece 0 ────────────┘        └ piece 1 ┘

The pieces are laid over the real text; what lies between two of them is an answer. A piece may hold text that the
template writes *into* the answer (Qwen3's empty ``<think>`` block): an answer therefore begins where the generation
prompt (the *header*) ends, which is where the model itself begins to write. Where an answer's own text changes what the
template writes around it, the markers are put behind the answers instead, and give their ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from core.contract.errors import DataError

__all__ = ["Ending", "Turns", "find_answers"]

Turns = Sequence[dict[str, Any]]
Render = Callable[[Turns], str]


@dataclass(frozen=True)
class Ending:
    """What a template writes right behind an answer (``text``), and the special tokens that may end one."""

    text: str
    specials: tuple[str, ...] = ()

    def after(self, text: str, stop: int) -> int:
        """The position behind the end of turn that stands at ``stop``; ``stop`` itself where there is none."""
        if self.text.strip() and text.startswith(self.text, stop):
            return stop + len(self.text)
        if not self.specials:
            return stop
        found = _enders(self.specials).match(text, stop)
        return found.end() if found else stop


@lru_cache(maxsize=8)
def _enders(specials: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(r"\s*(?:" + "|".join(map(re.escape, specials)) + ")")


def find_answers(render: Render, turns: Turns, header: str, ending: Ending) -> tuple[str, list[tuple[int, int]]]:
    """The rendered conversation and the character ranges of its answers, each through its end of turn.

    Raises:
        DataError: the template leaves an answer out, repeats it, or changes it beyond recognition.
    """
    text = render(turns)
    answers = [number for number, turn in enumerate(turns) if turn["role"] == "assistant"]
    if not answers:
        return text, []
    marks = _marks(len(answers), text)
    pieces = _split(render(_marked(turns, answers, marks)), marks)
    if pieces is None:
        raise _lost("leaves an answer out or repeats it")
    stops = _walk(text, pieces, [_anchor(turns[number]) for number in answers])
    if stops is None:
        stops = _ends(render, turns, answers, text, marks)
    if stops is None:
        raise _lost("changes the answers so that they cannot be found again")
    calls = [bool(turns[number].get("tool_calls")) for number in answers]
    ranges = _ranges(text, pieces, stops, calls, (header, ending))
    return text, ranges if header else list(_from_the_question(render, turns, answers, text, ranges))


def _from_the_question(
    render: Render, turns: Turns, answers: list[int], text: str, ranges: list[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Without a generation prompt the model writes on right behind the question: blanks before an answer are its own.

    Other text that stands there (a role's name that the template never asks with) is not.
    """
    for number, (start, stop) in zip(answers, ranges, strict=True):
        try:
            before = render(turns[:number])
        except DataError:
            before = text
        begun = len(before)
        whole_call = bool(turns[number].get("tool_calls"))
        own = begun <= start and text.startswith(before) and (whole_call or not text[begun:start].strip())
        yield (begun if own else start), stop


def _ranges(
    text: str, pieces: list[str], stops: list[int], calls: list[bool], around: tuple[str, Ending]
) -> list[tuple[int, int]]:
    header, ending = around
    found: list[tuple[int, int]] = []
    position = 0
    for number, stop in enumerate(stops):
        head = _head(pieces[number], header)
        # Behind the last end there may be text that depends on the answer before; then the header itself is looked for.
        if text.startswith(head, position):
            start = position + len(head)
        else:
            start = text.rfind(header, position, stop) + len(header) if header else -1
        if not position <= start <= stop:
            raise _lost("writes an answer without the header that asks for it")
        if calls[number]:
            stop = max(stop, text.find(ending.text, stop))
        found.append((start, ending.after(text, stop)))
        position = stops[number]
    return found


def _head(piece: str, header: str) -> str:
    place = piece.rfind(header) if header else -1
    return piece if place < 0 else piece[: place + len(header)]


def _walk(text: str, pieces: list[str], contents: list[str]) -> list[int] | None:
    """Where each answer ends, if the pieces lie unchanged around the answers (whole, or trimmed)."""
    stops: list[int] = []
    position = 0
    for number, content in enumerate(contents):
        position += len(pieces[number])
        behind = pieces[number + 1]
        last = number + 1 == len(contents)
        for variant in dict.fromkeys((content, content.strip(), content.lstrip(), content.rstrip())):
            stop = position + len(variant)
            closes = text[stop:] == behind if last else text.startswith(behind, stop)
            if closes and text.startswith(variant, position):
                break
        else:
            return None
        stops.append(stop)
        position = stop
    return stops if text.startswith(pieces[0]) else None


def _ends(render: Render, turns: Turns, answers: list[int], text: str, marks: list[str]) -> list[int] | None:
    """Where each answer ends, by markers put behind the answers; None where that changes anything else."""
    contents = [_anchor(turns[number]) for number in answers]
    for behind in (contents, [content.rstrip() for content in contents]):
        marked = [content + mark for content, mark in zip(behind, marks, strict=True)]
        pieces = _split(render(_marked(turns, answers, marked)), marks)
        if pieces is not None and "".join(pieces) == text:
            return [sum(map(len, pieces[: number + 1])) for number in range(len(marks))]
    return None


def _marks(count: int, text: str) -> list[str]:
    """Markers of letters and digits only, so that no trim, escape or split touches them."""
    stem = "Xmark"
    while stem in text:
        stem += "x"
    return [f"{stem}{number}Q" for number in range(count)]


def _split(text: str, marks: list[str]) -> list[str] | None:
    pieces: list[str] = []
    position = 0
    for mark in marks:
        place = text.find(mark, position)
        if place < 0 or text.count(mark) != 1:
            return None
        pieces.append(text[position:place])
        position = place + len(mark)
    return [*pieces, text[position:]]


def _anchor(turn: dict[str, Any]) -> str:
    """The text of an answer that markers take the place of: its content, or the name of the function that it calls."""
    calls = turn.get("tool_calls")
    return str(calls[-1]["function"]["name"] if calls else turn["content"])


def _marked(turns: Turns, answers: list[int], texts: list[str]) -> list[dict[str, Any]]:
    marked = list(turns)
    for number, text in zip(answers, texts, strict=True):
        turn = marked[number]
        if calls := turn.get("tool_calls"):
            last = {**calls[-1], "function": {**calls[-1]["function"], "name": text}}
            marked[number] = {**turn, "tool_calls": [*calls[:-1], last]}
        else:
            marked[number] = {**turn, "content": text}
    return marked


def _lost(what: str) -> DataError:
    return DataError(
        "data.template_answers",
        f"Expected a chat template that writes each answer once, found one that {what}.",
        "Choose the template ChatML, or another model.",
    )
