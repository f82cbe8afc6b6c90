"""Ollama's Modelfile of a GGUF export: template, system prompt, stops and sampling.

Formats: https://docs.ollama.com/modelfile. TEMPLATE is always written where there is a Go template, since ``ollama
create`` otherwise takes the nearest of its own by edit distance. Where there is none, Ollama 0.30 and later use the
Jinja template that the GGUF file holds.
"""

from collections.abc import Sequence
from pathlib import Path

from core.contract.config import RunConfig
from core.export.guides.go_template import Pieces, cuts_blanks, pieces_of
from core.export.guides.talk import Talk

JINJA_SINCE = "0.30.0"
"""The first version of Ollama that renders a GGUF file's own Jinja template."""
USUAL_CONTEXT = 4096
"""Tokens of Ollama's context where nobody asks for more."""
TEMPLATE_FILE = "template.jinja"
"""The chat template beside an adapter, whose file holds none."""
_APART = (
    "{# Where a Modelfile has no TEMPLATE, ollama create replaces a chat template by the nearest of its own, up to a "
    "hundred characters apart. None of them writes what this one writes, so these lines keep it further away: Ollama "
    "0.30.0 and later then render this template as it stands, and so does every other program. #}"
)
_LINES = "{% for message in messages %}{{ message['content'] }}{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}"
WEIGHTS: dict[str, tuple[str, ...]] = {
    "gguf": ("FROM ./{file}",),
    "gguf_adapter": ("# The base model as a GGUF file, put beside this one.", "FROM ./base.gguf", "ADAPTER ./{file}"),
}
"""The lines of a Modelfile that name the weights, by form; other forms have none."""


def gguf_file(draft: Path) -> str:
    """The name of the GGUF file in an export's folder; empty where there is none."""
    return next((path.name for path in sorted(draft.glob("*.gguf"))), "")


def write_modelfile(draft: Path, form: str, talk: Talk, config: RunConfig) -> None:
    """Writes ``Modelfile`` beside the GGUF file of a draft, and beside an adapter its chat template; nothing for forms
    without such a file."""
    first = [line.format(file=gguf_file(draft)) for line in WEIGHTS.get(form, ())]
    if first:
        (draft / "Modelfile").write_text(modelfile(talk, config, first), encoding="utf-8")
    if len(first) > 1:
        (draft / TEMPLATE_FILE).write_text(own_template(talk), encoding="utf-8")


def modelfile(talk: Talk, config: RunConfig, first: Sequence[str]) -> str:
    """The text of a Modelfile; ``first``: the lines that name the weights."""
    system, pieces = config.data.system_prompt, _pieces(talk)
    lines = [*first]
    if pieces is None:
        lines += [f"# The chat template of the GGUF file itself is used.\nREQUIRES {JINJA_SINCE}"]
    else:
        if cuts_blanks(talk.write):
            lines += ["# In training, blanks at the ends of a message were cut off; here they stay."]
        lines += [f'TEMPLATE """{pieces.go()}"""']
    if '"""' in system:
        lines += ["# The system prompt holds three quotes in a row, which a Modelfile cannot: see README.md."]
    elif system:
        lines += [f'SYSTEM """{system}"""']
    lines += [f"PARAMETER {name} {value}" for name, value in _sampling(talk).items()]
    if config.train.max_length > USUAL_CONTEXT:
        lines += [f"PARAMETER num_ctx {config.train.max_length}"]
    return "\n".join([*lines, *(f'PARAMETER stop "{stop}"' for stop in talk.stops if "\n" not in stop)]) + "\n"


def own_template(talk: Talk) -> str:
    """The chat template as a GGUF file holds it, so that every program asks as Try does.

    One that Ollama is to use itself begins with a comment that keeps it from being taken for another. A model that
    learned without a template gets one that writes the texts in lines: programs would use ChatML.
    """
    if talk.template.kind == "none":
        return f"{_LINES}{{{{ {talk.behind!r} }}}}" if talk.behind else _LINES
    return talk.template.source if _pieces(talk) else f"{_APART}\n{talk.template.source}"


def _pieces(talk: Talk) -> Pieces | None:
    """What a Go template is made of; none where the template writes the day, which would be today's for ever."""
    return None if "strftime_now" in talk.template.source else pieces_of(talk.write)


def _sampling(talk: Talk) -> dict[str, float]:
    """Ollama's parameters for the generation config, with transformers' defaults where it is silent."""
    said, penalty = talk.generation, {"repeat_penalty": talk.generation.get("repetition_penalty", 1.0)}
    if not said.get("do_sample"):
        return {"temperature": 0} | penalty
    usual = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "min_p": 0.0}
    return {name: said.get(name, value) for name, value in usual.items()} | penalty
