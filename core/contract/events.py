"""What happens in a run, a line each in ``events.jsonl``.

Every event has a ``kind``, the time, the attempt (how often a worker was started for this job) and a step. Unknown
kinds and fields are skipped on reading, so that an old window reads a new run.
"""

import json
from math import isfinite
from typing import Annotated, Any, Literal, Self, Union

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from core.contract.errors import Fault
from core.contract.estimate import LearnedRun
from core.contract.tasks import Problem

StageName = Literal[
    "preparing",
    "downloading",
    "loading",
    "first_step",
    "training",
    "evaluating",
    "saving",
    "merging",
    "verifying",
    "measuring",
    "waiting",
]


MOST_CONFUSED = 40
"""Labels of a confusion matrix that is written."""
MOST_CARDS = 64
"""Of one run, on one machine."""
_MOST_COUNT = 1 << 53
_Bytes = Annotated[int, Field(ge=0, le=_MOST_COUNT)]


class Event(BaseModel):
    """The fields that all events share. ``at`` is seconds since the epoch."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    kind: str
    at: float = 0.0
    attempt: int = 0
    step: int = 0


class Queued(Event):
    """The job waits; ``reason``: for what ("run NAME holds the card")."""

    kind: Literal["queued"] = "queued"
    reason: str = ""


class Starting(Event):
    """A supervisor starts a worker: the attempt counts up from 1, ``resumed_step`` is its checkpoint (0: none)."""

    kind: Literal["starting"] = "starting"
    resumed_step: int = 0


class Hello(Event):
    """The worker's first word: its process and where it computes; ``cards`` names the cards of a run on several, in the
    order of ``Step.cards``."""

    kind: Literal["hello"] = "hello"
    pid: int = 0
    device: str = "cpu"
    device_name: str = ""
    cards: tuple[str, ...] = Field((), max_length=MOST_CARDS)
    versions: dict[str, str] = Field(default_factory=dict)


class Stage(Event):
    """What is going on, with progress (``total`` 0: unknown); ``unit`` is bytes, rows, layers or steps.

    "waiting" is for something outside the worker (disk space, the network), which ``text`` names.
    """

    kind: Literal["stage"] = "stage"
    stage: StageName = "preparing"
    text: str = ""
    done: float = 0.0
    total: float = 0.0
    unit: str = ""


class Plan(Event):
    """What will be done, as lines for people, and the counts that the window needs."""

    kind: Literal["plan"] = "plan"
    lines: tuple[str, ...] = ()
    total_steps: int = 0
    train_rows: int = 0
    eval_rows: int = 0
    train_tokens: int = 0
    trained_tokens: int = 0
    trainable_parameters: int = 0
    dtype: str = ""
    attention: str = ""
    fast: bool = False
    tokens_per_pass: int = 0
    estimated_bytes: int = 0
    predicted: LearnedRun | None = None
    """What was predicted, for comparison with what the run takes."""
    labels: tuple[str, ...] = ()
    """Names of the scores, where the model gives scores."""
    problem: Problem | None = None
    """What the scores are."""


class CardStep(BaseModel):
    """What one of several cards did in a step; unknown is None, as in ``Step``, whose names these are."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
    memory_bytes: _Bytes | None = None
    reserved_bytes: _Bytes | None = None
    card_used_bytes: _Bytes | None = None
    gpu_load: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None


class Step(Event):
    """One optimiser step. Unknown readings are None, never 0; so is what the run's method does not measure."""

    kind: Literal["step"] = "step"
    epoch: float = 0.0
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    tokens: int = 0
    seconds: float = 0.0
    tokens_per_second: float | None = None
    memory_bytes: int | None = None
    """Peak of this process on the card so far; on the CPU its resident size."""
    reserved_bytes: int | None = None
    """Peak that torch's allocator held on the card, gaps included; None on the CPU."""
    card_used_bytes: int | None = None
    gpu_load: float | None = None
    """0 to 1."""
    power_watts: float | None = None
    """What the card draws."""
    temperature_celsius: float | None = None
    margin: float | None = None
    """Of pairs: reward of the chosen answer less that of the rejected one, the mean; in nats, times beta."""
    accuracy: float | None = None
    """Of pairs: the share whose chosen answer has the higher reward, 0 to 1; of labels: the share of rows whose label
    has the highest score, or all of whose labels are right."""
    mean_error: float | None = None
    """Of numbers: the mean distance from the right ones."""
    chosen_reward: float | None = None
    """Mean reward of chosen or good answers: beta times their log-probability, less the reference's if there is one."""
    rejected_reward: float | None = None
    """The same of rejected or bad ones."""
    kl: float | None = None
    """Of marked answers: how far the model has moved from the reference, in nats, as the batch estimates it."""
    cards: tuple[CardStep, ...] = Field((), max_length=MOST_CARDS)
    """Each card's, where several train together, rank 0's first; tokens above are of all, the rest is of that one."""


class Evaluation(Event):
    """Mean held-out loss over trained tokens; ``step`` 0 is the base model before training. Also the method's other
    measures, as in ``Step``."""

    kind: Literal["evaluation"] = "evaluation"
    loss: float | None = None
    rows: int = 0
    tokens: int = 0
    seconds: float = 0.0
    margin: float | None = None
    accuracy: float | None = None
    mean_error: float | None = None
    chosen_reward: float | None = None
    rejected_reward: float | None = None
    kl: float | None = None
    best_by: str = ""
    """Which of these the best checkpoint is found by; "" the loss."""
    macro_f1: float | None = None
    """Of labels: the mean of each label's F1, over those that some held-out row has or was given."""
    confusion: tuple[tuple[int, ...], ...] = ()
    """Of one label a row: how many rows with label i (line) were given label j (column), as ``Plan.labels`` orders
    them; empty where there are more than ``MOST_CONFUSED`` labels."""


class Checkpoint(Event):
    """A checkpoint is written and verified under ``checkpoints/NAME``."""

    kind: Literal["checkpoint"] = "checkpoint"
    name: str = ""
    bytes: int = 0
    best: bool = False
    eval_loss: float | None = None


class Correction(Event):
    """A later change of the effective config: dotted key, old and new value, and why."""

    kind: Literal["correction"] = "correction"
    key: str = ""
    old: str = ""
    new: str = ""
    reason: str = ""


class Acknowledged(Event):
    """A command was read; it is never obeyed twice."""

    kind: Literal["acknowledged"] = "acknowledged"
    command_id: str = ""
    command: str = ""


class Paused(Event):
    """Training is paused after a checkpoint at ``step``; the card is free."""

    kind: Literal["paused"] = "paused"


class Resumed(Event):
    """The job is in the queue again. ``anyway``: though data or library versions differ."""

    kind: Literal["resumed"] = "resumed"
    anyway: bool = False


class Sample(Event):
    """An answer asked for during the run; ``side`` is base or tuned. ``done`` closes the answer."""

    kind: Literal["sample"] = "sample"
    command_id: str = ""
    side: Literal["base", "tuned"] = "tuned"
    prompt: str = ""
    text: str = ""
    right: str = ""
    """The row's own answer, where the question is a held-out row's."""
    seconds: float = 0.0
    done: bool = True


class Note(Event):
    """For a person to know: a fallback taken, a row skipped, a missing compiler."""

    kind: Literal["note"] = "note"
    code: str = ""
    text: str = ""
    hint: str = ""


class Exported(Event):
    """An export is written under ``exports/NAME`` and was reloaded; ``checks`` says what was compared, ``warnings``
    what a person must know before using it, such as a form that lost what training brought."""

    kind: Literal["exported"] = "exported"
    name: str = ""
    form: str = ""
    bytes: int = 0
    checks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Finished(Event):
    """The job is done."""

    kind: Literal["finished"] = "finished"
    seconds: float = 0.0


class Stopped(Event):
    """Somebody stopped the job; ``kept``: whether a checkpoint of the last step was saved."""

    kind: Literal["stopped"] = "stopped"
    kept: bool = True


class Failed(Event):
    """The job ended by a ``Fault``."""

    kind: Literal["failed"] = "failed"
    code: str = ""
    message: str = ""
    hint: str = ""
    key: str = ""
    values: dict[str, str | int | float] = {}

    @classmethod
    def by(cls, fault: Fault) -> Self:
        """The event for a fault; its single problems follow the hint."""
        hint = " ".join([fault.hint, *fault.problems]).strip()
        return cls(code=fault.code, message=fault.message, hint=hint, key=fault.key, values=fault.told()["values"])


_KINDS: Any = Union[tuple(Event.__subclasses__())]  # noqa: UP007 - of classes that are counted, not written
_LINE: TypeAdapter[Event] = TypeAdapter(Annotated[_KINDS, Field(discriminator="kind")])
_MOST_SECONDS = 1e11
"""What a calendar can show."""
_MAY_DIVERGE = frozenset({"loss", "eval_loss", "grad_norm"})
_MOST_TEXT = {"sample": 100_000}


def parse_event(line: str | bytes) -> Event | None:
    """One line of the log as its event; None for an unknown kind or a line that is not an event."""
    try:
        return _plausible(_LINE.validate_json(line))  # three times as fast as below
    except ValueError:
        pass
    try:  # Python's reader accepts half a surrogate pair, which a model may generate
        return _plausible(_LINE.validate_python(json.loads(line)))
    except (ValueError, RecursionError):
        return None


def _plausible(event: Event) -> Event | None:
    """The event with texts shortened to what a page can show; None with a number that cannot have been measured."""
    values = event.__dict__
    if not 0 <= event.at <= _MOST_SECONDS or not 0 <= values.get("seconds", 0) <= _MOST_SECONDS:
        return None
    most_text, long = _MOST_TEXT.get(event.kind, 4_000), {}
    for name, value in values.items():
        kind = type(value)
        if kind is float:
            if not isfinite(value) and name not in _MAY_DIVERGE:
                return None
        elif kind is int:
            if not -_MOST_COUNT <= value <= _MOST_COUNT:
                return None
        elif kind is str and len(value) > most_text:
            long[name] = f"{value[:most_text]} …"
    return event.model_copy(update=long) if long else event
