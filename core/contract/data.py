"""Examples, what is known of a data file and what the data doctor found, as processes hand them on."""

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from core.contract.config import Layout
from core.contract.methods import BAD, EQUAL, METHODS, Method, RowKind
from core.contract.tasks import Outputs

PROBLEMS_SHOWN = 200
Fix = Literal["", "drop_rows", "keep_first", "clean_text", "one_spelling"]
"""What can be done safely: leave the rows out, keep the first of each group, clean their texts, or write a label in one
way; "" for nothing."""


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
    mark: bool | None = None
    """Whether the last answer is marked good or bad; None where the layout has no marks."""
    equal: bool = False
    """Whether chosen and rejected are the same answer: no preference then."""
    messages: tuple[Message, ...] = ()
    text: str = ""
    chosen: str = ""
    rejected: str = ""
    tools: str = ""
    """The functions that may be called, as a JSON list; empty where the row brings none."""
    margin: float | None = None
    """By how much chosen is better than rejected, where a column says it."""
    label: str = ""
    """What stands in the column of labels or marks, as written, without blanks around it."""
    labels: tuple[str, ...] = ()
    """Where ``label`` is no mark: the labels in it, one or more, none of an empty list."""
    second: str = ""
    """The second text of a pair of sentences; the question in ``messages`` ends with it."""

    @property
    def kind(self) -> RowKind | None:
        """What keeps some methods from learning from it; None where all can."""
        return BAD if self.mark is False else EQUAL if self.equal else None

    @property
    def texts(self) -> tuple[str, ...]:
        """What a label is of: a text, or the two of a pair of sentences; empty where the row has no label."""
        if not self.label or self.mark is not None:
            return ()
        asked = self.messages[-2].content
        return (asked.removesuffix(f"\n\n{self.second}"), self.second) if self.second else (asked,)

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


class Aside(_Fact):
    """Rows that only some methods learn from: how many, and the first of them with the reason."""

    rows: int
    problems: tuple[RowProblem, ...]


class Marks(_Fact):
    """Answers marked good and bad: rows of each as the column writes them, such as ``{"👍": 210}``."""

    good: dict[str, int] = {}
    bad: dict[str, int] = {}

    @property
    def rows(self) -> tuple[int, int]:
        """Rows marked good, and rows marked bad."""
        return sum(self.good.values()), sum(self.bad.values())


LabelKind = Literal["one label", "several labels", "number"]


class Labels(_Fact):
    """The labels of a whole column."""

    kind: LabelKind
    counts: dict[str, int]
    """Rows of each label, the most frequent first, at most 1,000 of them; none of numbers with fractions."""
    distinct: int
    """How many different ones there are."""


class DataReport(_Fact):
    """What is known of a file that was read. ``rows`` counts all rows, ``usable`` those that can be trained on under a
    method (``under``)."""

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
    """The first ``PROBLEMS_SHOWN``; ``rows - usable`` is their true number."""
    skipped: tuple[SkippedRows, ...] = ()
    """All rows that are left out, counted by reason, the most frequent first."""
    unread: tuple[str, ...] = ()
    """Columns that play no role in this layout."""
    complete: bool = True
    """False where only the beginning of a large file was read; the counts are of that beginning then."""
    asides: dict[RowKind, Aside] = {}
    """Rows that were read and that only some methods learn from."""
    left_out: tuple[RowKind, ...] = ()
    """Those of them that are no part of ``usable`` here."""
    marks: Marks | None = None
    labels: Labels | None = None

    def under(self, method: Method | None = None) -> "DataReport":
        """The report for a method (None: the one that suits the rows): what it cannot learn from is left out."""
        cannot = METHODS[method or self.method].leaves_out
        left_out = tuple(kind for kind in self.asides if kind in cannot)
        if left_out == self.left_out:
            return self
        usable = self.usable + sum(self.asides[kind].rows for kind in self.left_out)
        problems = [problem for problem in self.problems if problem.code not in self.asides]
        skipped = [rows for rows in self.skipped if rows.code not in self.asides]
        for kind in left_out:
            aside, first = self.asides[kind], self.asides[kind].problems[0]
            usable -= aside.rows
            problems += aside.problems
            skipped.append(SkippedRows(code=kind, rows=aside.rows, first_row=first.row, text=first.text))
        changed = {
            "left_out": left_out,
            "usable": usable,
            "problems": tuple(sorted(problems, key=lambda problem: problem.row)[:PROBLEMS_SHOWN]),
            "skipped": tuple(sorted(skipped, key=lambda rows: -rows.rows)),
        }
        return self.model_copy(update=changed)


class Span(_Fact):
    """A run of neighbouring tokens of one kind, as text. ``cut`` lies beyond the length limit; ``avoided`` is a
    rejected answer or one that is marked bad, which is made less likely."""

    text: str
    kind: Literal["read", "trained", "avoided", "special", "cut"]
    tokens: int
    differs: bool = False
    """Whether these words of a pair's answer are not in the other answer."""


class PreviewRow(_Fact):
    """A row as the model will see it. A preference row is shown twice, ``side`` says which."""

    row: int
    side: Literal["", "chosen", "rejected"] = ""
    mark: bool | None = None
    labels: tuple[str, ...] = ()
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
    labels: int = 0
    """How many scores a model of these rows gives; 0 where it gives none."""
    split_groups: tuple[tuple[int, ...], ...] | None = Field(default=None, repr=False)
    """Groups of places in ``lengths`` that stay on one side of the split; None where they are not computed yet."""

    def __hash__(self) -> int:
        """Without the rows: an edit in New run asks for it dozens of times."""
        return hash((self.rows, self.max_length, self.longest, self.mean, self.labels))

    def giving(self, outputs: Outputs | None) -> "DataFacts":
        """The facts of these rows where a model of them gives such scores."""
        return self.model_copy(update={"labels": len(outputs.names)}) if outputs else self


class Finding(_Fact):
    """One kind of flaw, with the rows that have it.

    ``count`` is the true number of rows; ``rows`` the first 500 of them, as numbered in the file, and ``kept`` the file
    with all where they are more. ``groups`` joins rows that belong together (duplicates, leaks), the first 100 groups.
    """

    code: Literal[
        "exact_duplicates", "near_duplicates", "conflicting_answers", "empty_answers", "short_answers", "long_rows",
        "answer_cut", "system_prompts", "late_system", "chat_marks", "stock_phrases", "markup", "leakage",
        "non_printing", "lost_letters", "languages", "equal_pairs", "swapped_pairs", "one_sided_marks",
        "label_spellings", "rare_labels",
    ]  # fmt: skip
    level: Literal["fault", "warning", "note"]
    count: int
    text: str
    """One sentence: what, how many, why it matters."""
    rows: tuple[int, ...] = ()
    kept: str = ""
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
