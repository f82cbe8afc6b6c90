"""The wording of findings, the limits of what a Finding lists, and the findings that only list rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from core.contract.data import Finding, Fix

_GROUPS_SHOWN = 100
_MEMBERS_SHOWN = 50
Level = Literal["fault", "warning", "note"]


def finding(
    code: str,
    level: Level,
    text: str,
    rows: Sequence[int],
    groups: Iterable[Sequence[int]] = (),
    fix: tuple[Fix, str] = ("", ""),
) -> Finding:
    """The finding, with its ``rows`` and the first of its ``groups``; ``fix``: a safe one, and its button's words."""
    return Finding(
        code=code,
        level=level,
        count=len(rows),
        text=text,
        rows=tuple(rows),
        groups=tuple(tuple(group[:_MEMBERS_SHOWN]) for group in islice(groups, _GROUPS_SHOWN)),
        fix=fix[0],
        fix_text=fix[1],
    )


def how_many(count: int, one: str, many: str = "") -> str:
    """``1 row``, ``1,200 rows``; ``1 row is``, ``1,200 rows are``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def share(part: float, whole: float) -> str:
    """``4%``, ``0.3%``, ``less than 0.1%``."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.1:
        return "less than 0.1%"
    return f"{percent:.1f}%" if percent < 3 else f"{percent:.0f}%"


def is_often(rows: Sequence[int], whole: int) -> bool:
    """Whether more than a hundredth of all rows, and more than three, have it."""
    return len(rows) > max(3, whole // 100)


@dataclass(frozen=True)
class RowList:
    """A finding that lists rows: its level where they are many and where they are few, and its text behind their number
    (the beginning for one row and for several, and the rest)."""

    often: Level
    seldom: Level
    one: str
    many: str
    text: str
    fix: Fix = ""
    fix_text: str = ""

    def finding(self, code: str, rows: list[int], whole: int) -> Finding | None:
        """The finding, where there are such rows among the ``whole``."""
        level = self.often if is_often(rows, whole) else self.seldom
        text = f"{how_many(len(rows), self.one, self.many)} {self.text}"
        fix = (self.fix, self.fix_text.format(how_many(len(rows), "row")))
        return finding(code, level, text, rows, fix=fix) if rows else None


LISTS = {
    "empty_answers": RowList(
        "fault", "warning", "row has", "rows have",
        "an answer that is empty or only stands for one (null, NaN): the model learns to answer nothing.",
        "drop_rows", "Leave out {}",
    ),
    "equal_pairs": RowList(
        "warning", "warning", "pair has", "pairs have",
        "the same text as better and as worse answer: there is nothing to prefer, and learning from pairs leaves them "
        "out.",
        "drop_rows", "Leave out {}",
    ),
    "late_system": RowList(
        "warning", "warning", "row has", "rows have",
        "a system prompt in the midst of the conversation, or two: many chat templates refuse that or leave it out.",
    ),
    "chat_marks": RowList(
        "fault", "warning", "row holds", "rows hold",
        "another model's chat marks in the text itself (such as <|im_end|>, [INST] or ### Response:): a turn then ends "
        "where none should, or the model writes them.",
    ),
    "stock_phrases": RowList(
        "warning", "note", "answer speaks", "answers speak",
        'as a chat service does ("As an AI language model"): the model learns to refuse and to excuse itself in these '
        "words.",
    ),
    "non_printing": RowList(
        "warning", "note", "row holds", "rows hold",
        "characters that nobody sees (control characters, zero-width spaces, byte order marks): the model learns to "
        "write them, and a search for a word misses it.",
        "clean_text", "Take unseen characters out of {}",
    ),
    "lost_letters": RowList(
        "warning", "note", "row holds", "rows hold",
        "letters that were damaged on their way (\ufffd, \u00e2\u20ac\u2122, a formula without its \\): the model "
        "learns to write them. Save the source as UTF-8.",
    ),
}  # fmt: skip
