"""Examples, what is known of a data file and what the data doctor found, as processes hand them on."""

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from core.contract.config import Layout
from core.contract.methods import Method

Fix = Literal["", "drop_rows", "keep_first", "clean_text"]
"""What can be done safely: leave the rows out, keep the first of each group, or clean their texts; "" for nothing."""


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Message(_Fact):
    """One turn of a conversation; every layout is read into these."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: str = ""
    """What an assistant turn calls, as a JSON list of ``{"name", "arguments"}``; empty for plain turns."""
    reasoning: str = ""
    """What an assistant turn thinks before it answers."""
    trained: bool = True
    """False for an answer that is read and not learned (OpenAI's ``weight: 0``)."""


class Example(_Fact):
    """One row, read: a conversation, a preference (two endings of one conversation), or raw text.

    Exactly one of ``messages`` and ``text`` is set. For a preference ``messages`` is the prompt, ``chosen`` and
    ``rejected`` are the two answers.
    """

    row: int
    """Number of the row in its file, from 1, as a person counts."""
    messages: tuple[Message, ...] = ()
    text: str = ""
    chosen: str = ""
    rejected: str = ""
    tools: str = ""
    """The functions that may be called, as a JSON list; empty where the row brings none."""

    @property
    def characters(self) -> int:
        """Of all its texts together."""
        turns = sum(len(turn.content) + len(turn.tool_calls) + len(turn.reasoning) for turn in self.messages)
        return turns + len(self.text) + len(self.chosen) + len(self.rejected) + len(self.tools)


class RowProblem(_Fact):
    """A row that cannot be used, and the reason."""

    row: int
    code: str
    text: str
    raw: str = ""
    """The beginning of what stands in the file, of the first rows of a report."""


class SkippedRows(_Fact):
    """Rows of a file that are left out for one reason; ``text`` says it of the first of them."""

    code: str
    rows: int
    first_row: int
    text: str


class DataReport(_Fact):
    """What is known of a file that was read. ``rows`` counts all rows, ``usable`` those that can be trained on."""

    path: str
    sha256: str
    bytes: int
    rows: int
    usable: int
    layout: Layout
    reason: str
    """Why this layout: "columns instruction, input and output are Alpaca's"."""
    columns: tuple[str, ...]
    mapping: dict[str, str]
    """Roles to columns, as used."""
    roles: tuple[str, ...]
    """The roles this layout knows, for the mapping form."""
    method: Method
    problems: tuple[RowProblem, ...] = ()
    """The first 200; ``rows - usable`` is their true number."""
    skipped: tuple[SkippedRows, ...] = ()
    """All rows that are left out, counted by reason, the most frequent first."""
    unread: tuple[str, ...] = ()
    """Columns that play no role in this layout."""
    complete: bool = True
    """False where only the beginning of a large file was read; the counts are of that beginning then."""


class Span(_Fact):
    """A run of neighbouring tokens of one kind, as text. ``cut`` lies beyond the length limit; ``avoided`` is a
    rejected answer, which is made less likely."""

    text: str
    kind: Literal["read", "trained", "avoided", "special", "cut"]
    tokens: int


class PreviewRow(_Fact):
    """A row as the model will see it. A preference row is shown twice, ``side`` says which."""

    row: int
    side: Literal["", "chosen", "rejected"] = ""
    spans: tuple[Span, ...]
    tokens: int
    trained_tokens: int
    """Those that the loss counts: of a rejected answer they are avoided, elsewhere learned."""
    cut_tokens: int = 0


class Preview(_Fact):
    """A page of rows under a template. ``total`` counts the usable rows that match."""

    rows: tuple[PreviewRow, ...]
    total: int
    template: str
    """"the model's own", "ChatML" or "none"."""
    notes: tuple[str, ...] = ()


class DataFacts(_Fact):
    """Lengths of all usable rows under a tokenizer and template, for estimate, plan and histogram.

    ``lengths`` are uncut token counts, one a row (the longer of the two for a preference); ``trained`` the trained
    tokens of each row within ``max_length``.
    """

    rows: int
    lengths: tuple[int, ...] = Field(repr=False)
    trained: tuple[int, ...] = Field(repr=False)
    max_length: int
    longest: int
    mean: float
    sampled: bool = False
    """True where lengths come from a sample of the rows (then ``rows`` is still the whole count)."""
    refused: int = 0
    """Rows that the template refuses, of those looked at; they are no part of the lengths."""
    why: str = ""
    """The first of these, and why."""
    others: tuple[int, ...] = Field(default=(), repr=False)
    """Of preferences the shorter one's length, a row: both are computed. Empty: as long as the longer, or no pairs."""
    split_groups: tuple[tuple[int, ...], ...] | None = Field(default=None, repr=False)
    """Groups of places in ``lengths`` that stay on one side of the split; None where they are not computed yet."""


class Finding(_Fact):
    """One kind of flaw, with the rows that have it.

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
    """One sentence: what, how many, why it matters."""
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


@dataclass(frozen=True)
class TokenRow:
    """A row as token ids. ``labels`` are ids where trained and -100 elsewhere, unshifted, same length."""

    row: int
    input_ids: tuple[int, ...]
    labels: tuple[int, ...]

    @property
    def trained_tokens(self) -> int:
        """Targets after the shift: the first token of a row is never one."""
        targets = self.labels[1:]
        return len(targets) - targets.count(-100)
