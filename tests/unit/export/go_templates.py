"""A small interpreter of Go's ``text/template``: what the exports' templates are written in, and how Ollama calls it.

Text, ``if``/``else if``/``else``, ``range $i, $x := .List``, variables, fields, quoted strings and the functions eq,
and, not, len and slice. Agreed with Go 1.19 itself on each template and conversation of these tests.
"""

from __future__ import annotations

import json
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[()]|:=|[^\s()]+')
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "eq": lambda left, right: left == right,
    "and": lambda *all_: next((one for one in all_ if not one), all_[-1]),
    "not": lambda one: not one,
    "len": len,
    "slice": lambda items, start: items[start:],
}
Node = Any


def in_ollama(template: str, turns: Sequence[dict[str, str]], system: str = "") -> str:
    """What Ollama sends for a chat; ``system`` is the Modelfile's."""
    root = {**values(turns, system), "Response": ""}
    nodes, _, rest = _parsed(list(_pieces(template)))
    assert not rest
    return "".join(_written(nodes, root, ChainMap({"$": root})))


def values(turns: Sequence[dict[str, str]], system: str = "") -> dict[str, Any]:
    """A chat as Ollama's templates see it: turns of one role in a row are one, the Modelfile's system prompt comes
    first where the chat brings none, and all system prompts together are ``.System``, too."""
    if system and turns[0]["role"] != "system":
        turns = [{"role": "system", "content": system}, *turns]
    joined: list[dict[str, str]] = []
    for turn in turns:
        if joined and joined[-1]["Role"] == turn["role"]:
            joined[-1]["Content"] += f"\n\n{turn['content']}"
        else:
            joined.append({"Role": turn["role"], "Content": turn["content"]})
    told = "\n\n".join(turn["content"] for turn in turns if turn["role"] == "system")
    return {"System": told, "Messages": joined}


def _pieces(template: str) -> Iterator[tuple[str, str]]:
    """Text and actions in turn; a quoted string in an action may hold braces."""
    while template:
        text, found, template = template.partition("{{")
        if text:
            yield "text", text
        if found:
            action = re.match(r'((?:"(?:[^"\\]|\\.)*"|[^"}]|\}(?!\}))*)\}\}', template, re.S)
            assert action, template[:80]
            yield "action", action[1].strip()
            template = template[action.end() :]


def _parsed(pieces: list[tuple[str, str]]) -> tuple[list[Node], str, list[tuple[str, str]]]:
    """Nodes up to an ``else`` or ``end``, which is returned with what follows."""
    nodes: list[Node] = []
    while pieces:
        (kind, said), pieces = pieces[0], pieces[1:]
        word = said.split(" ")[0]
        if kind == "action" and word in ("else", "end"):
            return nodes, said, pieces
        if kind == "action" and word in ("if", "range"):
            inner, ending, pieces = _parsed(pieces)
            other: list[Node] = []
            if ending.startswith("else if"):
                pieces = [("action", ending.removeprefix("else ")), *pieces]
                chain, ending, rest = _one(pieces)
                other, pieces = [chain], rest
            elif ending == "else":
                other, ending, pieces = _parsed(pieces)
            assert ending == "end", ending
            nodes.append((word, said.removeprefix(word).strip(), inner, other))
        else:
            nodes.append((kind, said))
    return nodes, "", []


def _one(pieces: list[tuple[str, str]]) -> tuple[Node, str, list[tuple[str, str]]]:
    """An ``else if``: one node, whose ``end`` is the whole chain's."""
    said = pieces[0][1]
    inner, ending, rest = _parsed(pieces[1:])
    other: list[Node] = []
    if ending.startswith("else if"):
        chain, ending, rest = _one([("action", ending.removeprefix("else ")), *rest])
        other = [chain]
    elif ending == "else":
        other, ending, rest = _parsed(rest)
    return ("if", said.removeprefix("if").strip(), inner, other), ending, rest


def _written(nodes: list[Node], dot: Any, names: ChainMap[str, Any]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ("text", text):
                yield text
            case ("action", said) if set_ := re.match(r"(\$\w+) (:?=) (.*)", said):
                known = names if set_[2] == ":=" else next(one for one in names.maps if set_[1] in one)
                known[set_[1]] = _value(set_[3], dot, names)
            case ("action", said):
                yield str(_value(said, dot, names))
            case ("if", said, inner, other):
                yield from _written(inner if _value(said, dot, names) else other, dot, names.new_child())
            case ("range", said, inner, _):
                listed, _, value = said.partition(":=")
                index, item = (name.strip() for name in listed.split(","))
                for number, one in enumerate(_value(value, dot, names)):
                    yield from _written(inner, one, names.new_child({index: number, item: one}))


def _value(said: str, dot: Any, names: ChainMap[str, Any]) -> Any:
    words = _WORD.findall(said)
    value = _call(words, dot, names)
    assert not words, said
    return value


def _call(words: list[str], dot: Any, names: ChainMap[str, Any]) -> Any:
    values = []
    while words and words[0] != ")":
        word = words.pop(0)
        if word == "(":
            values.append(_call(words, dot, names))
            assert words.pop(0) == ")"
        elif word in _FUNCTIONS:
            values.append(_FUNCTIONS[word])
        elif word in ("true", "false"):
            values.append(word == "true")
        elif word.startswith('"'):
            values.append(json.loads(word))
        elif word[0] in ".$":
            name, *fields = word.split(".")
            found = names[name] if name else dot
            for field in fields:
                found = found[field] if field else found
            values.append(found)
        else:
            values.append(int(word))
    return values[0](*values[1:]) if callable(values[0]) else values[0]
