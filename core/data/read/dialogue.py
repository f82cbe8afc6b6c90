"""A conversation in any of the usual spellings, as turns.

============================================  =================================================================
``{"from", "value"}``, ``{"role", "content"}``  ShareGPT's and OpenAI's turns, keys mixed as files mix them
``content: [{"type", "text" | "value"}]``      parts: text, reasoning, calls and their results (``_PARTS``)
``{"role": [...], "content": [...]}``          the same turns as lists, as the hub's Sequence keeps them
``{"human": ..., "assistant": ...}``           Firefly's turns: a question with its answer, keyed by who speaks
``"\\n\\nHuman: ...\\n\\nAssistant: ..."``         HH-RLHF's transcript, one text
``reasoning_content``, ``weight``              what was thought before an answer; 0: an answer that is not learned
============================================  =================================================================
"""

import re
from collections.abc import Iterator
from typing import Any, Literal

from core.contract.data import Message
from core.data.read.cells import RowError, as_json, kind_of, parsed, text_of

Speaker = Literal["system", "user", "assistant", "tool"]
_SPEAKERS: dict[str, Speaker] = {
    "system": "system", "developer": "system",
    "human": "user", "user": "user", "prompter": "user",
    "gpt": "assistant", "assistant": "assistant", "bot": "assistant", "chatgpt": "assistant", "model": "assistant",
    "function_call": "assistant", "tool_call": "assistant",
    "observation": "tool", "tool": "tool", "function": "tool", "function_response": "tool", "ipython": "tool",
}  # fmt: skip
_CALLERS = ("function_call", "tool_call")
_Kind = Literal["text", "reasoning", "call", "result"]
_WORDS: tuple[_Kind, _Kind] = ("text", "reasoning")
_CONTENT = ("value", "content", "text")
_REASONING = ("reasoning_content", "reasoning", "thinking")
_WEIGHT = ("weight", "loss_weight")
_PARTS: dict[str, _Kind] = {
    "text": "text", "input_text": "text", "output_text": "text",
    "reasoning": "reasoning", "thinking": "reasoning",
    "tool_call": "call", "tool_use": "call",
    "tool_result": "result",
}  # fmt: skip
"""Types of parts of a content."""
_MEDIA = ("image", "video", "audio", "input_", "file", "document")
"""How types of parts begin that are no words."""
TURN_KEYS = frozenset({"from", "role", "tool_calls", "function_call", *_CONTENT, *_REASONING, *_WEIGHT})
"""What of a turn is read."""
_TRANSCRIPT = re.compile(r"(?:\A\s*|\n\n)(Human|Assistant):")


def read_turns(value: Any, column: str, alone: Speaker = "user") -> list[Message]:
    """The turns of a cell; a plain text is one turn of ``alone``. Raises RowError."""
    if isinstance(value, str):
        turns = parsed(value) if value.lstrip().startswith("[") else None
        if not is_turns(turns):
            return _transcript(value, column) or [said(alone, text_of(value, column))]
        value = turns
    if isinstance(value, dict):
        value = _apart(value) or [value]
    if is_parts(value):
        value = [{"role": alone, "content": value}]
    if not isinstance(value, list):
        raise RowError("row.type", f"{column} is {kind_of(value)}, expected a list of turns")
    if not value:
        raise RowError("row.empty", f"{column} is empty")
    return [turn for number, raw in enumerate(value, start=1) for turn in _turn(raw, f"turn {number} of {column}")]


def is_turns(value: Any) -> bool:
    """Whether a cell is a list of turns."""
    return isinstance(value, list) and bool(value) and all(isinstance(turn, dict) for turn in value)


def turn_keys(cell: Any) -> set[str]:
    """The keys of the first turn of a cell that is a list of turns, or its JSON text; else none."""
    turns = parsed(cell) if isinstance(cell, str) and cell.lstrip().startswith("[") else cell
    if isinstance(turns, dict) and _apart(turns):
        return set(turns)
    told = isinstance(turns, list) and turns and isinstance(turns[0], dict) and not is_parts(turns)
    return set(turns[0]) if told else set()


def is_parts(value: Any) -> bool:
    """Whether a cell is the parts of one content."""
    return is_turns(value) and all("type" in part and {"role", "from"}.isdisjoint(part) for part in value)


def parts_text(value: list[Any], where: str) -> str:
    """The text of parts that stand alone. Raises RowError where they hold more than words."""
    texts = {kind for part in value if (kind := part.get("type")) and _PARTS.get(str(kind), "text") != "text"}
    if texts:
        raise RowError("row.part", f"{where} holds a part of type {min(map(str, texts))}, expected text")
    return _content(value, where, has_calls=False)[0]


def _apart(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The turns of an object of lists; none where it is no such object."""
    if {"role", "from"}.isdisjoint(value) or not all(isinstance(one, list) for one in value.values()):
        return []
    if len({len(one) for one in value.values()}) > 1:
        return []
    return [dict(zip(value, turn, strict=True)) for turn in zip(*value.values(), strict=True)]


def are_spoken(keys: set[str]) -> bool:
    """Whether a turn with these keys is keyed by who speaks."""
    return bool(keys) and {key.lower() for key in keys} <= _SPEAKERS.keys()


def said(role: Speaker, content: str) -> Message:
    """A plain turn."""
    return Message(role=role, content=content)


def _transcript(text: str, column: str) -> list[Message]:
    """The turns of a transcript as in HH-RLHF, without an empty last one; none where the text is no transcript."""
    if not text.lstrip().startswith("Human:") or "\n\nAssistant:" not in text:
        return []
    _, *pieces = _TRANSCRIPT.split(text_of(text, column))
    turns = [said(_SPEAKERS[who.lower()], words.strip()) for who, words in zip(pieces[::2], pieces[1::2], strict=True)]
    return turns if turns[-1].content else turns[:-1]


def _turn(turn: Any, where: str) -> Iterator[Message]:
    if not isinstance(turn, dict):
        raise RowError("row.type", f"{where} is {kind_of(turn)}, expected an object")
    said_by = turn["from"] if "from" in turn else turn.get("role")
    if said_by is None and are_spoken({str(key) for key in turn}):
        for who, words in turn.items():
            yield said(_SPEAKERS[who.lower()], text_of(words, f"{who} in {where}"))
        return
    speaker = _SPEAKERS.get(said_by.lower()) if isinstance(said_by, str) else None
    if speaker is None:
        raise RowError("row.role", f"{where} is said by {said_by!r}, expected user, assistant, system or tool")
    calls = turn.get("tool_calls") or turn.get("function_call")
    parts = turn.get("content")
    if isinstance(parts, list) and any(map(_is_result, parts)):
        for result in filter(_is_result, parts):
            yield said("tool", _content(result.get("content") or "", f"a tool's result in {where}", has_calls=False)[0])
        turn = {**turn, "content": [part for part in parts if not _is_result(part)]}
        if not turn["content"]:
            return
    text, thought, called = _content(_first(turn, _CONTENT), where, has_calls=bool(calls))
    reasoning = _first(turn, _REASONING)
    if reasoning and not thought:
        thought = text_of(reasoning, f"the reasoning of {where}")
    made = _calls(calls or called, where) if calls or called else ""
    if str(said_by).lower() in _CALLERS and not made:
        made = _call_text(text)
        text = "" if made else text
    if thought and speaker != "assistant":
        raise RowError("row.reasoning", f"{where} holds reasoning, but is said by {said_by}")
    weight = _first(turn, _WEIGHT) if speaker == "assistant" else None  # OpenAI's: 1, or 0 for what is not trained
    if weight not in (None, 0, 1):
        told = f"the weight of {where} is {kind_of(weight)}, expected 0 (not learned) or 1 (learned)"
        raise RowError("row.weight", told)
    yield Message(
        role=speaker, content=text, tool_calls=made, reasoning=thought, trained=weight is None or bool(weight)
    )


def _is_result(part: Any) -> bool:
    """Whether a part of a content is what a tool gave back."""
    return isinstance(part, dict) and _PARTS.get(str(part.get("type"))) == "result"


def _first(turn: dict[str, Any], keys: tuple[str, ...]) -> Any:
    return next((turn[key] for key in keys if turn.get(key) is not None), None)


def _content(content: Any, where: str, has_calls: bool) -> tuple[str, str, list[Any]]:
    """A turn's text, reasoning and calls; its content is a text or a list of typed parts."""
    if content is None and has_calls:
        return "", "", []
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return text_of(content, where), "", []
    parts: dict[_Kind, list[Any]] = {"text": [], "reasoning": [], "call": []}
    for part in content:
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        named = str(part.get("type")) if isinstance(part, dict) else kind_of(part)
        kind = _PARTS.get(named)
        if kind not in parts:
            code = "row.media" if named.startswith(_MEDIA) else "row.part"
            raise RowError(code, f"{where} holds a part of type {named}, expected text")
        value = _first(part, ("text", "value", "content", "reasoning", "thinking"))
        if kind == "call":
            used = {"name": part.get("name"), "arguments": part.get("input")}
            value = used if value is None else parsed(value) if isinstance(value, str) else value
        parts[kind].append(value)
    texts, thoughts = ([text_of(one, where) for one in parts[kind]] for kind in _WORDS)
    return "".join(texts), "".join(thoughts), parts["call"]


def _call_text(text: str) -> str:
    """The calls of a ShareGPT function_call turn as JSON; empty where the text is no such JSON."""
    value = parsed(text)
    calls = value if isinstance(value, list) else [value]
    whole = (isinstance(call, dict) and set(call) == {"name", "arguments"} for call in calls)
    if not calls or not all(whole) or not all(isinstance(call["name"], str) for call in calls):
        return ""
    return _calls(calls, "function_call")


def _calls(calls: Any, where: str) -> str:
    """OpenAI's tool_calls as a JSON list of name and arguments."""
    made = []
    for call in calls if isinstance(calls, list) else [calls]:
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RowError("row.tools", f"{where} has a tool call without a name")
        made.append({"name": function["name"], "arguments": arguments_of(function.get("arguments"))})
    return as_json(made, where)


def arguments_of(value: Any) -> Any:
    """The arguments of a call, as an object where they are one or, as with OpenAI, its JSON text."""
    if value in (None, ""):
        return {}
    arguments = parsed(value) if isinstance(value, str) else value
    return arguments if isinstance(arguments, dict) else value
