"""What the data doctor found, as it crosses from the reader's child to the window."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Fix = Literal["", "drop_rows", "keep_first", "clean_text"]
"""What can be done safely: leave the rows out, keep the first of each group, or clean their texts; "" for nothing."""


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Finding(_Fact):
    """One kind of thing that was found, with the rows it was found in.

    ``count`` is the true number of rows; ``rows`` the first 500 of them, as numbered in the file. ``groups`` joins rows
    that belong together (duplicates, leaks), the first 100 groups.
    """

    code: Literal[
        "exact_duplicates", "near_duplicates", "conflicting_answers", "empty_answers", "short_answers", "long_rows",
        "answer_cut", "system_prompts", "late_system", "chat_marks", "stock_phrases", "markup", "leakage",
        "non_printing", "lost_letters", "languages",
    ]  # fmt: skip
    level: Literal["fault", "warning", "note"]
    count: int
    text: str
    """One sentence for people: what, how many, why it matters."""
    rows: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    fix: Fix = ""
    fix_text: str = ""
    """The fix in words, as on its button: "Leave out 12 repeated rows"."""


class Checkup(_Fact):
    """The whole examination. ``languages`` maps a language's English name to its share of the rows."""

    rows: int
    findings: tuple[Finding, ...]
    languages: dict[str, float] = {}
    seconds: float = 0.0
