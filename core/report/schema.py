"""All that a report says: ``report.json`` in a run's folder, versioned; a page or a program needs nothing else.

::

    Report ─┬─ parts        what was measured, and how much of it fitted into the time
            ├─ held_out     losses before and after, by source, language, length and label
            ├─ answers      answers of base and finetuned model to held-out prompts, and what checks say of them
            ├─ forgetting   how far the model moved on general texts
            ├─ moved        the update of each layer's projections
            ├─ memorising   trained rows beside held-out ones, and answers copied from trained rows
            └─ advice       at most three sentences, with reasons

"Before" is the base model, "after" the checkpoint that is used. Losses are means in nats a token unless ``unit`` says
otherwise; their ``exp`` is the perplexity. A figure that was not measured is None, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from core.contract.tasks import Problem
from core.machine.disk import read_model
from core.report.choices import Check

VERSION = 1
MOST_BYTES = 16 << 20
"""A report that is larger is not read."""
GOOD, BAD = "good answers", "bad answers"
"""Names of the groups of rows whose answers are marked."""
PartName = Literal["moved", "held_out", "answers", "forgetting", "memorising"]
GroupKind = Literal["source", "language", "length", "label", "kind"]
Change = Literal["better", "worse", "same"]
Why = Literal["", "budget", "stopped", "none", "task", "memory", "failed"]
"""Why a part is not whole: no time was left, somebody stopped it, nothing is there to be measured, it has no meaning
for what this model gives, memory ran out, or a fault."""
Seconds = Annotated[float, Field(allow_inf_nan=False)]


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Figure(_Said):
    """A mean or a share over ``of`` rows or texts, with its 95% interval where there are enough of them."""

    value: float
    low: float | None = None
    high: float | None = None
    of: int = 0

    @property
    def exp(self) -> Figure:
        """Of a loss in nats a token the perplexity, with its interval."""

        def up(value: float | None) -> float | None:
            return None if value is None else math.exp(min(value, 700.0))

        return Figure(value=up(self.value) or 0.0, low=up(self.low), high=up(self.high), of=self.of)


class Part(_Said):
    """How much of one part fitted: ``done`` of ``total``, both of ``unit`` (rows, prompts, texts, matrices)."""

    name: PartName
    done: int = 0
    total: int = 0
    unit: str = ""
    seconds: Seconds = 0.0
    why: Why = ""
    text: str = ""
    """The reason in a sentence, where there is more to say than ``why``."""

    @property
    def whole(self) -> bool:
        """Whether all of it was measured."""
        return not self.why


# ── held-out rows ────────────────────────────────────────────────────────────────────────────────────────────────────


class Group(_Said):
    """Held-out rows (or general texts) that share something: ``name`` is the source's, a language ("German"), a range
    of tokens such as "65–256", or a label."""

    by: GroupKind
    name: str
    rows: int
    tokens: int = 0
    before: Figure | None = None
    after: Figure
    difference: Figure | None = None
    """After less before, of the same rows: its interval is narrower than those of the two."""
    change: Change = "same"
    """What the interval of the difference says: "same" where 0 is in it."""


class RowLoss(_Said):
    """One row, by its number in the data file; ``text`` is its beginning."""

    row: int
    tokens: int
    before: float | None = None
    after: float
    text: str = ""


class HeldOut(_Said):
    """Losses of held-out rows. Of pairs they are those of the chosen answers, and ``accuracy_…`` is the share of pairs
    whose chosen answer is the likelier one a token; of labels the share of rows with the right ones. A head of scores
    is drawn anew, so that there is nothing before."""

    unit: Literal["nats a token", "nats a row", "squared error"]
    rows: int
    tokens: int
    before: Figure | None = None
    after: Figure
    difference: Figure | None = None
    change: Change = "same"
    accuracy_before: Figure | None = None
    accuracy_after: Figure | None = None
    groups: tuple[Group, ...] = ()
    """By each property that tells rows apart, the largest group first; every row is in one group of each."""
    worse: tuple[RowLoss, ...] = ()
    """Rows whose loss rose, the most first."""
    hardest: tuple[RowLoss, ...] = ()
    """Rows with the highest loss after."""
    formula: str = ""
    """How the intervals were computed."""

    @property
    def has_perplexity(self) -> bool:
        """Whether ``exp`` of its losses is a perplexity."""
        return self.unit == "nats a token"


# ── answers and checks ───────────────────────────────────────────────────────────────────────────────────────────────


class Verdict(_Said):
    """What one check says of one row's answers; None where it says nothing (no answer, or no number in the reference),
    with the reason."""

    check: str
    before: bool | None = None
    after: bool | None = None
    why: str = ""
    """What was expected and found, where the finetuned answer fails."""


class Answers(_Said):
    """One held-out prompt. Of a head of scores ``after`` is the label, labels or number that it gives."""

    row: int
    prompt: str
    reference: str = ""
    before: str | None = None
    after: str
    cut_before: bool = False
    """Whether the answer reached the most tokens that were allowed."""
    cut_after: bool = False
    scores: str = ""
    """Of a head of scores all of them in a line."""
    verdicts: tuple[Verdict, ...] = ()


class Tally(_Said):
    """One check over all prompts: how many answers pass, with exact (Clopper-Pearson) intervals of the shares."""

    check: Check
    of: int = 0
    """Rows of which it says something."""
    passed_before: int | None = None
    passed_after: int = 0
    before: Figure | None = None
    after: Figure | None = None
    failing: tuple[int, ...] = ()
    """Rows whose finetuned answer fails."""
    fault: str = ""
    """Why the check could not be used."""


class AnswersPart(_Said):
    """Answers to held-out prompts, greedy, of at most ``most_tokens`` tokens."""

    rows: tuple[Answers, ...] = ()
    tallies: tuple[Tally, ...] = ()
    most_tokens: int = 0


# ── forgetting ───────────────────────────────────────────────────────────────────────────────────────────────────────


class TextLoss(_Said):
    """One text; ``kl`` is the mean over its tokens."""

    text: str
    kind: str = ""
    tokens: int = 0
    before: float = 0.0
    after: float = 0.0
    kl: float = 0.0


class Forgetting(_Said):
    """A general set. ``kl``: the mean of KL(base ‖ finetuned) over its tokens, in nats; losses over all its tokens."""

    name: str
    """"general" for the set that comes with the project, else the file's name."""
    texts: int
    tokens: int
    kl: Figure
    before: Figure
    after: Figure
    difference: Figure
    change: Change = "same"
    groups: tuple[Group, ...] = ()
    """By the kind of text."""
    worst: tuple[TextLoss, ...] = ()
    """Texts with the largest divergence."""


# ── what moved ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Matrix(_Said):
    """The update ΔW of one matrix."""

    module: str
    """Its full name in the model."""
    layer: int | None = None
    """None for embedding and head."""
    projection: str
    """The last part of its name, such as "q_proj"."""
    norm: float
    """‖ΔW‖, Frobenius."""
    relative: float | None = None
    """‖ΔW‖ over ‖W‖ of the base; None where that was not read."""
    rank: int
    """The most that it can have: r of LoRA, the smaller side of a matrix."""
    effective_rank: float
    """exp of the entropy of σ²/Σσ² (Roy and Vetterli 2007): 1 where one direction holds all, ``rank`` where all hold
    alike; 0 of a matrix that did not move. Of a trained matrix of which only the largest σ are known the rest counts as
    spread evenly."""
    directions: int | None = None
    """The fewest singular values that hold nine tenths of ‖ΔW‖²; None where those in ``singular`` hold less."""
    singular: tuple[float, ...] = ()
    """The largest singular values, at most 32, descending."""


class Moved(_Said):
    """What changed in the weights. ``scaling`` is in the norms; DoRA's magnitudes are not."""

    norm: float
    """Of the whole update: the root of the sum of all ‖ΔW‖²."""
    relative: float | None = None
    matrices: tuple[Matrix, ...] = ()
    others: int = 0
    """Trained tensors that are none of these: norms, biases, DoRA's magnitudes, a head of scores."""
    told: tuple[str, ...] = ()
    """In sentences: nothing moved, or nearly all of it in one layer or one kind of projection."""

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that have an update, ascending."""
        return tuple(sorted({one.layer for one in self.matrices if one.layer is not None}))

    @property
    def projections(self) -> tuple[str, ...]:
        """The kinds of projections, in the order of the model."""
        return tuple(dict.fromkeys(one.projection for one in self.matrices))


# ── memorising ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Copied(_Said):
    """The longest run of tokens of an answer that stands word for word in an answer of the training rows."""

    row: int
    """The held-out row that was asked."""
    from_row: int
    """A training row in which it stands."""
    tokens: int
    answer_tokens: int
    before: int | None = None
    """The longest such run in the base's answer to the same prompt."""
    text: str = ""


class Recited(_Said):
    """A training row's own prompt, answered: how many tokens from the beginning are that row's answer."""

    row: int
    tokens: int
    answer_tokens: int
    before: int | None = None
    text: str = ""


class Memorising(_Said):
    """Loss of training rows drawn at random beside that of held-out rows, both after training; copies."""

    trained: Figure | None = None
    trained_before: Figure | None = None
    held_out: Figure | None = None
    gap: Figure | None = None
    """Held-out less trained loss, with its interval (two independent samples)."""
    copied: tuple[Copied, ...] = ()
    """The longest first."""
    recited: tuple[Recited, ...] = ()
    """The longest first."""


class Advice(_Said):
    """One sentence of what to do next, and why. ``key`` names the rule that gave it."""

    key: str
    text: str
    reason: str


class Report(_Said):
    """The report on one run."""

    version: int = VERSION
    run_id: str
    title: str = ""
    """The run's name, else its id's words."""
    model: str = ""
    method: str = "sft"
    learns: str = "adapter"
    problem: Problem | None = None
    """What scores are, where the model gives scores."""
    checkpoint: str = ""
    step: int = 0
    data: str = ""
    """The data file's name."""
    resume_from: str = ""
    """The run that it went on from, whose adapter the finetuned side holds too: "before" is the base without it."""
    held_out_sha256: str = ""
    """Of the held-out rows' tokens: reports with the same one can be compared row by row."""
    device: str = ""
    trained_on: tuple[str, ...] = ()
    """The cards of a run on several, as people call them."""
    made_at: Seconds = 0.0
    """Seconds since the epoch."""
    run_seconds: Seconds = 0.0
    budget_seconds: Seconds = 0.0
    budget_text: str = ""
    """Where the budget comes from, in a sentence."""
    seconds: Seconds = 0.0
    """Spent, of all attempts together."""
    parts: tuple[Part, ...] = ()
    held_out: HeldOut | None = None
    answers: AnswersPart | None = None
    forgetting: tuple[Forgetting, ...] = ()
    moved: Moved | None = None
    memorising: Memorising | None = None
    advice: Annotated[tuple[Advice, ...], Field(max_length=3)] = ()

    @model_validator(mode="after")
    def _of_this_version(self) -> Report:
        if self.version > VERSION:
            raise ValueError(f"a report of version {self.version} is newer than this program")
        return self

    @property
    def whole(self) -> bool:
        """Whether every part was measured whole."""
        return bool(self.parts) and all(part.whole for part in self.parts)

    def part(self, name: PartName) -> Part | None:
        """How much of this part fitted; None where it has not begun."""
        return next((part for part in self.parts if part.name == name), None)


def rankable(reports: Sequence[Report]) -> bool:
    """Whether the losses of these can be ranked: all were measured on the same held-out tokens. A report that had less
    time than another measured some of the rows only."""
    draws = {report.held_out_sha256 for report in reports}
    measured = {(one.unit, one.rows, one.tokens) for report in reports if (one := report.held_out)}
    return len(draws) == 1 and "" not in draws and len(measured) <= 1


def read_report(path: Path) -> Report | None:
    """The report in this file; None where there is none that this version can read."""
    return read_model(path, MOST_BYTES, Report)
