"""What the columns of a file are taken for where their names are no layout's: a proposal, by names and contents.

Each column gets points for each part (question, answer, ...) from the words of its name and from its first cells. The
parts go to the columns with most points; of the layouts whose parts are found the surest is proposed, and tried on the
first rows.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, NamedTuple

from core.contract.config import DataChoice, Layout
from core.contract.errors import DataError
from core.contract.rows import RoleGuess
from core.data.read.cells import Record, RowError, cell_at, kind_of
from core.data.read.dialogue import are_spoken, is_parts, parts_text, turn_keys
from core.data.read.labels import number_of
from core.data.read.layouts import Recognised, recognise_layout
from core.data.read.marks import mark_of
from core.data.read.turns import to_example
from core.machine.textfile import one_line

_SAMPLE_CHARACTERS = 160
_LOOKED_AT = 50
"""Rows on which a proposal is tried."""
_SURE = 2.0
"""Points that a name gives at least; beyond, layouts are equally sure."""
_LEAST = 0.4
_MOST_KEYS = 40
_MOST_COLUMNS = 60
"""Further ones are not asked what they may be."""
_MOST_SHOWN = 1_000
_CUT = 2_000
_SENTENCE = 5
"""Words."""
_SHORT = 300
"""Characters of an address or a date."""
_OTHER = "other"

_WORDS: dict[str, dict[float, str]] = {
    "question": {
        4: "question questions query prompt instruction frage anfrage pregunta domanda pergunta вопрос 问题 質問 提问 "
        "ask asked request problem",
        3: "customer user human client kunde kundin cliente usuario utilisateur input ticket inquiry enquiry issue "
        "task aufgabe anweisung consigna demande wrote",
        2: "source src original q title subject betreff english en visitor caller student patient",
        1: "message nachricht mensaje text body",
    },
    "answer": {
        4: "answer answers reply response completion output antwort respuesta réponse reponse risposta resposta ответ "
        "回答 答案 solution resolution lösung loesung antworten generation replied answered responded",
        3: "agent assistant bot gpt chatgpt support operator advisor berater expert model ai summary zusammenfassung "
        "translation übersetzung target tgt gold expected",
        2: "result explanation rationale reference correct ideal german french spanish doctor teacher",
        1: "message nachricht mensaje text body",
    },
    "system": {8: "system systemprompt", 3: "persona role guidelines preamble"},
    "context": {4: "context kontext passage background evidence excerpt", 2: "document article paragraph input"},
    "chosen": {9: "chosen preferred better winner winning accepted liked best good gewinner"},
    "rejected": {9: "rejected dispreferred worse loser losing declined disliked worst bad verlierer"},
    "mark": {
        5: "mark thumbs thumb feedback helpful upvote upvoted vote liked approved good useful accepted satisfied "
        "daumen",
        2: "correct ok rating",
    },
    "label": {
        5: "label labels class category kategorie klasse sentiment intent topic thema etiqueta classe genre emotion "
        "stars tag tags categoria catégorie",
        3: "type kind art score rating severity priority priorität department status spam toxic rubrik group queue "
        "team folder abteilung",
    },
    "conversation": {
        6: "conversation conversations messages dialogue dialog dialogs chat chats turns transcript thread gespräch "
        "unterhaltung conversación verlauf"
    },
    "text": {
        4: "text content document article body review comment sentence tweet post beitrag kommentar texto texte "
        "abstract story essay paragraph bewertung",
        1: "title description message nachricht beschreibung email mail",
    },
    _OTHER: {
        9: "id ids uuid guid key index idx url uri link href date datetime time timestamp created updated datum zeit "
        "email mail phone split hash version",
        4: "name author lang language sprache number count length tokens file filename path source_file author_id "
        "username score_count model_name",
    },
}
"""Words of column names, by the points that they give a part."""
_POINTS: dict[str, dict[str, float]] = {}
for _part, _listed in _WORDS.items():
    for _points, _words in _listed.items():
        for _word in _words.split():
            _POINTS.setdefault(_word, {})[_part] = _points
KNOWN_WORDS = frozenset(_POINTS)
_PARTING = re.compile(r"[\W_\d]+|(?<=[a-zà-ÿ])(?=[A-ZÀ-Þ])")
_UUID = re.compile(r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F-]{4,}|[0-9a-fA-F]{16,}")
_URL = re.compile(r"(?:https?|s3|gs|file)://\S+|www\.\S+|\S+@\S+\.\w+")
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ][\d:.,+Z ]*)?")


def _is_taken_out(cell: Any) -> bool:
    """An identifier, an address or a date."""
    text = cell.strip() if isinstance(cell, str) and len(cell) <= _SHORT else ""
    return any(pattern.fullmatch(text) for pattern in (_UUID, _URL, _DATE))


@dataclass(frozen=True)
class _Column:
    """What is known of one column."""

    name: str
    cells: tuple[Any, ...]
    """The first cells that are not empty, texts cut to ``_CUT``."""
    mean: float
    """Characters of a whole text."""
    turns: tuple[set[str], ...]
    """Keys of the turns in a cell; none where it holds none."""

    @cached_property
    def texts(self) -> list[str]:
        return [cell for cell in self.cells if isinstance(cell, str)]

    @cached_property
    def free(self) -> bool:
        """Whether it holds texts of several words."""
        return self.share(lambda cell: isinstance(cell, str)) > 0.5 and fmean(len(t.split()) for t in self.texts) > 1.5

    @property
    def prose(self) -> bool:
        """Whether it holds sentences, mostly different ones: a mail, not its address."""
        return self.free and not self.few and fmean(len(text.split()) for text in self.texts) >= _SENTENCE

    def holds_turns(self, fits: Callable[[set[str]], Any]) -> bool:
        """Whether most cells are turns whose keys fit."""
        return 2 * sum(bool(fits(keys)) for keys in self.turns) > len(self.turns)

    def share(self, fits: Callable[[Any], Any]) -> float:
        """Of its cells."""
        return sum(bool(fits(cell)) for cell in self.cells) / len(self.cells) if self.cells else 0.0

    @cached_property
    def numbers(self) -> bool:
        return self.share(_is_number) > 0.9

    @cached_property
    def marks(self) -> bool:
        return self.share(lambda cell: mark_of(cell) is not None) > 0.9

    @cached_property
    def few(self) -> bool:
        """Whether short values are repeated, as labels are."""
        values = {str(cell).strip() for cell in self.cells if not isinstance(cell, (dict, list))}
        short = bool(values) and max(map(len, values)) <= 40
        return short and len(self.cells) > 2 and len(values) <= max(2, len(self.cells) // 3)

    @property
    def alike(self) -> bool:
        """Whether one short value stands in every cell."""
        return self.few and len({str(cell).strip() for cell in self.cells}) == 1


class _Sign(NamedTuple):
    """Something that cells show, and the points that it gives and takes."""

    shows: Callable[[_Column], bool]
    points: dict[str, float]


_NO_TEXT = dict.fromkeys(("question", "answer", "system", "context", "chosen", "rejected", "text"), -20.0)
_SIGNS = (
    _Sign(lambda one: not one.cells, {_OTHER: 20.0}),
    _Sign(lambda one: one.holds_turns(bool), {"conversation": 8, "question": -6, "answer": -6, "text": -20}),
    _Sign(lambda one: not one.holds_turns(bool), {"conversation": -20}),
    _Sign(lambda one: one.holds_turns(lambda keys: keys & {"from", "value"} or are_spoken(keys)), {"exchange": 20.0}),
    _Sign(lambda one: one.share(_is_taken_out) > 0.5, {_OTHER: 20.0}),
    _Sign(lambda one: one.numbers and not one.few, {**_NO_TEXT, _OTHER: 4.0, "label": 0.5}),
    _Sign(lambda one: one.numbers and one.few, {**_NO_TEXT, "label": 1.0}),
    _Sign(lambda one: one.share(lambda cell: isinstance(cell, (dict, bytes))) > 0.5, {**_NO_TEXT, _OTHER: 4.0}),
    _Sign(lambda one: one.marks, {**_NO_TEXT, "label": 1.0, "mark": 2.0}),
    _Sign(lambda one: not one.marks, {"mark": -20.0}),
    _Sign(lambda one: one.few and not one.free, {"question": -6, "answer": -6, "text": -6, "label": 2.0}),
    _Sign(lambda one: not one.few, {"label": -4.0}),
    _Sign(lambda one: one.alike, {"label": -3.0}),  # nothing to tell apart, unless its name says that there is
    _Sign(
        lambda one: one.free and len(set(one.texts)) == 1 and len(one.cells) >= 10,
        {"system": 3.0, "question": -3.0, "answer": -3.0, "text": -3.0},
    ),
    _Sign(lambda one: one.prose, {_OTHER: -9.0}),
    _Sign(lambda one: one.free, {"question": 0.5, "answer": 0.5, "text": 0.5}),
    _Sign(lambda one: one.share(lambda cell: "?" in str(cell)[-3:]) > 0.3, {"question": 1.5}),
)
"""What contents say of a column, beside its name."""


class _Plan(NamedTuple):
    """A layout, and the parts that its roles are made of; the first ``needed`` must be found. ``most``: how sure it can
    be."""

    layout: Layout
    parts: dict[str, tuple[str, ...]]
    needed: int
    most: float = _SURE


_SYSTEM = {"system": ("system",)}
_TURNS = ("conversation", "exchange")
_TURN_ROLES = ("messages", "conversations", "prompt", "completion", "chosen", "rejected", "tools")
_PLANS = (
    _Plan(
        "preference", {"chosen": ("chosen",), "rejected": ("rejected",), "prompt": ("question", "text"), **_SYSTEM}, 2
    ),
    _Plan("kto", {"messages": _TURNS, "label": ("mark",), **_SYSTEM}, 2),
    _Plan("messages", {"messages": ("conversation",), **_SYSTEM}, 1),
    _Plan("sharegpt", {"conversations": ("exchange",), **_SYSTEM}, 1),
    _Plan("kto", {"prompt": ("question",), "completion": ("answer",), "label": ("mark",), **_SYSTEM}, 3),
    _Plan("alpaca", {"instruction": ("question",), "input": ("context", "text"), "output": ("answer",), **_SYSTEM}, 3),
    _Plan("prompt_completion", {"prompt": ("question",), "completion": ("answer",), **_SYSTEM}, 2),
    _Plan("prompt_completion", {"prompt": ("text", "question", "context"), "completion": ("answer",), **_SYSTEM}, 2),
    _Plan("classification", {"text": ("text", "question", "answer", "context"), "label": ("label",)}, 2),
    _Plan("text", {"text": ("text", "answer", "question")}, 1, _LEAST),
)
"""Of plans that are equally sure the first is proposed."""


def guess_roles(columns: Sequence[str], sample: Sequence[Record], choice: DataChoice, header: bool = True) -> RoleGuess:
    """What the columns of a file with these first rows are taken for; what was chosen is kept."""
    shown = flattened(columns, sample)
    values = [record.values for record in sample]
    samples = {column: _sample(values, column) for column in shown}
    try:
        known = recognise_layout(tuple(columns), values, choice, header)
        plain = [column for role, column in known.mapping.items() if role not in _TURN_ROLES]
        turns = any(turn_keys(cell_at(row, column)) for row in values[:1] for column in plain)
        if _usable(known, sample) and not turns:
            return RoleGuess(layout=known.layout, roles=known.mapping, samples=samples, recognised=True)
    except DataError:
        pass
    taken = {column for column in choice.columns.values() if column}
    profiles = [_profile(values, column) for column in shown if column not in taken][:_MOST_COLUMNS]
    found = _parts(profiles)
    for plan in sorted(_PLANS, key=lambda one: -_sureness(one, found)):
        best = {role: next((found[one][0] for one in parts if one in found), "") for role, parts in plan.parts.items()}
        roles = {role: column for role, column in best.items() if column} | choice.columns
        if (_sureness(plan, found) < _LEAST and not taken) or choice.layout not in ("auto", plan.layout):
            continue
        asked = choice.model_copy(update={"layout": plan.layout, "columns": roles})
        try:
            known = recognise_layout(tuple(columns), values, asked, header)
        except DataError:
            continue
        if _usable(known, sample):
            return RoleGuess(layout=plan.layout, roles=known.mapping, samples=samples)
    return RoleGuess(layout="", samples=samples)


def flattened(columns: Sequence[str], sample: Sequence[Record]) -> tuple[str, ...]:
    """The columns as a person is shown them: of one that holds objects each key is a column, ``data.question``."""
    shown: dict[str, None] = {}
    for column in columns:
        cells = [cell for record in sample if (cell := record.values.get(column)) is not None]
        keys = dict.fromkeys(str(key) for cell in cells if isinstance(cell, dict) for key in cell)
        plain = any("." in key for key in keys) or not 0 < len(keys) <= _MOST_KEYS or are_spoken(set(keys))
        if plain or not all(isinstance(cell, dict) for cell in cells) or not _PARTS_OF_ONE.isdisjoint(keys):
            shown[column] = None
        else:
            shown |= dict.fromkeys(f"{column}.{key}" for key in keys)
    return tuple(shown) if len(shown) <= _MOST_SHOWN else tuple(columns)


_PARTS_OF_ONE = frozenset({"role", "from", "type", "bytes", "array"})
"""Keys of an object that is one thing: a turn, a part of a content, a picture."""


def _sample(values: Sequence[dict[str, Any]], column: str) -> str:
    cells = (cell for row in values if (cell := cell_at(row, column)) not in (None, "", [], {}))
    first = _said(next(cells, ""))
    if isinstance(first, bytes):
        return kind_of(first)
    return one_line(str(first)[: 4 * _SAMPLE_CHARACTERS], _SAMPLE_CHARACTERS)


def _said(cell: Any) -> Any:
    """The words of a cell that is parts of a content; any other cell as it is."""
    with suppress(RowError):
        return parts_text(cell, "") if is_parts(cell) else cell
    return cell


def _profile(values: Sequence[dict[str, Any]], column: str) -> _Column:
    cells = (_said(cell_at(row, column)) for row in values)
    known = [cell for cell in cells if cell not in (None, "", [], {})]
    sizes = [len(cell) for cell in known if isinstance(cell, str)]
    cut = tuple(cell[:_CUT] if isinstance(cell, str) else cell for cell in known)
    return _Column(column, cut, fmean(sizes) if sizes else 0.0, tuple(turn_keys(cell) for cell in known[:_LOOKED_AT]))


def _usable(known: Recognised, sample: Sequence[Record]) -> bool:
    """Whether any of the first rows can be used so."""
    for record in sample[:_LOOKED_AT]:
        with suppress(RowError):
            to_example(known, record)
            return True
    return False


def _parts(columns: Sequence[_Column]) -> dict[str, tuple[str, float]]:
    """Part to column, and its points: the column with most of them; a column has one part."""
    longest = max((one.mean for one in columns if one.free), default=0.0)
    points: list[tuple[float, int, str, str]] = []
    for place, column in enumerate(columns):
        scored = _scores(column)
        if column.free and column.mean == longest:
            for part in ("answer", "text"):
                scored[part] = scored.get(part, 0.0) + 1.0
        if max(scored, key=lambda part: scored[part], default=_OTHER) != _OTHER:
            points += [(-score, place, part, column.name) for part, score in scored.items() if score > 0]
    found: dict[str, tuple[str, float]] = {}
    used: set[str] = set()
    for score, _, part, column_name in sorted(points):
        if part not in found and part != _OTHER and column_name not in used:
            found[part] = column_name, -score
            used.add(column_name)
    for one, other in (("chosen", "rejected"), ("rejected", "chosen")):
        if one in found and other not in found and "answer" in found:
            found[other] = found.pop("answer")  # beside a preferred answer another one is the worse of a pair
    return found


def _scores(column: _Column) -> dict[str, float]:
    """Points of a column for each part that anything speaks for or against."""
    scored: dict[str, float] = {}
    words = [word.lower() for word in _PARTING.split(column.name) if word]
    for given in (_POINTS.get(word, {}) for word in dict.fromkeys([*words, "".join(words)])):
        for part, points in given.items():
            scored[part] = scored.get(part, 0.0) + points
    for sign in _SIGNS:
        if sign.shows(column):
            for part, points in sign.points.items():
                scored[part] = scored.get(part, 0.0) + points
    return scored


def _sureness(plan: _Plan, found: dict[str, tuple[str, float]]) -> float:
    """Points of the least sure part that the plan needs, 0 where one is not found."""
    needed = list(plan.parts.values())[: plan.needed]
    return min(plan.most, *(next((found[part][1] for part in parts if part in found), 0.0) for parts in needed))


def _is_number(cell: Any) -> bool:
    return isinstance(cell, (int, float)) or (isinstance(cell, str) and number_of(cell) is not None)
