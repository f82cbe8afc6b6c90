"""What a chat template can show, and how a row's turns are laid out for it.

What it cannot show (``choosing`` tries it) is put where it is shown, so that no data is dropped: a system prompt into
the first question, a call into the answer's text.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from core.contract.data import Example, Message


class Ask(Protocol):
    """Renders turns to text; raises DataError where the template refuses them."""

    def __call__(
        self, turns: Sequence[dict[str, Any]], *, tools: list[Any] | None = None, generation: bool = False
    ) -> str: ...


@dataclass(frozen=True)
class CallForm:
    """How a call is written for a template: the format of its id from ``name`` and ``number`` (empty: no id), and
    whether its arguments are JSON ``text`` instead of an object."""

    id: str = ""
    text: bool = False


@dataclass(frozen=True)
class TemplateChoice:
    """A decided template: its source, its name for people, and what it can show."""

    kind: Literal["model", "chatml", "none"]
    source: str = ""
    name: str = "none"
    notes: tuple[str, ...] = ()
    train_on: Literal["answers", "last_answer", "everything", "tool_calls"] = "answers"
    system_prompt: str = ""
    shows_system: bool = True
    shows_bare_answers: bool = True
    """It shows a tool's answer without a call before it."""
    shows_tools: bool = False
    wants_tools: bool = False
    """It needs a list of functions, if only an empty one."""
    calls: CallForm | None = None
    """None where it cannot show a call."""
    drops_text: bool = False
    """It leaves out text beside a call."""
    reasoning_key: str = ""
    """The key of a turn's reasoning; empty where the template shows none."""
    ending: str = ""
    """What it writes right behind an answer, through the special token that ends the turn."""


def tools_of(example: Example, choice: TemplateChoice) -> list[Any] | None:
    """The functions for the template; None where there are none or it cannot show them."""
    return list(json.loads(example.tools)) if example.tools and choice.shows_tools else None


def layout_turns(example: Example, choice: TemplateChoice) -> list[dict[str, Any]]:
    """The row's turns as dictionaries that this template can show in full."""
    turns = _shown(example.messages, choice)
    if choice.system_prompt and not (turns and turns[0]["role"] == "system"):
        turns.insert(0, turn_of("system", choice.system_prompt))
    if example.tools and not choice.shows_tools:
        told = f"You may call these functions:\n{example.tools}"
        if turns and turns[0]["role"] == "system":
            turns[0] = turn_of("system", f"{turns[0]['content']}\n\n{told}")
        else:
            turns.insert(0, turn_of("system", told))
    if choice.shows_system or not (turns and turns[0]["role"] == "system"):
        return turns
    # The system prompt becomes the beginning of the first question.
    system, *rest = turns
    if rest and rest[0]["role"] == "user":
        return [turn_of("user", f"{system['content']}\n\n{rest[0]['content']}"), *rest[1:]]
    return [turn_of("user", system["content"]), *rest]


def drops_text(example: Example, choice: TemplateChoice) -> bool:
    """Whether a row has text beside a call that this template leaves out."""
    return choice.drops_text and any(turn.tool_calls and turn.content.strip() for turn in example.messages)


def _shown(messages: Sequence[Message], choice: TemplateChoice) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    """Calls that are not answered yet."""
    made = 0
    for message in messages:
        if message.role == "tool":
            if waiting and choice.calls is not None:
                turns.append(answering(turn_of("tool", message.content), waiting.pop(0), choice.calls))
            else:
                turns.append(turn_of("tool" if choice.shows_bare_answers else "user", message.content))
            continue
        turn, waiting = turn_of(message.role, message.content), []
        if message.reasoning and choice.reasoning_key:
            turn[choice.reasoning_key] = message.reasoning
        elif message.reasoning:
            turn["content"] = f"<think>\n{message.reasoning}\n</think>\n\n{message.content}".rstrip()
        calls = json.loads(message.tool_calls) if message.tool_calls else []
        if choice.calls is not None and calls:
            numbered = enumerate(calls, start=made)
            waiting = [calling(call["name"], call["arguments"], at, choice.calls) for at, call in numbered]
            turn["tool_calls"] = list(waiting)
            made += len(calls)
        elif calls:
            written = (f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in calls)
            turn["content"] = "\n".join([turn["content"], *written]).strip()
        turns.append(turn)
    return turns


def answering(turn: dict[str, Any], call: dict[str, Any], form: CallForm) -> dict[str, Any]:
    """A tool's turn as the answer to this call."""
    return {**turn, "tool_call_id": call["id"], "name": call["function"]["name"]} if form.id else turn


def turn_of(role: str, content: str) -> dict[str, Any]:
    """A turn as templates take it."""
    return {"role": role, "content": content}


def calling(name: str, arguments: Any, number: int, form: CallForm) -> dict[str, Any]:
    """A call as templates take it, the ``number``-th of its conversation."""
    given = json.dumps(arguments, ensure_ascii=False) if form.text and not isinstance(arguments, str) else arguments
    made = {"type": "function", "function": {"name": name, "arguments": given}}
    return {**made, "id": form.id.format(name=name, number=number)} if form.id else made
