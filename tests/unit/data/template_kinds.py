"""Small templates, each with one trait that breaks a search for answers; written for these tests."""

from __future__ import annotations

from dataclasses import dataclass

from template_judge import Marks

__all__ = ["DEFIANT", "KINDS", "SPECIALS", "Kind"]

SPECIALS = ("<|s|>", "<|u|>", "<|a|>", "<|t|>", "<|end|>", "<|stop|>", "<|call|>", "<|tool|>", "<|open|>", "<|sep|>")


@dataclass(frozen=True)
class Kind:
    """A template, what a person reads off it, and how many of the rows it may refuse itself."""

    source: str
    marks: Marks
    eos: str = "<|end|>"
    refused: int = 0


_TOOLS = "{% if tools %}<|s|>{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|end|>{% endif %}"
_HEAD = _TOOLS + "{% for m in messages %}{% if m.role == 'system' %}<|s|>{{ m.content }}<|end|>{% endif %}"
_USER = "{% if m.role == 'user' %}<|u|>{{ m.content }}<|end|>{% endif %}"
_TOOL = "{% if m.role == 'tool' %}<|t|>{{ m.content }}<|end|>{% endif %}"
_CALLS = "{% for c in m.tool_calls %}<call>{{ c.function.name }}{{ c.function.arguments | tojson }}</call>{% endfor %}"
_SAID = (
    "{% if m.role == 'assistant' %}<|a|>{{ m.content }}{% if m.tool_calls %}" + _CALLS + "{% endif %}<|end|>{% endif %}"
)
_ASK = "{% endfor %}{% if add_generation_prompt %}<|a|>{% endif %}"
_PLAIN = Marks("<|a|>", ("<|end|>",))


def _with(said: str, ask: str = _ASK, user: str = _USER, tool: str = _TOOL) -> str:
    return _HEAD + user + tool + said + ask


KINDS = {
    "plain": Kind(_with(_SAID), _PLAIN),
    "a tool answers within the turn": Kind(
        _with(
            "{% if m.role == 'assistant' %}{% if loop.previtem is not defined or loop.previtem.role != 'tool' %}<|a|>"
            "{% endif %}{{ m.content }}{% if m.tool_calls %}" + _CALLS + "{% else %}<|end|>{% endif %}{% endif %}",
            "{% if loop.last and add_generation_prompt and m.role != 'tool' %}<|a|>{% endif %}{% endfor %}",
            tool="{% if m.role == 'tool' %}<|t|>{{ m.content }}[/RESULT]{% endif %}",
        ),
        _PLAIN,
    ),
    "asks with an open thought": Kind(
        _with(_SAID, "{% endfor %}{% if add_generation_prompt %}<|a|><think>\n{% endif %}"), _PLAIN
    ),
    "asks with a thought that is closed": Kind(
        _with(_SAID, "{% endfor %}{% if add_generation_prompt %}<|a|><think></think>{% endif %}"), _PLAIN
    ),
    "thinks of nothing in the last turn": Kind(
        _with(
            "{% if m.role == 'assistant' %}{% set c = m.content.split('</think>')[-1].lstrip('\n') %}<|a|>"
            "{% if loop.last %}<think>\n\n</think>\n\n{% endif %}{{ c }}"
            "{% if m.tool_calls %}" + _CALLS + "{% endif %}<|end|>{% endif %}",
            "{% endfor %}{% if add_generation_prompt %}<|a|><think>\n{% endif %}",
        ),
        _PLAIN,
    ),
    "asks whether asked or not": Kind(
        _with(_SAID.replace("<|a|>", "<|a|><|open|>"), "{% endfor %}<|a|><|sep|>"), _PLAIN
    ),
    "asks in words": Kind(
        _with(_SAID, "{% endfor %}{% if add_generation_prompt %}<|a|>\nHere is what I think:\n{% endif %}"), _PLAIN
    ),
    "never asks": Kind(_with(_SAID, "{% endfor %}", user=_USER.replace("<|end|>", "<|a|>")).replace(
        "<|a|>{{ m.content }}{% if m.tool", " {{ m.content }}{% if m.tool"), Marks("<|a|>", ("<|end|>",))),
    "a call ends otherwise": Kind(
        _with(
            "{% if m.role == 'assistant' %}<|a|>{{ m.content }}{% if m.tool_calls %}" + _CALLS + "<|call|>"
            "{% else %}<|end|>{% endif %}{% endif %}"
        ),
        Marks("<|a|>", ("<|end|>", "<|call|>")),
    ),
    "the last turn ends otherwise": Kind(
        _with(_SAID.replace("<|end|>", "{% if loop.last %}<|stop|>{% else %}<|end|>{% endif %}")),
        Marks("<|a|>", ("<|end|>", "<|stop|>")),
        "<|stop|>",
    ),
    "ends in several marks": Kind(
        _with(_SAID.replace("<|end|>", "<|open|>said<|sep|><|end|>")), Marks("<|a|>", ("<|open|>said<|sep|><|end|>",))
    ),
    "the next turn is the end": Kind(
        _with(_SAID.replace("<|end|>", ""), user=_USER.replace("<|end|>", ""), tool=_TOOL.replace("<|end|>", "")),
        Marks("<|a|>", ("<|u|>", "<|t|>")),
    ),
    "a tool answers calls only": Kind(
        _with(
            _SAID,
            tool="{% if m.role == 'tool' %}{% if not loop.previtem.tool_calls and loop.previtem.role != 'tool' %}"
            "{{ raise_exception('what did it answer?') }}{% endif %}<|t|>{{ m.content }}<|end|>{% endif %}",
        ),
        _PLAIN,
    ),
    "a tool is named again": Kind(
        _HEAD.replace("{% for m", "{% set ns = namespace(name='') %}{% for m") + _USER
        + "{% if m.tool_calls %}{% set ns.name = m.tool_calls[0].function.name %}{% endif %}"
        + _TOOL.replace("<|t|>", "<|t|>{{ ns.name }}:") + _SAID + _ASK,
        _PLAIN,
    ),
    "wants numbered calls": Kind(
        _with(
            _SAID.replace(
                "{{ c.function.name }}",
                "{% if c.id | length != 9 %}{{ raise_exception('nine!') }}{% endif %}{{ c.function.name }}[{{ c.id }}]",
            )
        ),
        _PLAIN,
    ),
    "wants arguments as text": Kind(
        _with(_SAID.replace("{{ c.function.arguments | tojson }}", "{{ ': ' + c.function.arguments }}")), _PLAIN
    ),
    "wants a list of functions": Kind(
        _with(_SAID).replace("{% if tools %}<|s|>", "<|s|>").replace("{% endfor %}<|end|>{% endif %}",
                                                                  "{% endfor %}{{ tools | length }}<|end|>", 1),
        _PLAIN,
    ),
    "escapes what is said": Kind(_with(_SAID.replace("{{ m.content }}", "{{ m.content | tojson }}")), _PLAIN),
    "escapes for the web": Kind(_with(_SAID.replace("{{ m.content }}", "{{ m.content | e }}")), _PLAIN),
    "drops what is said beside a call": Kind(
        _with(_SAID.replace("{{ m.content }}", "{% if not m.tool_calls %}{{ m.content | trim }}{% endif %}")), _PLAIN
    ),
    "says what is beside a call behind its answer": Kind(
        _with(
            "{% if m.role == 'assistant' %}<|a|>{% if m.tool_calls %}" + _CALLS + "{% if loop.nextitem is defined "
            "and loop.nextitem.role == 'tool' %}<|t|>{{ loop.nextitem.content }}[/RESULT]{% endif %}{% endif %}"
            "{{ m.content }}<|end|>{% endif %}",
            tool="{% if m.role == 'tool' and loop.previtem.role == 'tool' %}<|t|>{{ m.content }}<|end|>{% endif %}",
        ),
        _PLAIN,
    ),
    "shows no calls": Kind(_with("{% if m.role == 'assistant' %}<|a|>{{ m.content }}<|end|>{% endif %}"), _PLAIN),
}  # fmt: skip

DEFIANT = {
    "changes the turns": _with(_SAID.replace("{{ m.content }}", "{{ m.content | length }}: {{ m.content }}")),
    "writes an answer twice": _with(_SAID)
    + "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}{% endif %}{% endfor %}",
    "leaves an answer out": _with(_SAID.replace("m.role == 'assistant'", "m.role == 'assistant' and loop.last")),
}
"""Templates of which no mask is certain, by what is said of them."""
