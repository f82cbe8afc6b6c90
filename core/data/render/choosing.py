"""Which template a tokenizer is rendered with, what it can show, and the notes on that choice.

The tokenizer's own comes first, else ChatML; raw text has none. A template is tried with small conversations: whether
it shows system prompts, tools' answers, calls, lists of functions and reasoning, how it wants a call written down, and
what ends a turn.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

from core.contract.config import DataChoice
from core.contract.errors import DataError
from core.data.render.mask import Ending, alike
from core.data.render.template import Ask, CallForm, TemplateChoice, answering, calling, turn_of

Tokenizer = Any
_SENTINEL = "Xtried0Q"
_REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")

_FORMS = tuple(CallForm(id, text) for text in (False, True) for id in ("", "functions.{name}:{number}", "c{number:08}"))
"""Tried in this order. The second id is what Kimi's templates write for a name, the third what Mistral's demand."""
_PARAMETERS = {"type": "object", "properties": {"at": {"type": "string", "description": ""}}, "required": ["at"]}
_QUESTION = turn_of("user", "Hello")


def decide(tokenizer: Tokenizer, choice: DataChoice | TemplateChoice) -> TemplateChoice:
    """The untried template: none for raw text, else what was chosen; ``auto`` is the model's own, else ChatML.

    Raises:
        DataError: the model's own is asked for, and there is none.
    """
    if isinstance(choice, TemplateChoice):
        return choice
    own = tokenizer.chat_template
    own = str(own.get("default", "")) if isinstance(own, dict) else str(own or "")  # of several named ones the default
    made = TemplateChoice("none", train_on=choice.train_on, system_prompt=choice.system_prompt)
    if choice.template == "none" or (choice.layout == "text" and choice.template == "auto"):
        return made
    if choice.template == "model" and not own:
        raise DataError("data.no_template")
    if choice.template != "chatml" and own:
        return replace(made, kind="model", source=own, name="the model's own")
    notes = []
    if choice.template == "auto":
        notes.append("The model brings no chat template: ChatML is used, and export will carry it.")
    known = {"<|im_start|>", "<|im_end|>"} <= set(tokenizer.get_vocab())
    if not known:
        notes.append(
            "ChatML's marks are no tokens of this model: they are plain text, and its end-of-text token ends an answer."
        )
    source = chatml(known, writes_bos(tokenizer))
    return replace(made, kind="chatml", source=source, name="ChatML", notes=tuple(notes))


def chatml(known: bool, bos: bool) -> str:
    """The ChatML template. ``known``: its marks are tokens; else an answer ends with the end-of-text token, at which a
    base model stops already. ``bos``: the tokenizer begins texts with a BOS, which the template then writes."""
    answer_end = "'<|im_end|>'" if known else "eos_token"
    return (
        ("{{ bos_token }}" if bos else "")
        + "{% for message in messages %}"
        + "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}"
        + "{{ " + answer_end + " if message['role'] == 'assistant' else '<|im_end|>' }}{{ '\\n' }}"
        + "{% endfor %}"
        + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )  # fmt: skip


def tried(choice: TemplateChoice, tokenizer: Tokenizer, ask: Ask) -> TemplateChoice:
    """The choice with what its template can show, and notes. Raises DataError where it cannot render an answer."""
    specials = turn_enders(tokenizer)
    wants_tools = not _said(ask, [_QUESTION]) and bool(_said(ask, [_QUESTION], tools=[]))
    asked = partial(ask, tools=[]) if wants_tools else ask
    rendered = asked([_QUESTION, turn_of("assistant", _SENTINEL)])
    if _SENTINEL not in rendered:
        raise DataError("data.template_answers/left_out")
    answer = turn_of("assistant", "Hi")
    bare = [_QUESTION, turn_of("assistant", "Wait"), turn_of("tool", _SENTINEL), turn_of("assistant", "Done")]
    listed = [{"type": "function", "function": {"name": _SENTINEL, "description": "", "parameters": _PARAMETERS}}]
    form = next((form for form in _FORMS if _shows_calls(asked, form)), None)
    thoughts = (key for key in _REASONING_KEYS if _shows(asked, [_QUESTION, {**answer, key: _SENTINEL}]))
    made = replace(
        choice,
        ending=_ending(asked, rendered.partition(_SENTINEL)[2], specials),
        shows_system=_shows(asked, [turn_of("system", _SENTINEL), _QUESTION, answer]),
        shows_bare_answers=_shows(asked, bare),
        shows_tools=_shows(ask, [_QUESTION, answer], tools=listed),
        wants_tools=wants_tools,
        calls=form,
        drops_text=form is not None and not _shows(asked, [_QUESTION, _small_call(_SENTINEL, form)]),
        reasoning_key=next(thoughts, ""),
    )
    return replace(made, notes=tuple(dict.fromkeys(_notes(made, specials, tokenizer, asked))))


def _shows_calls(ask: Ask, form: CallForm) -> bool:
    """Whether a call in this form is shown whole, with and without its answer."""
    call = _small_call("", form)
    answer = answering(turn_of("tool", "Xtried2Q"), call["tool_calls"][0], form)
    alone, whole = _said(ask, [_QUESTION, call]), _said(ask, [_QUESTION, call, answer, turn_of("assistant", "Done")])
    return all(_SENTINEL in text and "Xtried1Q" in text for text in (alone, whole)) and "Xtried2Q" in whole


def _small_call(content: str, form: CallForm) -> dict[str, Any]:
    name = "look" if content else _SENTINEL
    return {**turn_of("assistant", content), "tool_calls": [calling(name, {"at": "Xtried1Q"}, 0, form)]}


def _shows(ask: Ask, turns: list[dict[str, Any]], **more: Any) -> bool:
    return _SENTINEL in _said(ask, turns, **more)


def _said(ask: Ask, turns: list[dict[str, Any]], **more: Any) -> str:
    """The rendered turns; empty where the template refuses them."""
    with suppress(DataError):
        return ask(turns, **more)
    return ""


def _ending(ask: Ask, behind: str, specials: Sequence[str]) -> str:
    """What ends an answer's turn: what stands ``behind`` the last answer and also behind an earlier one, through its
    last special token that no turn begins with."""
    mark = Ending("", tuple(specials))
    turns = [turn_of("assistant", _SENTINEL), turn_of("user", "Xtried1Q"), turn_of("assistant", "Hi")]
    own, begins = behind, ""
    with suppress(DataError):
        begins = ask([turn_of("user", "Xtried1Q")]).partition("Xtried1Q")[0]
        gap = ask([_QUESTION, *turns]).partition(_SENTINEL)[2].partition("Xtried1Q")[0]
        own = gap[: alike(behind, gap)]
    opens = {token for token, _ in mark.special_tokens(begins)[:1]}
    closing = list(takewhile(lambda one: one[0] not in opens, mark.special_tokens(own)))
    if closing:
        return own[: closing[-1][1]]
    marks = mark.special_tokens(behind)
    return behind[: marks[0][1]] if marks else own.rstrip()


def turn_enders(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Special tokens that may end a turn, longest first: all but the BOS, unless it is the end-of-text token too."""
    tokens = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    tokens |= {token for token in (tokenizer.eos_token,) if token}
    if tokenizer.bos_token and tokenizer.bos_token != tokenizer.eos_token:
        tokens.discard(tokenizer.bos_token)
    return tuple(sorted(tokens, key=lambda token: (-len(token), token)))


def writes_bos(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer itself puts a BOS before a text."""
    bos = tokenizer.bos_token_id
    return bos is not None and tokenizer("a")["input_ids"][:1] == [bos]


def _notes(choice: TemplateChoice, specials: Sequence[str], tokenizer: Tokenizer, ask: Ask) -> Iterator[str]:
    """What is unexpected of a template that was tried, as sentences for a person."""
    yield from choice.notes
    ending = choice.ending.strip()
    if not ending:
        yield "The template writes no end of turn: the end-of-text token is put behind the last answer."
    elif not ending.endswith(tuple(specials)):
        yield f"{ending} is no token of this model: it is plain text, and ends an answer in many tokens."
    if not choice.shows_system and choice.system_prompt:
        yield "The template knows no system prompt: it stands at the beginning of the first question."
    if writes_bos(tokenizer):
        bos = tokenizer.bos_token_id
        text = ask([_QUESTION, turn_of("assistant", "Hi")])
        first = tokenizer(text, add_special_tokens=False)["input_ids"][:2]
        if first[:1] != [bos]:
            yield f"The template does not begin with {tokenizer.bos_token}, as texts of this model do: none is added."
        elif first == [bos, bos]:
            yield f"The template begins with {tokenizer.bos_token} twice: rows are trained as it writes them."
