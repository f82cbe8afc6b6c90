"""How a plain tokenizer reads what is scored, token for token as in training; for the exported tokenizer, the check of
a reloaded export and the model card."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.contract.config import RunConfig
from core.contract.data import Example, Message
from core.contract.tasks import Outputs
from core.data.render.chat_tokens import ScoredText, apply_template_to, scored_ids
from core.data.render.renderer import Renderer, renderer, with_answer
from core.data.render.template import layout_turns
from core.model.loading.load import ensure_padding

_TURNS = (Message(role="user", content="What is a bow?"), Message(role="assistant", content="A stick with hair."))
_TEXTS = (("Hello.",), ("This is another text, a longer one.",))
_LONG = 1 << 16
Turns = list[dict[str, Any]]


@dataclass(frozen=True)
class _Written:
    """A way to write a conversation: as code of a model card, and done here."""

    code: str
    write: Callable[[Renderer, Turns], str]
    special: bool = False
    """Whether the tokenizer adds its own tokens at the ends."""


def _lines(using: Renderer, turns: Turns) -> str:
    return "\n".join(turn["content"] for turn in turns) + (using.tokenizer.eos_token or "")


_TEMPLATE = "tokenizer.apply_chat_template(turns, tokenize=False)"
_WAYS = (
    _Written(_TEMPLATE, lambda using, turns: using.ask(turns)),
    _Written(f"{_TEMPLATE}.rstrip()", lambda using, turns: using.ask(turns).rstrip()),
    _Written(
        f"{_TEMPLATE}.rstrip() + tokenizer.eos_token",
        lambda using, turns: using.ask(turns).rstrip() + using.tokenizer.eos_token,
    ),
    _Written('"\\n".join(turn["content"] for turn in turns) + tokenizer.eos_token', _lines, special=True),
)
"""Some templates write a line break behind the end of the last turn, which is no part of a row, or no end."""


@dataclass(frozen=True)
class Reading:
    """How texts reach a plain model with a head of scores.

    ``code``: what makes them in a model card; ``turns``: of a conversation that it shows, empty for texts; ``special``:
    whether the tokenizer adds its own tokens at the ends; ``examples``: of the data, each a text or a pair of texts.
    """

    outputs: Outputs
    pad_id: int
    code: str
    special: bool
    examples: tuple[tuple[str, ...], ...]
    turns: str = ""

    def told(self) -> dict[str, Any]:
        """For the check of a reloaded export."""
        settings = replace(self.outputs, mean=0.0, scale=1.0).settings()  # scores themselves are compared
        return {"settings": settings, "pad_id": self.pad_id, "special": self.special, "examples": self.examples}


def reading_of(tokenizer: Any, config: RunConfig, outputs: Outputs, rows: Sequence[Example]) -> Reading:
    """Sets the tokenizer up as an export has it, and says how texts reach the model. ``rows``: some of the data.

    Raises:
        DataError: the template cannot be used.
    """
    learning, most = config.learning, config.train.max_length
    ensure_padding(tokenizer).model_max_length = most
    if learning.labelled:
        tokenizer.chat_template = None
        parts = tokenizer.num_special_tokens_to_add(pair=True) > tokenizer.num_special_tokens_to_add(pair=False)
        read = [row.texts for row in rows if row.texts and tokenizer(*row.texts).input_ids] or list(_TEXTS)
        examples = tuple(texts if parts or len(texts) == 1 else ("\n\n".join(texts),) for texts in read)
        between = '", "' if parts else "\\n\\n"
        code = f'"A text.{between}A second one."' if any(len(texts) > 1 for texts in read) else '"A text."'
        return Reading(outputs, tokenizer.pad_token_id, code, True, examples)
    apply_template_to(tokenizer, config.data)
    using = renderer(tokenizer, config.data)
    ids = scored_ids(tokenizer, ScoredText(_TURNS), learning, config.data, _LONG)
    turns = layout_turns(Example(row=1, messages=_TURNS), using.choice)
    ways = _WAYS[-1:] if using.choice.kind == "none" else _WAYS[:-1]
    written = ((way, way.write(using, turns)) for way in ways)
    found = (way for way, text in written if tuple(tokenizer(text, add_special_tokens=way.special).input_ids) == ids)
    way = next(found, ways[0])
    asked = [with_answer(row) for row in rows if row.chosen] or [Example(row=1, messages=_TURNS)]
    examples = tuple((way.write(using, layout_turns(row, using.choice)),) for row in asked)
    shown = "[\n" + "".join(f"    {quoted(turn)},\n" for turn in turns) + "]"
    return Reading(outputs, tokenizer.pad_token_id, way.code, way.special, examples, shown)


def quoted(value: Any) -> str:
    """A value as Python writes it, without backticks, which would end a card's block of code."""
    return json.dumps(value, ensure_ascii=False).replace("`", "\\u0060")
