"""How one talks to a finetuned model: under which template it learned, where its answers end, how it is sampled."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.contract.data import Message
from core.data.render.chat_tokens import load_tokenizer, question_text, resolve_template, stop_token_ids
from core.data.render.choosing import writes_bos
from core.data.render.renderer import renderer
from core.data.render.template import TemplateChoice
from core.export.guides.conversations import Turn
from core.export.guides.go_template import Write
from core.model.generation import ends_in
from core.models.checks.claims import plain_generation
from core.models.checks.files import read_json


@dataclass(frozen=True)
class Talk:
    """A tokenizer with the template that was trained on.

    ``ids``: the tokens at which generation ends, the template's own first; ``generation``: the generation config that
    an export carries; ``behind``: what follows a question where there is no template.
    """

    tokenizer: Any
    template: TemplateChoice
    ids: tuple[int, ...]
    generation: dict[str, Any]
    behind: str = "\n"

    @property
    def mark(self) -> str:
        """What the template writes behind an answer."""
        return self.template.ending.strip()

    @property
    def added(self) -> bool:
        """Whether the template is not the base model's own."""
        return self.template.kind == "chatml"

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts at which an answer ends."""
        named = (self.tokenizer.decode([number], skip_special_tokens=False).strip() for number in self.ids)
        return tuple(dict.fromkeys(text for text in (self.mark, *named) if text))

    @property
    def begins(self) -> bool:
        """Whether what the model reads begins with the start token: what the template writes, where there is one."""
        start = self.tokenizer.bos_token
        if self.template.kind == "none" or not start:
            return writes_bos(self.tokenizer)
        return self._text([Message(role="user", content="Hello.")]).startswith(start)

    @property
    def write(self) -> Write:
        """Renders a conversation as a runtime sends it: no system prompt is put in, and no start token stands first,
        since the runtime writes that itself."""
        start = self.tokenizer.bos_token or ""

        def write(turns: Sequence[Turn]) -> str:
            return self._text([Message.model_validate(turn) for turn in turns]).removeprefix(start)

        return write

    def _text(self, messages: Sequence[Message]) -> str:
        using = renderer(self.tokenizer, replace(self.template, system_prompt=""))
        return question_text(using, messages, self.behind)


def talk_of(base: Path, config: RunConfig) -> Talk:
    """How to talk to a run's model, from the base model's folder and the run's settings.

    Raises:
        DataError: the tokenizer or the template cannot be used.
    """
    tokenizer = load_tokenizer(base)
    template = resolve_template(tokenizer, config.data)
    shape, generation = (
        read_json(file) if file.exists() else {} for file in (base / "config.json", base / "generation_config.json")
    )
    ids = tuple(dict.fromkeys((*stop_token_ids(tokenizer, template), *ends_in(generation, shape))))
    carried = plain_generation(generation) | {"eos_token_id": list(ids)}
    return Talk(tokenizer, template, ids, carried, "" if config.data.layout == "text" else "\n")
