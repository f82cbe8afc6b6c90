"""A row under a template: its ids against transformers' own, its mask against a second notion of what is trained, on
another principle than ``core.data.render.mask``: whose word is each token's?

The rendering of a row is read word by word. Every word of the model that it shows has to be trained, none of anybody
else's. Between the last word of somebody else and the model's first one, training begins where the rendering that asks
for the turn ends; where the template asks otherwise than it writes, right behind the family's own header. Behind the
model's last word it goes on through the family's end of turn and no further.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from template_rows import WORD

from core.contract.data import Example
from core.contract.errors import Fault
from core.data.render.renderer import Renderer
from core.data.render.template import layout_turns, tools_of

Turns = list[dict[str, Any]]
Render = Callable[..., str]
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_IDS = ("", "functions.{name}:{number}", "c{number:08}")
_THOUGHT_KEYS = ("reasoning_content", "thinking", "reasoning", "")


@dataclass(frozen=True)
class Marks:
    """What a person reads off a template: what stands before an answer, and what may end one."""

    header: str
    ends: tuple[str, ...]


@dataclass(frozen=True)
class _Turn:
    number: int
    mine: bool
    start: int
    stop: int


def _words(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {word for pair in value.items() for one in pair for word in _words(one)}
    if isinstance(value, list):
        return {word for one in value for word in _words(one)}
    return set(WORD.findall(value)) if isinstance(value, str) else set()


def _shown(text: str, turns: Sequence[dict[str, Any]]) -> list[_Turn]:
    """Runs of words of one turn in the order of the text."""
    owner = {word: number for number, turn in enumerate(turns) for word in _words(turn)}
    runs: list[_Turn] = []
    for found in WORD.finditer(text):
        number = owner.get(found.group(), -1)
        if runs and runs[-1].number == number:
            runs[-1] = _Turn(number, runs[-1].mine, runs[-1].start, found.end())
        else:
            mine = number >= 0 and turns[number]["role"] == "assistant"
            runs.append(_Turn(number, mine, found.start(), found.end()))
    return runs


def asked_once(render: Render) -> Render:
    """The same renderings, each made once: several questions about a gap want the same, and so do masks of one row."""
    made: dict[tuple[str, bool], str] = {}

    def asked(turns: Turns, generation: bool = False) -> str:
        key = repr(turns), generation
        if key not in made:
            made[key] = render(turns, generation=generation)
        return made[key]

    return asked


def faults(
    render: Render, turns: Sequence[dict[str, Any]], text: str, trained: Sequence[bool], offsets: Any, marks: Marks
) -> Iterator[str]:
    """What is wrong with a mask; nothing where it is right. ``trained`` and ``offsets`` go token by token."""
    learned = [False] * len(text)
    for (low, high), one in zip(offsets, trained, strict=True):
        learned[low:high] = [one] * (high - low)
    runs = _shown(text, turns)
    for run in runs:
        part = learned[run.start : run.stop]
        if run.mine and not all(part):
            yield f"turn {run.number}: {part.count(False)} of {len(part)} characters untrained"
        if not run.mine and any(part):
            yield f"turn {run.number} of {turns[run.number]['role']}: {part.count(True)} characters trained"
    edges = [_Turn(-1, False, 0, 0), *runs, _Turn(-1, False, len(text), len(text))]
    for before, after in pairwise(edges):
        yield from _gap(render, turns, text, learned, offsets, (before, after), marks)


def _gap(
    render: Render, turns: Any, text: str, learned: list[bool], offsets: Any, around: tuple[_Turn, _Turn], marks: Marks
) -> Iterator[str]:
    """The text that a template writes between two words of two turns."""
    before, after = around
    low, high = before.stop, after.start
    begin = _begin(render, turns, text, after, low, marks) if after.mine else high
    given = begin + _given(render, turns, text, after, begin, marks) if after.mine else high
    end = _end(text, low, begin, learned, marks) if before.mine else low
    silent = any(turn["role"] == "assistant" and not _words(turn) for turn in turns[before.number + 1 : after.number])
    blank_last = after.number < 0 and any(
        turn["role"] == "assistant" and not _words(turn) for turn in turns[before.number + 1 :]
    )
    for what, start, stop, wanted in (
        ("end of", low, end, True), ("between", end, begin, False), ("begin of", given, high, True)
    ):  # fmt: skip
        if what == "between" and (silent or blank_last):
            continue  # an answer without a word: its end may be trained or not
        for place in range(start, stop):
            if learned[place] != wanted and not _shared(offsets, place, start, stop):
                yield (
                    f"{what} turn {after.number if what == 'begin of' else before.number}: "
                    f"{text[start:stop]!r} at {text[place : place + 12]!r} is {'un' * wanted}trained"
                )
                break


def _shared(offsets: Any, place: int, start: int, stop: int) -> bool:
    """Whether the token of this character reaches over the edge, where either side may claim it."""
    return any(low <= place < high and (low < start or high > stop) for low, high in offsets)


def _begin(render: Render, turns: Any, text: str, run: _Turn, low: int, marks: Marks) -> int:
    place = text.find(marks.header, low, run.start) if marks.header.strip() else -1
    asked = _rendered(render, turns[: run.number], generation=True)
    fits = asked and text.startswith(asked) and low <= len(asked) <= run.start
    if fits and (place < 0 or marks.header in asked[low:]):
        return len(asked)
    if place >= 0:
        return place + len(marks.header)
    closed = _rendered(render, turns[: run.number])
    if closed and text.startswith(closed) and low <= len(closed) <= run.start:
        return len(closed)
    lead = WORD.split(str(turns[run.number]["content"]), maxsplit=1)[0]
    if lead.strip() and text[low : run.start].endswith(lead.lstrip()):
        return run.start - len(lead.lstrip())
    return low if not text[low : run.start].strip() else _tag(text, low, run.start)


def _given(render: Render, turns: Any, text: str, run: _Turn, begin: int, marks: Marks) -> int:
    """How much the prompt gives already of what the turn repeats, behind the header; that may be trained or not."""
    asked = _rendered(render, turns[: run.number], True) or _rendered(render, [{"role": "user", "content": "Hi"}], True)
    if not marks.header.strip() or not text[:begin].endswith(marks.header) or marks.header not in asked:
        return 0
    more, same = asked[asked.rindex(marks.header) + len(marks.header) :], 0
    while same < min(len(more), run.start - begin) and more[same] == text[begin + same]:
        same += 1
    return same


def _rendered(render: Render, turns: Any, generation: bool = False) -> str:
    try:
        return render(turns, generation=generation)
    except Exception:
        return ""


def _tag(text: str, low: int, high: int) -> int:
    """No header stands there: the turn goes on behind the words before (a tool's), from where a tag opens."""
    found = re.compile(r"\[?/[A-Z_]+\]|<tool_response\|>|<｜tool▁output▁end｜>(?!<)").search(text, low, high)
    return found.end() if found else high


def _end(text: str, low: int, high: int, learned: list[bool], marks: Marks) -> int:
    places = [(place, -len(end)) for end in marks.ends if end and (place := text.find(end, low, high)) >= 0]
    if not places:
        # No end mark: whatever is trained must follow the words at once, and hold nothing that opens another turn.
        stop = next((place for place in range(low, high) if not learned[place]), high)
        return stop if not marks.header.strip() or marks.header.strip() not in text[low:stop] else low
    place, size = min(places)
    return place - size


def judged(tokenizer: Any, using: Renderer, example: Example, marks: Marks) -> tuple[str, str]:
    """How a row comes out, and why.

    ``right``; ``unfit``: right, and transformers leaves something out of the row or refuses it; ``otherwise``: not laid
    out as transformers does though that shows everything; ``wrong``; ``refused`` though transformers takes it;
    ``both``: refused by both.
    """
    tools = json.loads(example.tools) if example.tools else None
    ways = _written_ways(tokenizer, example, tools)
    try:
        encoded = using.encoded(example)
    except Fault as error:
        return ("refused" if any(True for _ in ways) else "both"), error.message
    ids = list(encoded.ids[: len(encoded.ids) - encoded.ended])
    made = tokenizer(encoded.text, add_special_tokens=False, return_offsets_mapping=True)
    if made["input_ids"][: len(ids)] != ids or (not encoded.ended and len(made["input_ids"]) != len(ids)):
        return "wrong", "ids are not the text's"
    fit, same = False, None
    for written, text in ways:  # up to the first that is the same: the others would be rendered for nothing
        if _shows_all(example, text):
            fit = True
            if text == encoded.text:
                same = written
                break
    turns = layout_turns(example, using.choice) if same is None else same
    given = tools_of(example, using.choice) if same is None else tools

    def render(some: Turns, generation: bool = False) -> str:
        return _render_turns(tokenizer, some, given, generation)

    trained = [label != -100 for label in encoded.targets()][: len(ids)]
    found = list(faults(asked_once(render), turns, encoded.text, trained, made["offset_mapping"][: len(ids)], marks))
    if found:
        return "wrong", "; ".join(found[:3])
    if same is None:
        return ("otherwise" if fit else "unfit"), ""
    own = tokenizer.apply_chat_template(
        copy.deepcopy(same), tools=copy.deepcopy(tools), tokenize=True, return_dict=False
    )
    return ("right" if own[: len(ids)] == ids else "wrong"), "ids are not transformers'"


def _render_turns(tokenizer: Any, turns: Turns, tools: Any, generation: bool = False) -> str:
    return str(
        tokenizer.apply_chat_template(
            copy.deepcopy(turns), tools=copy.deepcopy(tools), tokenize=False, add_generation_prompt=generation
        )
    )


def _written_ways(tokenizer: Any, example: Example, tools: Any) -> Iterator[tuple[Turns, str]]:
    """The row as transformers renders it, in every way that its users write such turns down."""
    keys = _THOUGHT_KEYS if any(message.reasoning for message in example.messages) else ("",)
    tried: list[Turns] = []
    for text in (False, True):
        for ids in _IDS:
            for key in keys:
                turns = list(_written(example, text, ids, key))
                if turns in tried:  # without a call or a thought all ways are one
                    continue
                tried.append(turns)
                try:
                    yield turns, _render_turns(tokenizer, turns, tools)
                except Exception:
                    continue


def _written(example: Example, text: bool, ids: str, key: str) -> Iterator[dict[str, Any]]:
    number = 0
    waiting: list[tuple[str, str]] = []
    for message in example.messages:
        turn: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.role == "tool" and waiting:
            called, name = waiting.pop(0)
            yield {**turn, "tool_call_id": called, "name": name} if ids else turn
            continue
        if message.reasoning and key:
            turn[key] = message.reasoning
        elif message.reasoning:
            turn["content"] = f"<think>\n{message.reasoning}\n</think>\n\n{message.content}".rstrip()
        if message.tool_calls:
            turn["tool_calls"] = []
            for call in json.loads(message.tool_calls):
                given = json.dumps(call["arguments"], ensure_ascii=False) if text else call["arguments"]
                made: dict[str, Any] = {"type": "function", "function": {"name": call["name"], "arguments": given}}
                called = ids.format(name=call["name"], number=number)
                turn["tool_calls"].append({**made, "id": called} if ids else made)
                waiting.append((called, call["name"]))
                number += 1
        yield turn


def _shows_all(example: Example, text: str) -> bool:
    """Whether nothing of a row is left out but thoughts, and what is said beside a call."""
    wanted: set[str] = set()
    for message in example.messages:
        said = "" if message.tool_calls else _THOUGHT.sub("", message.content)
        wanted |= set(WORD.findall(said)) | set(WORD.findall(message.tool_calls))
    asked = [word for message in example.messages if message.role == "user" for word in WORD.findall(message.content)]
    behind = text[text.find(asked[0]) :] if asked else text
    called = any(message.tool_calls for message in example.messages)
    return (
        wanted <= set(WORD.findall(text))
        and (not example.tools or "Look up get_rain" in text)
        and (not called or "get_rain" in behind)
    )
