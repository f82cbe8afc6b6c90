"""What a template can show, found out by trying it with small conversations before it is used.

Does it show a system prompt, a tool's answer, a function call, a list of functions, what was thought? How does it want
a call written down, and what ends a turn? What it cannot show, ``template`` puts where it is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

from core.contract.errors import DataError
from core.data.render.spans import Ending, alike
from core.data.render.template import Ask, CallForm, TemplateChoice, answering, calling, turn_of

__all__ = ["tried"]

_SENTINEL = "Xtried0Q"
_REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")

_FORMS = tuple(CallForm(id, text) for text in (False, True) for id in ("", "functions.{name}:{number}", "c{number:08}"))
"""Tried in this order. The second id is what Kimi's templates write for a name, the third what Mistral's demand."""


_PARAMETERS = {"type": "object", "properties": {"at": {"type": "string", "description": ""}}, "required": ["at"]}
_QUESTION = turn_of("user", "Hello")


def tried(choice: TemplateChoice, ask: Ask, specials: Sequence[str]) -> TemplateChoice:
    """The same choice with what its template turned out to show. ``specials`` are the tokens that may end a turn.

    Raises:
        DataError: the template cannot even render a question and its answer.
    """
    wants_tools = not _renders(ask, [_QUESTION]) and _renders(ask, [_QUESTION], [])
    asked = partial(ask, tools=[]) if wants_tools else ask
    question, answer = _QUESTION, turn_of("assistant", _SENTINEL)
    rendered = asked([question, answer])
    if _SENTINEL not in rendered:
        raise DataError(
            "data.template_answers",
            "Expected a chat template that writes the answer, found one that leaves it out.",
            "Choose the template ChatML, or another model.",
        )
    bare = [question, turn_of("assistant", "Wait"), turn_of("tool", _SENTINEL), turn_of("assistant", "Done")]
    listed = [{"type": "function", "function": {"name": _SENTINEL, "description": "", "parameters": _PARAMETERS}}]
    form = next((form for form in _FORMS if _shows_calls(asked, form)), None)
    return replace(
        choice,
        ending=_ending(asked, rendered.partition(_SENTINEL)[2], specials),
        shows_system=_shows(asked, [turn_of("system", _SENTINEL), question, turn_of("assistant", "Hi")]),
        shows_tool_answers=form is not None,
        shows_bare_answers=_shows(asked, bare),
        shows_tools=_shows(ask, [question, turn_of("assistant", "Hi")], tools=listed),
        wants_tools=wants_tools,
        calls=form,
        drops_text=form is not None and not _shows(asked, [question, _small_call(_SENTINEL, form)]),
        reasoning_key=_reasoning_key(asked),
    )


def _shows_calls(ask: Ask, form: CallForm) -> bool:
    """Whether a call is shown whole under this form, alone, and with its answer behind it."""
    call = _small_call("", form)
    answer = answering(turn_of("tool", "Xtried2Q"), call["tool_calls"][0], form)
    whole = [_QUESTION, call, answer, turn_of("assistant", "Done")]
    try:
        return all(_SENTINEL in text and "Xtried1Q" in text for text in (ask([_QUESTION, call]), ask(whole))) and (
            "Xtried2Q" in ask(whole)
        )
    except DataError:
        return False


def _small_call(content: str, form: CallForm) -> dict[str, Any]:
    name = "look" if content else _SENTINEL
    return {**turn_of("assistant", content), "tool_calls": [calling(name, {"at": "Xtried1Q"}, 0, form)]}


def _shows(ask: Ask, turns: list[dict[str, Any]], **more: Any) -> bool:
    try:
        return _SENTINEL in ask(turns, **more)
    except DataError:
        return False


def _reasoning_key(ask: Ask) -> str:
    """The first key that the template reads reasoning from; empty where it reads none."""
    question, answer = turn_of("user", "Hello"), turn_of("assistant", "Hi")
    return next((key for key in _REASONING_KEYS if _shows(ask, [question, {**answer, key: _SENTINEL}])), "")


def _renders(ask: Ask, turns: list[dict[str, Any]], tools: list[Any] | None = None) -> bool:
    try:
        return bool(ask(turns, tools=tools))
    except DataError:
        return False


def _ending(ask: Ask, behind: str, specials: Sequence[str]) -> str:
    """What ends an answer's turn: of what stands ``behind`` the last one that which also stands behind an earlier one,
    through its last special token, unless that is one that a text begins with."""
    mark = Ending("", tuple(specials))
    turns = [turn_of("assistant", _SENTINEL), turn_of("user", "Xtried1Q"), turn_of("assistant", "Hi")]
    own, begins = behind, ""
    with suppress(DataError):
        begins = ask([turn_of("user", "Xtried1Q")]).partition("Xtried1Q")[0]
        gap = ask([_QUESTION, *turns]).partition(_SENTINEL)[2].partition("Xtried1Q")[0]
        own = gap[: alike(behind, gap)]
    opens = {token for token, _ in mark.found(begins)[:1]}
    closing = list(takewhile(lambda one: one[0] not in opens, mark.found(own)))
    if closing:
        return own[: closing[-1][1]]
    found = mark.found(behind)
    return behind[: found[0][1]] if found else own.rstrip()
