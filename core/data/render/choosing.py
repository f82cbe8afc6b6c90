"""Which template a tokenizer is rendered with, and what a person is told of that choice.

The tokenizer's own comes first; a base model without one gets ChatML, and is told so; raw text has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from core.contract.config import DataChoice
from core.contract.errors import DataError
from core.data.render.template import Ask, TemplateChoice, chatml

__all__ = ["decide", "turn_enders", "warned", "words_on_bos", "writes_bos"]

Tokenizer = Any


def decide(tokenizer: Tokenizer, choice: DataChoice | TemplateChoice) -> TemplateChoice:
    """Which template: none for raw text, else what was chosen; ``auto`` is the model's own, else ChatML.

    Raises:
        DataError: the model's own is asked for, and there is none.
    """
    if isinstance(choice, TemplateChoice):
        return choice
    own = _own_template(tokenizer)
    made = TemplateChoice("none", train_on=choice.train_on, system_prompt=choice.system_prompt)
    if choice.template == "none" or (choice.layout == "text" and choice.template == "auto"):
        return made
    if choice.template == "chatml" or (choice.template == "auto" and not own):
        return _chatml(tokenizer, made, asked=choice.template == "chatml")
    if not own:
        raise DataError(
            "data.no_template",
            "Expected a chat template in the model, found none.",
            "Choose the template auto or ChatML, or an instruct model.",
        )
    return replace(made, kind="model", source=own, name="the model's own")


def _chatml(tokenizer: Tokenizer, made: TemplateChoice, asked: bool) -> TemplateChoice:
    vocabulary = tokenizer.get_vocab()
    known = "<|im_start|>" in vocabulary and "<|im_end|>" in vocabulary
    notes = [] if asked else ["The model brings no chat template: ChatML is used, and export will carry it."]
    if not known:
        notes.append(
            "ChatML's marks are no tokens of this model: they are plain text, and its end-of-text token ends an answer."
        )
    source = chatml(known, writes_bos(tokenizer))
    return replace(made, kind="chatml", source=source, name="ChatML", notes=tuple(notes))


def _own_template(tokenizer: Tokenizer) -> str:
    """The tokenizer's template; of several named ones the default."""
    own = tokenizer.chat_template
    return str(own.get("default", "")) if isinstance(own, dict) else str(own or "")


def warned(choice: TemplateChoice, specials: Sequence[str]) -> TemplateChoice:
    """The choice with notes on what a person would not expect of its template."""
    notes = list(choice.notes)
    if not choice.ending.strip():
        notes.append("The template writes no end of turn: the end-of-text token is put behind the last answer.")
    elif not choice.ending.strip().endswith(tuple(specials)):
        notes.append(
            f"{choice.ending.strip()} is no token of this model: it is plain text, and ends an answer in many tokens."
        )
    if not choice.shows_system and choice.system_prompt:
        notes.append("The template knows no system prompt: it stands at the beginning of the first question.")
    return replace(choice, notes=tuple(dict.fromkeys(notes)))


def turn_enders(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Special tokens that may end a turn, longest first: all but a BOS that is nothing else."""
    found = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    found |= {token for token in (tokenizer.eos_token,) if token}
    if tokenizer.bos_token and tokenizer.bos_token != tokenizer.eos_token:
        found.discard(tokenizer.bos_token)
    return tuple(sorted(found, key=lambda token: (-len(token), token)))


def writes_bos(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer itself puts a BOS before a text."""
    bos = tokenizer.bos_token_id
    return bos is not None and tokenizer("a")["input_ids"][:1] == [bos]


def words_on_bos(tokenizer: Tokenizer, ask: Ask) -> Iterator[str]:
    """What to say where a conversation does not begin with exactly one BOS, though this tokenizer's texts do."""
    bos = tokenizer.bos_token_id
    if not writes_bos(tokenizer):
        return
    text = ask([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}])
    first = tokenizer(text, add_special_tokens=False)["input_ids"][:2]
    if first[:1] != [bos]:
        yield f"The template does not begin with {tokenizer.bos_token}, as texts of this model do: none is added."
    elif first == [bos, bos]:
        yield f"The template begins with {tokenizer.bos_token} twice: rows are trained as it writes them."
