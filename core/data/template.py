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
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from core.contract.data import Example, Message
from core.contract.errors import DataError

__all__ = ["Ask", "TemplateChoice", "chatml", "layout_turns", "tools_of", "tried"]

_SENTINEL = "Xtried0Q"


class Ask(Protocol):
    """Renders turns to text; raises DataError where the template refuses them."""

    def __call__(
        self, turns: Sequence[dict[str, Any]], *, tools: list[Any] | None = None, generation: bool = False
    ) -> str: ...


@dataclass(frozen=True)
class TemplateChoice:
    """A template as decided: its source, its name for people, and what it can show.

    ``ending`` is what it writes right behind an answer, through the first special token.
    """

    kind: Literal["model", "chatml", "none"]
    source: str = ""
    name: str = "none"
    notes: tuple[str, ...] = ()
    train_on: Literal["answers", "last_answer", "everything", "tool_calls"] = "answers"
    system_prompt: str = ""
    shows_system: bool = True
    shows_tool_answers: bool = True
    shows_calls: bool = False
    shows_tools: bool = False
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


def tried(choice: TemplateChoice, ask: Ask, specials: Sequence[str]) -> TemplateChoice:
    """The same choice with what its template turned out to show. ``specials`` are the tokens that may end a turn.

    Raises:
        DataError: the template cannot even render a question and its answer.
    """
    question, answer = _turn("user", "Hello"), _turn("assistant", _SENTINEL)
    rendered = ask([question, answer])
    if _SENTINEL not in rendered:
        raise DataError(
            "data.template_answers",
            "Expected a chat template that writes the answer, found one that leaves it out.",
            "Choose the template ChatML, or another model.",
        )
    ending = _ending(rendered.partition(_SENTINEL)[2], specials)
    call = {**_turn("assistant", ""), "tool_calls": [_call(_SENTINEL, {"at": "noon"})]}
    tool_answer = [question, _turn("assistant", "Wait"), _turn("tool", _SENTINEL), _turn("assistant", "Done")]
    listed = [{"type": "function", "function": {"name": _SENTINEL, "description": "", "parameters": {}}}]
    return replace(
        choice,
        ending=ending,
        shows_system=_shows(ask, [_turn("system", _SENTINEL), question, _turn("assistant", "Hi")]),
        shows_tool_answers=_shows(ask, tool_answer),
        shows_calls=bool(ending) and _shows(ask, [question, call]) and _shows(ask, [question, call, *tool_answer[2:]]),
        shows_tools=_shows(ask, [question, _turn("assistant", "Hi")], listed),
    )


def tools_of(example: Example, choice: TemplateChoice) -> list[Any] | None:
    """The functions to hand to the template; None where there are none or it cannot show them."""
    return json.loads(example.tools) if example.tools and choice.shows_tools else None


def layout_turns(example: Example, choice: TemplateChoice) -> list[dict[str, Any]]:
    """The row's turns as dictionaries that this template can show, nothing of the row left out."""
    turns = [_shown(message, choice) for message in example.messages]
    if choice.system_prompt and not (turns and turns[0]["role"] == "system"):
        turns.insert(0, _turn("system", choice.system_prompt))
    if example.tools and not choice.shows_tools:
        _add_system(turns, f"You may call these functions:\n{example.tools}")
    if choice.shows_system or not (turns and turns[0]["role"] == "system"):
        return turns
    return _folded(turns)


def _shown(message: Message, choice: TemplateChoice) -> dict[str, Any]:
    if message.role == "tool" and not choice.shows_tool_answers:
        return _turn("user", message.content)
    if not message.tool_calls:
        return _turn(message.role, message.content)
    calls = json.loads(message.tool_calls)
    if choice.shows_calls:
        made = [_call(call["name"], call["arguments"]) for call in calls]
        return {**_turn("assistant", message.content), "tool_calls": made}
    written = "\n".join(f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in calls)
    return _turn("assistant", f"{message.content}\n{written}".strip())


def _add_system(turns: list[dict[str, Any]], text: str) -> None:
    if turns and turns[0]["role"] == "system":
        turns[0] = _turn("system", f"{turns[0]['content']}\n\n{text}")
    else:
        turns.insert(0, _turn("system", text))


def _folded(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The system prompt as the beginning of the first question."""
    system, *rest = turns
    if rest and rest[0]["role"] == "user":
        return [_turn("user", f"{system['content']}\n\n{rest[0]['content']}"), *rest[1:]]
    return [_turn("user", system["content"]), *rest]


def _shows(ask: Ask, turns: list[dict[str, Any]], tools: list[Any] | None = None) -> bool:
    try:
        return _SENTINEL in ask(turns, tools=tools)
    except DataError:
        return False


def _ending(behind: str, specials: Sequence[str]) -> str:
    places = [(place, -len(special), special) for special in specials if (place := behind.find(special)) >= 0]
    if not places:
        return behind.rstrip()
    place, _, special = min(places)
    return behind[: place + len(special)]


def _turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _call(name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}
