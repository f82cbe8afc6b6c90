"""A question to a model, laid out as its rows were for training: by the same template, behind the same system prompt.

Where the template shows no system prompt, that stands in the first question, as it did in the rows; after raw text the
question is raw text, which the model goes on with. Asked for by the training run and by the conversation after it.

How long one may be: tokenising a megabyte and reading it takes minutes in which a run stands still. So characters are
counted before there are tokens, and tokens before the model sees them.
"""

from collections.abc import Iterable
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import Example, Message
from core.contract.errors import DataError
from core.data.render.renderer import renderer
from core.data.render.template import layout_turns

_CHARACTERS_A_TOKEN = 16
"""Four as a rule; code with much white space has more."""


def check_characters(messages: Iterable[Message], most: int) -> None:
    """Raises DataError where these turns cannot be ``most`` tokens, whatever the vocabulary."""
    count = sum(len(message.content) + len(message.tool_calls) for message in messages)
    if count > _CHARACTERS_A_TOKEN * most:
        raise DataError("question.long/characters", most=most, count=count)


def question_ids(tokenizer: Any, messages: tuple[Message, ...], choice: DataChoice, most: int) -> list[int]:
    """The conversation's token ids, ending where the answer begins: less than ``most``.

    Raises:
        DataError: the template refuses the conversation, or it is too long.
    """
    check_characters(messages, most)
    made = renderer(tokenizer, choice)
    turns = layout_turns(Example(row=1, messages=messages), made.choice)
    plain = made.choice.kind == "none"
    if plain:
        text = "\n".join(turn["content"] for turn in turns) + ("" if choice.layout == "text" else "\n")
    else:
        text = made.ask(turns, generation=True)
    ids: list[int] = tokenizer(text, add_special_tokens=plain)["input_ids"]
    if len(ids) >= most:  # no room for an answer
        raise DataError("question.long/tokens", most=most, count=len(ids))
    return ids
