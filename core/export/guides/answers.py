"""What a model card says of chats: which file carries the template, and where an answer ends."""

from dataclasses import dataclass

from core.contract.config import RunConfig
from core.export.guides.talk import Talk


@dataclass(frozen=True)
class _Held:
    """Where a form's folder holds what a chat needs. ``ends``: of the tokens ``{ids}``; ``beside``: what else is to be
    known; ``lines``: of one that learned without a template."""

    template: str
    ends: str
    system: str
    added: str = ""
    beside: str = ""
    lines: str = ""


_FOLDER = _Held(
    "The tokenizer carries the chat template that was trained on.",
    "`generation_config.json` names the tokens at which generation ends ({ids}).",
    "It learned behind a system prompt, which stands in the recipe below: give it, too.",
    ": use this tokenizer, not the base model's",
)
_MODELFILE = "It learned behind a system prompt, which the Modelfile holds; elsewhere give it yourself: {system}"
_HELD = {
    "adapter": _Held(
        _FOLDER.template, _FOLDER.ends, _FOLDER.system, _FOLDER.added,
        "A program that reads the base model's files alone may write on behind it.",
    ),
    "gguf": _Held(
        "The GGUF file carries the chat template that was trained on.",
        "Generation ends at the tokens {ids}, which the file names.",
        _MODELFILE,
        lines="; the one that the file carries writes the texts in lines, as training had them",
    ),
    "gguf_adapter": _Held(
        "`template.jinja` is the chat template that was trained on; the base model's file may carry another.",
        "Generation ends at the tokens {ids}.",
        _MODELFILE,
        lines="; `template.jinja` writes the texts in lines, as training had them",
    ),
}  # fmt: skip


def answers(talk: Talk, config: RunConfig, form: str) -> str:
    """How a chat is written and where an answer ends, for a model card."""
    held, ids = _HELD.get(form, _FOLDER), ", ".join(map(str, talk.ids)) or "none"
    ends = held.ends.format(ids=ids)
    if talk.template.kind == "none":
        return f"It was trained without a chat template{held.lines}. {ends}\n"
    lines = [held.template]
    if talk.added:
        whose = "ChatML in place of the base model's own" if config.data.template == "chatml" else (
            "ChatML, since the base model brings no chat template"
        )  # fmt: skip
        lines.append(f"It is {whose}{held.added}.")
    lines += [f"`{talk.mark}` ends an answer."] if talk.mark else []
    lines.append(ends)
    if system := config.data.system_prompt:
        quoted = "\n".join(f"> {line}".rstrip() for line in system.splitlines())
        lines.append(held.system.format(system=f"\n\n{quoted}\n"))
    return "\n".join([*lines, *([held.beside] if held.beside else [])]) + "\n"
