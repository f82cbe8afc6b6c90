"""A file's layout and the columns of its roles, by column names and the first rows, with a reason.

What a person chose is kept ("" is no column); the rest is filled in.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from core.contract.config import DataChoice, Layout
from core.contract.errors import DataError
from core.contract.methods import METHODS
from core.data.read.cells import JOIN, cell_at
from core.data.read.dialogue import are_spoken, turn_keys
from core.data.read.labels import number_of, separator_of
from core.data.read.marks import mark_of
from core.machine.textfile import one_line


class Role(NamedTuple):
    """One part of a layout; ``names`` are usual column names in lower case, its own first."""

    name: str
    names: tuple[str, ...]
    required: bool


def _role(*names: str, required: bool = True) -> Role:
    return Role(names[0], names, required)


_optional = partial(_role, required=False)
MARKED = {layout for row in METHODS.values() if row.marked for layout in row.layouts}
"""Layouts of marked answers."""
_SYSTEM = _optional("system", "system_prompt")
_TURNS = ("conversation", "dialogue", "dialog", "chat")
_TABLE: dict[Layout, tuple[Role, ...]] = {
    "preference": (
        _optional("prompt", "instruction", "question", "query"),
        _optional("input", "context"),
        _optional("conversations", "messages", *_TURNS),
        _role("chosen", "chosen_messages"),
        _role("rejected", "rejected_messages"),
        _optional("margin"),
        _SYSTEM,
    ),
    "kto": (
        _optional("messages", "conversations", *_TURNS),
        _optional("prompt", "instruction", "question"),
        _optional("completion", "response", "output", "answer"),
        _role("label", "kto_tag", "mark", "thumbs", "feedback"),
        _SYSTEM,
    ),
    "sharegpt": (
        _role("conversations", "messages", *_TURNS),
        _SYSTEM,
        _optional("tools", "functions"),
    ),
    "messages": (
        _role("messages", "conversations", *_TURNS),
        _SYSTEM,
        _optional("tools", "functions"),
    ),
    "alpaca": (
        _role("instruction"),
        _optional("input", "context"),
        _role("output", "response", "answer", "completion"),
        _SYSTEM,
    ),
    "prompt_completion": (
        _role("prompt", "question", "query", "input", "user", "source"),
        _role("completion", "answer", "response", "output", "assistant", "reply", "target"),
        _SYSTEM,
    ),
    "classification": (
        _role("text", "sentence", "review", "content", "input", "sentence1", "premise", "text1", "question1"),
        _optional("text_pair", "sentence2", "hypothesis", "text2", "question2"),
        _role("label", "labels", "sentiment", "class", "category"),
    ),
    "text": (_role("text", "content", "document", "body", "column 1"),),
}
LAYOUT_NAMES: dict[Layout, str] = {
    "alpaca": "Alpaca",
    "prompt_completion": "prompt and completion",
    "sharegpt": "ShareGPT",
    "messages": "OpenAI messages",
    "preference": "preference pairs",
    "kto": "KTO labels",
    "classification": "classification",
    "text": "raw text",
}
ROLES: dict[Layout, tuple[str, ...]] = {layout: tuple(role.name for role in roles) for layout, roles in _TABLE.items()}
"""The roles of each layout, for the mapping form."""
KNOWN_COLUMNS = frozenset(name for roles in _TABLE.values() for role in roles for name in role.names)


@dataclass(frozen=True)
class Recognised:
    """A file's layout, why it was chosen, and roles to columns."""

    layout: Layout
    reason: str
    mapping: dict[str, str]
    separator: str = ""
    """How a cell of labels joins several (``labels.separator_of``); "" where each holds one."""


def recognise_layout(
    columns: tuple[str, ...], sample: Sequence[dict[str, Any]], choice: DataChoice, header: bool = True
) -> Recognised:
    """The layout of a file with these columns, whose first rows are ``sample``; ``header``: they have names.

    Raises:
        DataError: a mapped column does not exist, a role is left without column, or nothing is recognised.
    """
    found = _recognised(columns, sample, choice, header)
    margin = found.mapping.get("margin")
    margins = [str(cell) for row in sample if margin and (cell := cell_at(row, margin)) not in (None, "")]
    if "margin" not in choice.columns and any(number_of(cell) is None for cell in margins):
        return replace(found, mapping={role: column for role, column in found.mapping.items() if role != "margin"})
    if found.layout != "classification":
        return found
    return replace(found, separator=separator_of(cell_at(row, found.mapping["label"]) for row in sample))


def _recognised(
    columns: tuple[str, ...], sample: Sequence[dict[str, Any]], choice: DataChoice, header: bool
) -> Recognised:
    given = dict(choice.columns)
    mapped = {role: column for role, column in given.items() if column}
    for role, column in mapped.items():
        for one in columns_in(column, columns):
            if one not in columns and all(cell_at(row, one) is None for row in sample):
                raise _fault(f"a column {one!r} for {role}", columns)
    for column in (one for joined in mapped.values() for one in columns_in(joined, columns)):
        roles = [role for role, other in mapped.items() if column in columns_in(other, columns)]
        if len(roles) > 1:  # a prompt that is its own completion would teach to repeat the question
            raise DataError("data.column_twice", roles=" and ".join(roles), column=column)
    if choice.layout != "auto":
        return _complete(choice.layout, f"{LAYOUT_NAMES[choice.layout]}, as you chose", given, columns, header)
    if mapped:
        layout = next((one for one in _TABLE if _required(one) <= set(mapped) <= set(ROLES[one])), None)
        if layout is None:
            raise _fault(f"roles of one layout, not {', '.join(mapped)}", columns)
        return _complete(layout, f"{LAYOUT_NAMES[layout]}, by the columns you mapped", given, columns, header)
    if {"message_id", "parent_id", "role", "text"} <= set(columns):  # OpenAssistant's export
        raise DataError("data.tree")
    return _by_names(columns, sample) or _by_content(columns, sample, header)


def columns_in(column: str, columns: Sequence[str]) -> list[str]:
    """The columns that a role's column is joined of, mostly itself."""
    return [column] if column in columns else column.split(JOIN)


def _required(layout: Layout) -> set[str]:
    return {role.name for role in _TABLE[layout] if role.required}


def _complete(layout: Layout, reason: str, given: dict[str, str], columns: tuple[str, ...], header: bool) -> Recognised:
    """The layout with roles that were not ``given`` filled in by usual names, or in order where columns have none."""
    unknown = [role for role, column in given.items() if column and role not in ROLES[layout]]
    if unknown:
        wanted = ", ".join(ROLES[layout])
        raise _fault(f"roles of {LAYOUT_NAMES[layout]} ({wanted}), not {', '.join(unknown)}", columns)
    taken = {one for column in given.values() for one in columns_in(column, columns)}
    mapping = {**_usual(layout, tuple(column for column in columns if column not in taken)), **given}
    mapping = {role: column for role, column in mapping.items() if column}  # "" is a role that a person left out
    missing = [role.name for role in _TABLE[layout] if role.required and role.name not in mapping]
    left = [column for column in columns if column not in mapping.values()]
    if (not header or len(columns) == 1) and len(left) == len(missing):
        mapping |= dict(zip(missing, left, strict=True))
        missing = []
    if missing:
        raise _fault(f"a column for {' and '.join(missing)} ({LAYOUT_NAMES[layout]})", columns)
    return Recognised(layout, reason, {role: mapping[role] for role in ROLES[layout] if role in mapping})


def _plain(name: str) -> str:
    """A column's name in one spelling: ``System Prompt`` is ``system_prompt``."""
    return name.lower().strip().replace(" ", "_").replace("-", "_")


def _usual(layout: Layout, columns: tuple[str, ...]) -> dict[str, str]:
    lower = {_plain(column): column for column in reversed(columns)}
    mapping: dict[str, str] = {}
    for role in _TABLE[layout]:
        free = (lower[name] for name in map(_plain, role.names) if lower.get(name) not in (None, *mapping.values()))
        if column := next(free, ""):
            mapping[role.name] = column
    return mapping


def _by_names(columns: tuple[str, ...], sample: Sequence[dict[str, Any]]) -> Recognised | None:
    for layout, roles in ROLES.items():
        mapping = _usual(layout, columns)
        if _required(layout) <= set(mapping) and _fits(layout, mapping, columns, sample):
            names = [one_line(mapping[role], 40) for role in roles if role in mapping]
            shown = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
            verb = "columns" if len(names) > 1 else "column"
            return Recognised(layout, f"{verb} {shown}: {LAYOUT_NAMES[layout]}", mapping)
    return None


def _fits(layout: Layout, mapping: dict[str, str], columns: tuple[str, ...], sample: Sequence[dict[str, Any]]) -> bool:
    """Whether the first rows fit a layout that was recognised by column names."""
    if layout in ("sharegpt", "messages"):
        column = mapping[layout if layout == "messages" else "conversations"]
        keys = next((keys for row in sample if (keys := turn_keys(row.get(column)))), set())
        if layout == "messages":
            return bool(keys & {"role", "content"})
        return bool(keys & {"from", "value"}) or are_spoken(keys)
    if layout in MARKED:
        labels = [label for row in sample if (label := row.get(mapping["label"])) is not None]
        turns = "messages" in mapping or {"prompt", "completion"} <= set(mapping)
        others = sum(mark_of(label) is None for label in labels)
        return turns and 2 * others <= len(labels) and others <= max(1, len(labels) // 10)
    if layout == "preference":
        return True
    if layout == "text":
        return mapping["text"].lower() != "column 1" or len(columns) == 1
    cells = [row.get(column) for row in sample for column in mapping.values()]
    return 2 * sum(isinstance(cell, dict) for cell in cells) < len(cells)


def _by_content(columns: tuple[str, ...], sample: Sequence[dict[str, Any]], header: bool) -> Recognised:
    if len(columns) == 1:
        return Recognised("text", "one column: raw text", {"text": columns[0]})
    if len(columns) == 2 and not header:
        first, second = columns
        labels = {str(row.get(second, "")).strip() for row in sample}
        if labels and max(map(len, labels)) <= 20 and len(labels) <= max(2, len(sample) // 10):
            reason = f"two columns without names, the second with {len(labels)} values: classification"
            return Recognised("classification", reason, {"text": first, "label": second})
        reason = "two columns without names: prompt and completion"
        return Recognised("prompt_completion", reason, {"prompt": first, "completion": second})
    raise _fault("columns of a known layout", columns)


def listed(columns: tuple[str, ...]) -> str:
    """The first columns, each shortened, for a message."""
    return ", ".join(one_line(column, 40) for column in columns[:20]) or "none"


def _fault(expected: str, columns: tuple[str, ...]) -> DataError:
    return DataError("data.columns/unknown", expected=expected, columns=listed(columns))
