"""A record as an Example, or the reason why it cannot be used, such as a cell of a wrong type."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from core.contract.config import Layout
from core.contract.data import Example, Message
from core.data.read.cells import Record, RowError, as_json, cell_at, kind_of, parsed, text_of
from core.data.read.dialogue import is_parts, is_turns, parts_text, read_turns, said
from core.data.read.labels import number_of, read_label
from core.data.read.layouts import Recognised
from core.data.read.marks import MARKS_WANTED, mark_of, written_mark
from core.machine.textfile import one_line

_MEDIA_COLUMNS = frozenset({
    "image", "images", "img", "imgs", "photo", "photos", "picture", "pictures", "video", "videos", "audio", "audios",
    "speech", "sound", "waveform", "spectrogram", "pixel_values",
})  # fmt: skip
_MAGIC = (
    b"\xff\xd8\xff",
    b"\x89PNG",
    b"GIF8",
    b"RIFF",
    b"OggS",
    b"ID3",
    b"fLaC",
    b"%PDF",
    b"\x1aE\xdf\xa3",
    b"II*\0",
    b"MM\0*",
)
"""How files of pictures, sound and film begin."""
_LONG_BYTES = 256
_EMBEDDED = re.compile(r"data:(image|audio|video)/[\w.+-]+;base64,[A-Za-z0-9+/]{100}")
_IMAGE = re.compile(r"(?<!`)<image>(?!`)")
# HTML has elements of these names, so only those at the beginning or end of a line are placeholders.
_FILM_OR_SOUND = re.compile(r"^\s*<(?:video|audio)>|<(?:video|audio)>\s*$", re.MULTILINE)


@dataclass(frozen=True)
class _Row:
    number: int
    values: dict[str, Any]
    mapping: dict[str, str]
    separator: str = ""

    def get(self, role: str) -> Any:
        return cell_at(self.values, self.mapping[role]) if role in self.mapping else None

    def text(self, role: str) -> str:
        """The text of a required role."""
        text = _text(self.get(role), self.mapping[role])
        if not text.strip():
            raise RowError("row.empty", f"{self.mapping[role]} is empty")
        return text

    def optional(self, role: str) -> str:
        value = self.get(role)
        return "" if value is None else _text(value, self.mapping[role])

    def has(self, role: str) -> bool:
        return self.get(role) not in (None, "")


def to_example(recognised: Recognised, record: Record) -> Example:
    """The record as an Example. Raises RowError where it cannot be used."""
    used = recognised.mapping.values()  # a column of media that a role uses is read as text
    for column, value in record.values.items():
        if isinstance(value, _PLAIN) and column.lower() not in _MEDIA_COLUMNS:
            continue
        named = column.lower() in _MEDIA_COLUMNS and _holds(value)
        if (named or is_media(value)) and column not in used:
            raise RowError("row.media", f"the column {column} holds media, which a text model cannot see or hear")
    row = _Row(record.row, record.values, recognised.mapping, recognised.separator)
    example = _READERS[recognised.layout](row)
    _refuse_placeholders((*(message.content for message in example.messages), example.text))
    return example


def _text(value: Any, where: str) -> str:
    return parts_text(value, where) if is_parts(value) else text_of(value, where)


def _alpaca(row: _Row) -> Example:
    instruction, given = row.optional("instruction"), row.optional("input")
    question = f"{instruction}\n\n{given}" if instruction.strip() and given.strip() else instruction or given
    if not question.strip():
        raise RowError("row.empty", f"{row.mapping['instruction']} is empty")
    return _conversation(row, [said("user", question), said("assistant", row.text("output"))])


def _prompt_completion(row: _Row) -> Example:
    if is_turns(row.get("prompt")) or is_turns(row.get("completion")):
        turns = read_turns(row.get("prompt"), row.mapping["prompt"])
        turns += read_turns(row.get("completion"), row.mapping["completion"], alone="assistant")
        return _conversation(row, turns)
    return _conversation(row, [said("user", row.text("prompt")), said("assistant", row.text("completion"))])


def _chat(role: str) -> Callable[[_Row], Example]:
    def read(row: _Row) -> Example:
        return _conversation(row, read_turns(row.get(role), row.mapping[role]))

    return read


def _preference(row: _Row) -> Example:
    before = _before(row)
    sides = [read_turns(row.get(side), row.mapping[side], alone="assistant") for side in ("chosen", "rejected")]
    if sides[0][:-1] != sides[1][:-1]:
        raise RowError("row.pair", "chosen and rejected do not answer the same conversation")
    answers = tuple(side[-1] for side in sides)
    for name, answer in zip(("chosen", "rejected"), answers, strict=True):
        if answer.role != "assistant":
            raise RowError("row.pair", "chosen and rejected must end with an answer")
        if answer.tool_calls:
            raise RowError("row.pair", f"{name} calls a tool, expected an answer in words")
        if answer.reasoning:
            raise RowError("row.reasoning", f"{name} holds reasoning of its own, which is not trained in pairs")
        if not answer.content.strip():
            raise RowError("row.empty", f"{name} is empty")
    prompt = _with_system(row, _prompt(before, sides[0][:-1], answers))
    if not any(message.role == "user" for message in prompt):
        raise RowError("row.pair", "found no prompt that chosen and rejected answer")
    chosen, rejected = (answer.content for answer in answers)
    equal, margin = chosen.strip() == rejected.strip(), None
    if row.has("margin"):
        value = row.get("margin")
        margin = None if isinstance(value, bool) else number_of(str(value))
        if margin is None:
            raise RowError("row.type", f"{row.mapping['margin']} is {kind_of(value)}, expected a number")
    return Example(row=row.number, equal=equal, messages=prompt, chosen=chosen, rejected=rejected, margin=margin)


def _before(row: _Row) -> list[Message]:
    """The turns before the two answers of a preference row that have a column of their own."""
    if row.has("conversations"):
        return read_turns(row.get("conversations"), row.mapping["conversations"])
    if is_turns(row.get("prompt")):
        return read_turns(row.get("prompt"), row.mapping["prompt"])
    if not row.has("prompt"):
        return []
    given = row.optional("input")
    if given.strip():
        return [said("user", f"{row.text('prompt')}\n\n{given}")]
    return read_turns(row.text("prompt"), row.mapping["prompt"])


def _prompt(before: list[Message], own: list[Message], answers: tuple[Message, ...]) -> list[Message]:
    """The conversation that both answers answer: a column of its own (``before``) and what the sides hold before them
    (``own``), which may repeat each other."""
    if before and before[-1].role == "assistant" and before[-1] in answers:
        before = before[:-1]
    if own[: len(before)] == before:
        before = []
    elif before[-len(own) :] == own:
        own = []
    elif own and before[-1].role == own[0].role == "user":
        raise RowError("row.pair", "the prompt's column and chosen hold different conversations")
    prompt = before + own
    if prompt and prompt[-1].role == "assistant":
        raise RowError("row.pair", "the conversation before chosen and rejected ends with another answer")
    return prompt


def _kto(row: _Row) -> Example:
    value = row.get("label")
    mark = mark_of(value)
    if mark is None:
        found = repr(one_line(value, 40)) if isinstance(value, str) else kind_of(value)
        raise RowError("row.mark", f"{row.mapping['label']} is {found}, expected {MARKS_WANTED}")
    marked = {"mark": mark, "label": written_mark(value)}
    if row.has("messages") or ("messages" in row.mapping and "completion" not in row.mapping):
        return _chat("messages")(row).model_copy(update=marked)
    for role in ("prompt", "completion"):
        if role not in row.mapping:
            raise RowError("row.missing", f"found no column for {role}")
    return _prompt_completion(row).model_copy(update=marked)


def _classification(row: _Row) -> Example:
    label, labels = read_label(row.get("label"), row.mapping["label"], row.separator)
    second = row.optional("text_pair")
    asked = f"{row.text('text')}\n\n{second}" if second.strip() else row.text("text")
    example = _conversation(row, [said("user", asked), said("assistant", label)])
    return example.model_copy(update={"label": label, "labels": labels, "second": second if second.strip() else ""})


_READERS: dict[Layout, Callable[[_Row], Example]] = {
    "alpaca": _alpaca,
    "prompt_completion": _prompt_completion,
    "sharegpt": _chat("conversations"),
    "messages": _chat("messages"),
    "preference": _preference,
    "kto": _kto,
    "classification": _classification,
    "text": lambda row: Example(row=row.number, text=row.text("text")),
}


def _conversation(row: _Row, messages: list[Message]) -> Example:
    if not any(message.role == "assistant" and (message.content.strip() or message.tool_calls) for message in messages):
        raise RowError("row.no_answer", "found no answer to learn from")
    if not any(message.trained for message in messages if message.role == "assistant"):
        raise RowError("row.no_answer", "found no answer to learn from: each has weight 0")
    whole, value, tools = _with_system(row, messages), row.get("tools"), ""
    if value not in (None, "", [], "[]"):
        functions = parsed(value) if isinstance(value, str) else value
        if not isinstance(functions, list) or not all(isinstance(one, dict) for one in functions):
            column = row.mapping["tools"]
            raise RowError("row.tools", f"{column} is {kind_of(value)}, expected a JSON list of functions")
        tools = as_json(functions, row.mapping["tools"]) if functions else ""
    return Example(row=row.number, messages=whole, tools=tools)


def _with_system(row: _Row, messages: list[Message]) -> tuple[Message, ...]:
    """The turns behind one system prompt: that of a column, and the turns of it that they begin with."""
    begin = next((place for place, turn in enumerate(messages) if turn.role != "system"), len(messages))
    prompts = dict.fromkeys(turn.content for turn in messages[:begin])
    system = row.optional("system")
    if system.strip() and not any(system.strip() in prompt for prompt in prompts):
        prompts = {system: None, **prompts}
    return (*(said("system", one) for one in ["\n\n".join(filter(str.strip, prompts))] if prompts), *messages[begin:])


# ── rows with media, which a text model cannot see or hear ───────────────────────────────────────────────────────────


_PLAIN = (str, int, float, type(None))


def is_media(value: Any) -> bool:
    """Whether a cell is a picture, sound or film: its bytes, or what the hub's Image and Audio keep."""
    if isinstance(value, bytes):
        return value.startswith(_MAGIC) or value[4:8] == b"ftyp" or (len(value) > _LONG_BYTES and not _is_text(value))
    if isinstance(value, dict):
        sound = "array" in value and "sampling_rate" in value
        return sound or ("bytes" in value and any(map(_holds, (value["bytes"], value.get("path")))))
    return isinstance(value, list) and any(map(is_media, value))


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _holds(value: Any) -> bool:
    """Whether a cell may hold media: anything but numbers, booleans, empty values, and lists or objects of these."""
    if isinstance(value, (list, tuple, dict)):
        return any(map(_holds, value.values() if isinstance(value, dict) else value))
    return bool(value) and not isinstance(value, (bool, int, float))


def _refuse_placeholders(texts: Iterable[str]) -> None:
    """Raises RowError where a text holds a placeholder of media; an element with its end tag is HTML."""
    for text in texts:
        if "base64," in text and (embedded := _EMBEDDED.search(text)):
            raise RowError("row.media", f"a text holds {embedded[1]} data, which a text model cannot see or hear")
        if ">" not in text or not any(mark in text for mark in ("<image>", "<video>", "<audio>")):
            continue
        match = _IMAGE.search(text) or _FILM_OR_SOUND.search(text)
        if match and f"</{match[0].strip()[1:]}" not in text:
            name = match[0].strip()
            raise RowError("row.media", f"{name} stands for media, which a text model cannot see or hear")
