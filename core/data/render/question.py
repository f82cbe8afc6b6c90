"""A question to a model, laid out as its rows were for training: by the same template, behind the same system prompt.

Where the template shows no system prompt, that stands in the first question, as it did in the rows; after raw text the
question is raw text, which the model goes on with. Asked for by the training run and by the conversation after it.
"""

from __future__ import annotations

from typing import Any

from core.contract.config import DataChoice
from core.contract.data import Example, Message
from core.data.render.question_length import check_characters, check_tokens
from core.data.render.renderer import renderer
from core.data.render.template import layout_turns

__all__ = ["question_ids"]


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
    check_tokens(len(ids), most)
    return ids
