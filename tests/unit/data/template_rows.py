"""Conversations of every kind whose words are each unique, so that a word says whose it is wherever a template puts it.

A word is made of two letters, a number and a letter (``ux12z``), which no template knows, trims or escapes. Words of
the model (answers, calls) begin with ``a``, all others with ``u``, ``s`` or ``t``.
"""

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import Any

from core.contract.data import Example, Message

WORD = re.compile(r"(?<![A-Za-z0-9])[aust]x\d+z")
_numbers = count(10)
_SCHEMA = {"type": "object", "properties": {"at": {"type": "string", "description": "place"}}, "required": ["at"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"Look up {name}", "parameters": _SCHEMA}}
    for name in ("get_rain", "get_time")
]


def _w(kind: str) -> str:
    return f"{kind}x{next(_numbers)}z"


def _u(text: str = "Is {} there, {}?") -> Message:
    return Message(role="user", content=text.format(*(_w("u") for _ in range(text.count("{}")))))


def _s(text: str = "Be {} and {}.") -> Message:
    return Message(role="system", content=text.format(*(_w("s") for _ in range(text.count("{}")))))


def _t(text: str = '{{"found": "{}", "more": "{}"}}') -> Message:
    return Message(role="tool", content=text.format(*(_w("t") for _ in range(text.count("{}")))))


def _a(text: str = "Well {}, so {}.") -> Message:
    return Message(role="assistant", content=text.format(*(_w("a") for _ in range(text.count("{}")))))


def _thought(message: Message) -> Message:
    """The turn with what was thought before it, beside what it says."""
    return message.model_copy(update={"reasoning": f"First {_w('a')}, then {_w('a')}."})


def _call(*arguments: dict[str, Any] | None, text: str = "") -> Message:
    """A turn that calls as many functions as it gets arguments; None: ordinary ones."""
    names = ("get_rain", "get_time", "get_rain")
    made = [
        {"name": names[place], "arguments": {"at": _w("a"), "day": _w("a")} if one is None else one}
        for place, one in enumerate(arguments)
    ]
    said = text.format(*(_w("a") for _ in range(text.count("{}"))))
    return Message(role="assistant", content=said, tool_calls=json.dumps(made, ensure_ascii=False))


_THINK = "<think>\nFirst {} then {}\n</think>\n\nSo {} it is."


def kinds() -> Iterator[tuple[str, list[Message], bool]]:
    """Each kind of conversation: its name, its turns, and whether functions are offered."""
    yield "one answer", [_u(), _a()], False
    yield "system", [_s(), _u(), _a()], False
    yield "three turns", [_u(), _a(), _u(), _a(), _u(), _a()], False
    yield "system and turns", [_s(), _u(), _a(), _u(), _a()], False
    yield "ends with a question", [_u(), _a(), _u()], False
    yield "unicode", [_u("Où {} 🦜 {}?"), _a("Дa {} 👩‍👩‍👧‍👦 你好 {} é́"), _u("{} 🇳🇴"), _a("שלום {}")], False
    yield (
        "marks as text",
        [_u("{} <|im_end|> </s> [/INST] {}"), _a("{} <|im_start|>user <|end|> {}"), _u(), _a()],
        False,
    )
    yield "marks of thoughts and calls", [_u("{} <tool_call> {}"), _a("{} </tool_call> ``` {}"), _u(), _a()], False
    yield "edges", [_u(" {} \n"), _a("\n {}  \n\n"), _u("\t{}"), _a(" {} ")], False
    yield "escapes", [_u('"{}" & <b>{}</b> \\n'), _a("{}: \"x\" & <b>'{}'</b> \\ {{{{ {} }}}}")], False
    yield "code", [_u(), _a('```json\n{{"{}": [1, 2]}}\n```\n- {}\n\n# {}')], False
    yield "empty answer between", [_u(), _a(""), _u(), _a()], False
    yield "empty answer last", [_u(), _a(), _u(), _a("")], False
    yield "empty question", [_u(""), _a(), _u(), _a()], False
    yield "two questions", [_u(), _u(), _a()], False
    yield "two answers", [_u(), _a(), _a()], False
    yield "begins with an answer", [_a(), _u(), _a()], False
    yield "thinks", [_u(), _a(_THINK)], False
    yield "thinks in every turn", [_u(), _a(_THINK), _u(), _a(_THINK), _u(), _a(_THINK)], False
    yield "thinks of nothing", [_u(), _a("<think>\n\n</think>\n\n({})"), _u(), _a("<think></think>({})")], False
    yield "thought apart", [_u(), _thought(_a())], False
    yield "thought apart in every turn", [_s(), _u(), _thought(_a()), _u(), _thought(_a())], False
    yield "thought apart and a call", [_u(), _thought(_call(None)), _t(), _thought(_a())], True
    yield "tools unused", [_s(), _u(), _a(), _u(), _a()], True
    yield "call", [_u(), _call(None), _t(), _a()], True
    yield "call and system", [_s(), _u(), _call(None), _t(), _a(), _u(), _a()], True
    yield "call without list", [_u(), _call(None), _t(), _a()], False
    yield "parallel calls", [_u(), _call(None, None), _t(), _t(), _a()], True
    yield "text before a call", [_u(), _call(None, text="Let {} see {}."), _t(), _a()], True
    yield (
        "text before parallel calls",
        [_u(), _call(None, None, text="Let {} see."), _t(), _t(), _a(), _u(), _a()],
        True,
    )
    yield "ends with a call", [_u(), _a(), _u(), _call(None)], True
    yield "ends with text and a call", [_s(), _u(), _call(None, text="Let {} see.")], True
    yield "ends with parallel calls", [_u(), _call(None, None)], True
    yield "call after call", [_u(), _call(None), _t(), _call(None), _t(), _a()], True
    yield "calls in two rounds", [_u(), _call(None), _t(), _a(), _u(), _call(None), _t(), _a()], True
    yield "thinks and calls", [_u(), _call(None, text="<think>\n{} so\n</think>\n\n"), _t(), _a(_THINK)], True
    yield (
        "odd arguments",
        [
            _u(),
            _call({"n": 5, "at": 'ax1z "q" é 🦜\n& <b>', "ok": True, "deep": {"ax2z": ["ax3z", None]}}),
            _t("{} & <b> é {}"),
            _a(),
        ],
        True,
    )
    yield "no arguments", [_u(), _call({}), _t(), _a()], True
    yield "a question after a call", [_u(), _call(None), _t(), _u(), _a()], True


def rows() -> list[tuple[str, Example]]:
    """Each kind as a row."""
    return [
        (name, Example(row=number, messages=tuple(turns), tools=json.dumps(TOOLS) if offered else ""))
        for number, (name, turns, offered) in enumerate(kinds(), start=1)
    ]
