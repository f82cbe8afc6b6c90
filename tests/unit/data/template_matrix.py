"""A row under a template: its ids against transformers' own, its mask against ``template_judge``."""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

from template_judge import Marks, faults
from template_rows import WORD

from core.contract.data import Example
from core.contract.errors import Fault
from core.data.render.renderer import Renderer
from core.data.render.template import layout_turns, tools_of

Turns = list[dict[str, Any]]
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_IDS = ("", "functions.{name}:{number}", "c{number:08}")
_THOUGHT_KEYS = ("reasoning_content", "thinking", "reasoning", "")


def judged(tokenizer: Any, using: Renderer, example: Example, marks: Marks) -> tuple[str, str]:
    """How a row comes out, and why.

    ``right``; ``unfit``: right, and transformers leaves something out of the row or refuses it; ``otherwise``: not laid
    out as transformers does though that shows everything; ``wrong``; ``refused`` though transformers takes it;
    ``both``: refused by both.
    """
    tools = json.loads(example.tools) if example.tools else None
    rendered = list(_rendered(tokenizer, example, tools))
    fit = [(turns, text) for turns, text in rendered if _shows_all(example, text)]
    try:
        encoded = using.encoded(example)
    except Fault as error:
        return ("refused" if rendered else "both"), error.message
    ids = list(encoded.ids[: len(encoded.ids) - encoded.ended])
    made = tokenizer(encoded.text, add_special_tokens=False, return_offsets_mapping=True)
    if made["input_ids"][: len(ids)] != ids or (not encoded.ended and len(made["input_ids"]) != len(ids)):
        return "wrong", "ids are not the text's"
    same = next((turns for turns, text in fit if text == encoded.text), None)
    turns = layout_turns(example, using.choice) if same is None else same
    given = tools_of(example, using.choice) if same is None else tools

    def render(some: Turns, generation: bool = False) -> str:
        return _render(tokenizer, some, given, generation)

    trained = [label != -100 for label in encoded.labels()][: len(ids)]
    found = list(faults(render, turns, encoded.text, trained, made["offset_mapping"][: len(ids)], marks))
    if found:
        return "wrong", "; ".join(found[:3])
    if same is None:
        return ("otherwise" if fit else "unfit"), ""
    own = tokenizer.apply_chat_template(
        copy.deepcopy(same), tools=copy.deepcopy(tools), tokenize=True, return_dict=False
    )
    return ("right" if own[: len(ids)] == ids else "wrong"), "ids are not transformers'"


def _render(tokenizer: Any, turns: Turns, tools: Any, generation: bool = False) -> str:
    return str(
        tokenizer.apply_chat_template(
            copy.deepcopy(turns), tools=copy.deepcopy(tools), tokenize=False, add_generation_prompt=generation
        )
    )


def _rendered(tokenizer: Any, example: Example, tools: Any) -> Iterator[tuple[Turns, str]]:
    """The row as transformers renders it, in every way that its users write such turns down."""
    keys = _THOUGHT_KEYS if any(message.reasoning for message in example.messages) else ("",)
    for text in (False, True):
        for ids in _IDS:
            for key in keys:
                turns = list(_written(example, text, ids, key))
                try:
                    yield turns, _render(tokenizer, turns, tools)
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
