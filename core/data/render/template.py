"""Which chat template a run uses, what that template can show, and how a row's turns are laid out for it.

The tokenizer's own template comes first; a base model without one gets ChatML, and is told so; raw text has none.
Before use a template is *tried* with small conversations: does it show a system prompt, a tool's answer, a function
call, a list of functions? What it cannot show is put where it is shown (a system prompt into the first question, a
call into the answer's text), since a template that silently leaves a turn out would silently drop data.

Nothing here knows transformers: a template is reached through ``Ask``, a function that renders turns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from core.contract.data import Example, Message

__all__ = [
    "Ask",
    "CallForm",
    "TemplateChoice",
    "answering",
    "calling",
    "chatml",
    "drops_text",
    "layout_turns",
    "tools_of",
    "turn_of",
]


class Ask(Protocol):
    """Renders turns to text; raises DataError where the template refuses them."""

    def __call__(
        self, turns: Sequence[dict[str, Any]], *, tools: list[Any] | None = None, generation: bool = False
    ) -> str: ...


@dataclass(frozen=True)
class CallForm:
    """How a call is written down for a template: its id (of the function's ``name`` and its ``number``; empty: none),
    and whether its arguments are JSON text instead of an object."""

    id: str = ""
    text: bool = False


@dataclass(frozen=True)
class TemplateChoice:
    """A template as decided: its source, its name for people, and what it can show.

    ``ending`` is what it writes right behind an answer, through the special token that ends the turn.
    """

    kind: Literal["model", "chatml", "none"]
    source: str = ""
    name: str = "none"
    notes: tuple[str, ...] = ()
    train_on: Literal["answers", "last_answer", "everything", "tool_calls"] = "answers"
    system_prompt: str = ""
    shows_system: bool = True
    shows_tool_answers: bool = True
    """A tool's answer to a call that is shown as one."""
    shows_bare_answers: bool = True
    """A tool's answer without such a call before it."""
    shows_tools: bool = False
    wants_tools: bool = False
    """It cannot do without a list of functions, be it an empty one."""
    calls: CallForm | None = None
    """How a call is handed to it; None where it cannot show one."""
    drops_text: bool = False
    """It leaves out what is said beside a call."""
    reasoning_key: str = ""
    """The key of a turn under which the template shows what was thought; empty where it shows none."""
    ending: str = ""


def chatml(known: bool, bos: bool) -> str:
    """The ChatML template.

    Where the tokenizer knows ``<|im_end|>`` as one token, it ends every turn. Elsewhere the marks are plain text, and
    an answer is ended by the tokenizer's own end-of-text token, at which a base model stops already. ``bos``: whether
    the tokenizer itself begins a text with its BOS, which the template then has to write.
    """
    answer_end = "'<|im_end|>'" if known else "eos_token"
    return (
        ("{{ bos_token }}" if bos else "")
        + "{% for message in messages %}"
        + "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}"
        + "{{ " + answer_end + " if message['role'] == 'assistant' else '<|im_end|>' }}{{ '\\n' }}"
        + "{% endfor %}"
        + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )  # fmt: skip


def tools_of(example: Example, choice: TemplateChoice) -> list[Any] | None:
    """The functions to hand to the template; None where there are none or it cannot show them."""
    return list(json.loads(example.tools)) if example.tools and choice.shows_tools else None


def layout_turns(example: Example, choice: TemplateChoice) -> list[dict[str, Any]]:
    """The row's turns as dictionaries that this template can show, nothing of the row left out."""
    turns = _shown(example.messages, choice)
    if choice.system_prompt and not (turns and turns[0]["role"] == "system"):
        turns.insert(0, turn_of("system", choice.system_prompt))
    if example.tools and not choice.shows_tools:
        _add_system(turns, f"You may call these functions:\n{example.tools}")
    if choice.shows_system or not (turns and turns[0]["role"] == "system"):
        return turns
    return _folded(turns)


def drops_text(example: Example, choice: TemplateChoice) -> bool:
    """Whether a row says something beside a call that this template leaves out."""
    return choice.drops_text and any(turn.tool_calls and turn.content.strip() for turn in example.messages)


def _shown(messages: Sequence[Message], choice: TemplateChoice) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    made = 0
    for message in messages:
        if message.role == "tool":
            turns.append(_tool_answer(message, waiting, choice))
            continue
        turn, waiting = _said(message, choice), []
        if message.tool_calls:
            calls = json.loads(message.tool_calls)
            if choice.calls is None:
                turn["content"] = f"{turn['content']}\n{_written(calls)}".strip()
            else:
                numbered = enumerate(calls, start=made)
                waiting = [calling(call["name"], call["arguments"], at, choice.calls) for at, call in numbered]
                turn["tool_calls"] = list(waiting)
                made += len(calls)
        turns.append(turn)
    return turns


def _said(message: Message, choice: TemplateChoice) -> dict[str, Any]:
    """What a turn says, and what was thought before it: under the template's own key, else between tags."""
    if message.reasoning and choice.reasoning_key:
        return {**turn_of(message.role, message.content), choice.reasoning_key: message.reasoning}
    if message.reasoning:
        return turn_of(message.role, f"<think>\n{message.reasoning}\n</think>\n\n{message.content}".rstrip())
    return turn_of(message.role, message.content)


def _tool_answer(message: Message, waiting: list[dict[str, Any]], choice: TemplateChoice) -> dict[str, Any]:
    """A tool's answer, to the first of the calls that wait for theirs; where none is shown, as a question."""
    if waiting and choice.calls is not None:
        return answering(turn_of("tool", message.content), waiting.pop(0), choice.calls)
    return turn_of("tool" if choice.shows_bare_answers else "user", message.content)


def answering(turn: dict[str, Any], call: dict[str, Any], form: CallForm) -> dict[str, Any]:
    """A tool's turn as the answer to this call."""
    return {**turn, "tool_call_id": call["id"], "name": call["function"]["name"]} if form.id else turn


def _written(calls: list[dict[str, Any]]) -> str:
    return "\n".join(f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in calls)


def _add_system(turns: list[dict[str, Any]], text: str) -> None:
    if turns and turns[0]["role"] == "system":
        turns[0] = turn_of("system", f"{turns[0]['content']}\n\n{text}")
    else:
        turns.insert(0, turn_of("system", text))


def _folded(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The system prompt as the beginning of the first question."""
    system, *rest = turns
    if rest and rest[0]["role"] == "user":
        return [turn_of("user", f"{system['content']}\n\n{rest[0]['content']}"), *rest[1:]]
    return [turn_of("user", system["content"]), *rest]


def turn_of(role: str, content: str) -> dict[str, Any]:
    """A turn as templates take it."""
    return {"role": role, "content": content}


def calling(name: str, arguments: Any, number: int, form: CallForm) -> dict[str, Any]:
    """A call as templates take it, the ``number``-th of its conversation."""
    given = json.dumps(arguments, ensure_ascii=False) if form.text and not isinstance(arguments, str) else arguments
    made = {"type": "function", "function": {"name": name, "arguments": given}}
    return {**made, "id": form.id.format(name=name, number=number)} if form.id else made
