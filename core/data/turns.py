"""One record becomes one Example, or says why it cannot.

Nothing is dropped or changed unseen: a number, a null or a list where a text should be makes the row unusable, and it
is counted and listed. What is missing where a layout allows it (Alpaca's input) is simply not there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from core.contract.config import Layout
from core.contract.data import Example, Message
from core.data.jsonstream import LongNumber
from core.data.textfile import broken

__all__ = ["TURN_KEYS", "RowError", "to_example"]

Speaker = Literal["system", "user", "assistant", "tool"]
_SPEAKERS: dict[str, Speaker] = {
    "system": "system", "developer": "system",
    "human": "user", "user": "user", "prompter": "user",
    "gpt": "assistant", "assistant": "assistant", "bot": "assistant", "chatgpt": "assistant", "model": "assistant",
    "function_call": "assistant", "tool_call": "assistant",
    "observation": "tool", "tool": "tool", "function": "tool", "function_response": "tool", "ipython": "tool",
}  # fmt: skip
_CALLERS = ("function_call", "tool_call")


class RowError(Exception):
    """Why a row cannot be used: a stable code and a line for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass(frozen=True)
class _Row:
    """A record with its roles."""

    number: int
    values: dict[str, Any]
    mapping: dict[str, str]

    def get(self, role: str) -> Any:
        return self.values.get(self.mapping[role]) if role in self.mapping else None

    def text(self, role: str) -> str:
        """The text of a required role."""
        text = _text(self.get(role), self.mapping[role])
        if not text.strip():
            raise RowError("row.empty", f"{self.mapping[role]} is empty")
        return text

    def optional(self, role: str) -> str:
        value = self.get(role)
        return "" if value is None else _text(value, self.mapping[role])

    def has(self, role: str) -> bool:
        return self.get(role) not in (None, "")


TURN_KEYS = frozenset({"from", "role", "value", "content", "text", "tool_calls", "function_call"})
"""What of a turn is read."""


def to_example(layout: Layout, mapping: dict[str, str], row: int, values: dict[str, Any]) -> Example:
    """The record as an Example. Raises RowError where it cannot be used."""
    return _READERS[layout](_Row(row, values, mapping))


def _alpaca(row: _Row) -> Example:
    instruction, given = row.optional("instruction"), row.optional("input")
    question = f"{instruction}\n\n{given}" if instruction.strip() and given.strip() else instruction or given
    if not question.strip():
        raise RowError("row.empty", f"{row.mapping['instruction']} is empty")
    return _conversation(row, [_said("user", question), _said("assistant", row.text("output"))])


def _prompt_completion(row: _Row) -> Example:
    if _is_turns(row.get("prompt")) or _is_turns(row.get("completion")):
        turns = [*_turns(row.get("prompt"), row.mapping["prompt"])]
        turns += _turns(row.get("completion"), row.mapping["completion"], alone="assistant")
        return _conversation(row, turns)
    return _conversation(row, [_said("user", row.text("prompt")), _said("assistant", row.text("completion"))])


def _chat(role: str) -> Callable[[_Row], Example]:
    def read(row: _Row) -> Example:
        return _conversation(row, _turns(row.get(role), row.mapping[role]))

    return read


def _preference(row: _Row) -> Example:
    before: list[Message] = []
    if row.has("conversations"):
        before = _turns(row.get("conversations"), row.mapping["conversations"])
    elif _is_turns(row.get("prompt")):
        before = _turns(row.get("prompt"), row.mapping["prompt"])
    elif row.has("prompt"):
        given = row.optional("input")
        before = [_said("user", row.text("prompt") + (f"\n\n{given}" if given.strip() else ""))]
    sides = [_turns(row.get(side), side, alone="assistant") for side in ("chosen", "rejected")]
    shared = before + sides[0][:-1]
    if sides[0][:-1] and sides[0][: len(before)] == before:
        shared = sides[0][:-1]
    if sides[0][:-1] != sides[1][:-1]:
        raise RowError("row.pair", "chosen and rejected do not answer the same conversation")
    if not any(message.role == "user" for message in shared):
        raise RowError("row.pair", "found no prompt that chosen and rejected answer")
    chosen, rejected = (side[-1] for side in sides)
    if chosen.role != "assistant" or rejected.role != "assistant":
        raise RowError("row.pair", "chosen and rejected must end with an answer")
    for name, answer in (("chosen", chosen), ("rejected", rejected)):
        if answer.tool_calls:
            raise RowError("row.pair", f"{name} calls a tool, expected an answer in words")
        if not answer.content.strip():
            raise RowError("row.empty", f"{name} is empty")
    if chosen.content == rejected.content:
        raise RowError("row.pair", "chosen and rejected are the same text")
    return Example(row=row.number, messages=_with_system(row, shared), chosen=chosen.content, rejected=rejected.content)


def _kto(row: _Row) -> Example:
    label = str(row.get("label")).strip().lower()
    if label in ("false", "0"):
        raise RowError("row.kto_false", f"{row.mapping['label']} is false: an answer that is not to be learned")
    if label not in ("true", "1"):
        raise RowError("row.type", f"{row.mapping['label']} is {_kind(row.get('label'))}, expected true or false")
    if row.has("messages"):
        return _chat("messages")(row)
    for role in ("prompt", "completion"):
        if role not in row.mapping:
            raise RowError("row.missing", f"found no column for {role}")
    return _prompt_completion(row)


def _classification(row: _Row) -> Example:
    label = row.get("label")
    if isinstance(label, int) and not isinstance(label, bool):
        label = str(label)
    answer = _text(label, row.mapping["label"]).strip()
    if not answer:
        raise RowError("row.empty", f"{row.mapping['label']} is empty")
    return _conversation(row, [_said("user", row.text("text")), _said("assistant", answer)])


def _raw_text(row: _Row) -> Example:
    return Example(row=row.number, text=row.text("text"))


_READERS: dict[Layout, Callable[[_Row], Example]] = {
    "alpaca": _alpaca,
    "prompt_completion": _prompt_completion,
    "sharegpt": _chat("conversations"),
    "messages": _chat("messages"),
    "preference": _preference,
    "kto": _kto,
    "classification": _classification,
    "text": _raw_text,
}


def _conversation(row: _Row, messages: list[Message]) -> Example:
    if not any(message.role == "assistant" and (message.content.strip() or message.tool_calls) for message in messages):
        raise RowError("row.no_answer", "found no answer to learn from")
    return Example(row=row.number, messages=_with_system(row, messages), tools=_tools(row))


def _with_system(row: _Row, messages: list[Message]) -> tuple[Message, ...]:
    system = row.optional("system")
    if not system.strip() or (messages and messages[0].role == "system"):
        return tuple(messages)
    return (_said("system", system), *messages)


def _tools(row: _Row) -> str:
    value = row.get("tools")
    if value in (None, "", [], "[]"):
        return ""
    parsed = _parsed(value) if isinstance(value, str) else value
    if not isinstance(parsed, list) or not all(isinstance(tool, dict) for tool in parsed):
        raise RowError("row.tools", f"{row.mapping['tools']} is {_kind(value)}, expected a JSON list of functions")
    return _json(parsed, row.mapping["tools"]) if parsed else ""


def _turns(value: Any, column: str, alone: Speaker = "user") -> list[Message]:
    """A list of turns in any of the usual spellings; a single turn or a bare text is one turn said by ``alone``."""
    if isinstance(value, str):
        parsed = _parsed(value) if value.lstrip().startswith("[") else None
        if not _is_turns(parsed):
            return [_said(alone, _text(value, column))]
        value = parsed
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise RowError("row.type", f"{column} is {_kind(value)}, expected a list of turns")
    if not value:
        raise RowError("row.empty", f"{column} is empty")
    return [_turn(turn, f"turn {number} of {column}") for number, turn in enumerate(value, start=1)]


def _turn(turn: Any, where: str) -> Message:
    if not isinstance(turn, dict):
        raise RowError("row.type", f"{where} is {_kind(turn)}, expected an object")
    said_by = turn["from"] if "from" in turn else turn.get("role")
    speaker = _SPEAKERS.get(said_by.lower()) if isinstance(said_by, str) else None
    if speaker is None:
        raise RowError("row.role", f"{where} is said by {said_by!r}, expected user, assistant, system or tool")
    content = next((turn[key] for key in ("value", "content", "text") if turn.get(key) is not None), None)
    calls = turn.get("tool_calls") or turn.get("function_call")
    if content is None and calls:
        content = ""
    text = _parts(content, where)
    if str(said_by).lower() in _CALLERS:
        made = _call_text(text)
        return Message(role="assistant", content="" if made else text, tool_calls=made)
    return Message(role=speaker, content=text, tool_calls=_calls(calls, where) if calls else "")


def _parts(content: Any, where: str) -> str:
    """OpenAI's content: a text, or a list of parts of which only texts can be used."""
    if not isinstance(content, list):
        return _text(content, where)
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            kind = part.get("type") if isinstance(part, dict) else _kind(part)
            raise RowError("row.part", f"{where} holds a part of type {kind}, expected text")
        texts.append(_text(part.get("text"), where))
    return "".join(texts)


def _call_text(text: str) -> str:
    """A ShareGPT function_call turn as a list of calls; empty where the text is no such JSON (it then stays text)."""
    parsed = _parsed(text)
    calls = parsed if isinstance(parsed, list) else [parsed]
    whole = all(isinstance(call, dict) and isinstance(call.get("name"), str) and "arguments" in call for call in calls)
    if not calls or not whole or any(set(call) != {"name", "arguments"} for call in calls):
        return ""
    return _json([{**call, "arguments": _arguments(call["arguments"])} for call in calls], "function_call")


def _calls(calls: Any, where: str) -> str:
    """OpenAI's tool_calls as a list of name and arguments."""
    found = []
    for call in calls if isinstance(calls, list) else [calls]:
        made = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(made, dict) or not isinstance(made.get("name"), str):
            raise RowError("row.tools", f"{where} has a tool call without a name")
        found.append({"name": made["name"], "arguments": _arguments(made.get("arguments"))})
    return _json(found, where)


def _arguments(value: Any) -> Any:
    """The arguments of a call as an object, where they are one; OpenAI writes that object as a text."""
    if value in (None, ""):
        return {}
    parsed = _parsed(value) if isinstance(value, str) else value
    return parsed if isinstance(parsed, dict) else value


def _text(value: Any, column: str) -> str:
    if not isinstance(value, str):
        raise RowError("row.type", f"{column} is {_kind(value)}, expected text")
    if broken(value):
        raise RowError("row.encoding", f"{column} holds bytes that are no UTF-8 text")
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "null or missing"
    if isinstance(value, LongNumber):
        return f"a number of {len(value.digits):,} digits"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "an infinite number"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {str(value)[:20]}" if abs(value) < 10**15 else "a very long number"
    names: dict[type[Any], str] = {dict: "an object", list: "a list", str: "text", bytes: "bytes"}
    found: type[Any] = type(value)
    return names.get(found, f"of type {found.__name__}")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json(value: Any, where: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RowError("row.tools", f"{where} is no JSON") from error
    return _text(text, where)


def _is_turns(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(turn, dict) for turn in value)


def _said(role: Speaker, content: str) -> Message:
    return Message(role=role, content=content)
