"""What is known of a job: a fold over its events, and nothing else is believed.

::

    queued → starting → training ⇄ paused → finished | stopped | failed

``lost`` (no last event stands and nobody lives) cannot be seen in the log; the store judges it, and ``unreadable`` is
a listing's word for a folder that cannot be looked into. A later attempt that
begins at a checkpoint drops the metrics after that step, so that charts never run backwards.
"""

import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from core.contract.config import RunConfig
from core.contract.events import (
    Acknowledged,
    Checkpoint,
    Correction,
    Evaluation,
    Event,
    Exported,
    Failed,
    Finished,
    Hello,
    Note,
    Paused,
    Plan,
    Queued,
    Resumed,
    Sample,
    Stage,
    Starting,
    Step,
    Stopped,
)

State = Literal["queued", "starting", "training", "paused", "finished", "stopped", "failed", "lost", "unreadable"]
RUNNING = frozenset({"queued", "starting", "training"})
"""States in which a process must live; where none does the job is lost."""
ENDED = frozenset({"finished", "stopped", "failed"})
_MOST_KEPT: dict[type[Event], int] = {Note: 200}
"""The newest so many are shown: a page is sent all of them."""
M = TypeVar("M", Step, Evaluation)
_WORKING = frozenset({"first_step", "training", "merging", "verifying"})


@dataclass(frozen=True)
class RunRecord:
    """A job as its log tells it. Times are seconds since the epoch, ``started_at`` that of the first start (while it
    waits for that: of the queueing). ``pending`` is the command that was acknowledged and is not yet fulfilled."""

    state: State = "queued"
    attempt: int = 0
    stage: Stage | None = None
    plan: Plan | None = None
    hello: Hello | None = None
    failure: Failed | None = None
    steps: tuple[Step, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    notes: tuple[Note, ...] = ()
    corrections: tuple[Correction, ...] = ()
    samples: tuple[Sample, ...] = ()
    exported: tuple[Exported, ...] = ()
    acknowledged: frozenset[str] = frozenset()
    last_step: int = 0
    stepped: bool = False
    """Whether a step came after ``stage``, in the log's order: a clock may have been set in between."""
    queued_reason: str = ""
    started_at: float | None = None
    begun: bool = False
    """Whether a worker was ever started: a run that left the queue before has taken no time."""
    ended_at: float | None = None
    pending: str = ""
    anyway: bool = False
    """Whether the last word to go on was said although data or library versions differ."""
    damaged: int = 0
    """Lines of the log that are missing or not as they were written."""


class RunFold:
    """Takes events one by one; ``record`` is what they amount to so far."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {"state": "queued"}
        self._steps: list[Step] = []
        self._evaluations: list[Evaluation] = []
        self._checkpoints: list[Checkpoint] = []
        self._kept: dict[type[Event], list[Any]] = {Note: [], Correction: [], Sample: [], Exported: []}
        self._acknowledged: set[str] = set()

    def add(self, event: Event) -> None:
        """Takes one event; kinds without a meaning here change nothing but the attempt."""
        self._facts["attempt"] = max(self._facts.get("attempt", 0), event.attempt)
        if (kept := self._kept.get(type(event))) is not None:
            kept.append(event)
            del kept[: -_MOST_KEPT.get(type(event), len(kept))]
        elif (handle := _HANDLERS.get(type(event))) is not None:
            handle(self, event)

    @property
    def record(self) -> RunRecord:
        """The record as of now; a copy that later events leave alone."""
        notes, corrections, samples, exported = map(tuple, self._kept.values())
        return RunRecord(
            **self._facts,
            steps=tuple(self._steps),
            evaluations=tuple(self._evaluations),
            checkpoints=tuple(self._checkpoints),
            notes=notes,
            corrections=corrections,
            samples=samples,
            exported=exported,
            acknowledged=frozenset(self._acknowledged),
        )

    def _queued(self, event: Queued | Resumed) -> None:
        self._facts.update(state="queued", queued_reason="", ended_at=None, failure=None, pending="")
        if isinstance(event, Resumed):
            self._facts.update(anyway=event.anyway, stage=None)
        else:
            self._facts.update(queued_reason=event.reason)
            self._facts.setdefault("started_at", event.at)

    def _starting(self, event: Starting) -> None:
        """A new attempt: what came after its checkpoint is forgotten. A worker that finds that checkpoint bad and takes
        an older one says ``Starting`` again, with the step that it did take."""
        facts = {"state": "starting", "queued_reason": "", "ended_at": None, "failure": None, "pending": ""}
        self._facts.update(facts, stage=None, stepped=False, last_step=event.resumed_step)
        if not self._facts.get("begun"):
            self._facts.update(started_at=event.at, begun=True)
        lists: tuple[list[Any], ...] = (self._steps, self._evaluations, self._checkpoints)
        for metrics in lists:
            metrics[:] = [metric for metric in metrics if metric.step <= event.resumed_step]

    def _told(self, event: Hello | Plan) -> None:
        self._facts[event.kind] = event

    def _stage(self, event: Stage) -> None:
        self._facts.update(stage=event, stepped=False)
        if event.stage in _WORKING and self._facts["state"] == "starting":
            self._facts["state"] = "training"

    def _step(self, event: Step) -> None:
        _put(self._steps, event)
        self._facts.update(last_step=event.step, stepped=True)
        if self._facts["state"] == "starting":
            self._facts["state"] = "training"

    def _evaluation(self, event: Evaluation) -> None:
        _put(self._evaluations, event)

    def _checkpoint(self, event: Checkpoint) -> None:
        self._checkpoints.append(event)
        if self._facts.get("pending") == "save":
            self._facts["pending"] = ""

    def _acknowledge(self, event: Acknowledged) -> None:
        self._acknowledged.add(event.command_id)
        if event.command in ("pause", "stop", "save"):
            self._facts["pending"] = event.command

    def _over(self, event: Paused | Finished | Stopped | Failed) -> None:
        self._facts.update(state=event.kind, pending="")
        if not isinstance(event, Paused):
            self._facts.update(ended_at=event.at, failure=event if isinstance(event, Failed) else None)


def _put(metrics: list[M], metric: M) -> None:
    """A worker may go back to a checkpoint by itself: what came after is measured again."""
    while metrics and metrics[-1].step >= metric.step:
        metrics.pop()
    metrics.append(metric)


_HANDLERS: dict[type[Event], Callable[[RunFold, Any], None]] = {
    Queued: RunFold._queued,
    Resumed: RunFold._queued,
    Starting: RunFold._starting,
    Hello: RunFold._told,
    Plan: RunFold._told,
    Stage: RunFold._stage,
    Step: RunFold._step,
    Evaluation: RunFold._evaluation,
    Checkpoint: RunFold._checkpoint,
    Acknowledged: RunFold._acknowledge,
    Paused: RunFold._over,
    Finished: RunFold._over,
    Stopped: RunFold._over,
    Failed: RunFold._over,
}


def fold(events: Iterable[Event]) -> RunRecord:
    """The record that these events amount to."""
    state = RunFold()
    for event in events:
        state.add(event)
    return state.record


def effective_config(config: RunConfig, corrections: Iterable[Correction]) -> RunConfig:
    """The config as it is now: run.yaml with the later corrections folded in, in their order.

    A key or a value that this version does not know is left out: a run may have been corrected by a newer one, and
    must still be shown and gone on with.
    """
    for correction in corrections:
        section, _, key = correction.key.partition(".")
        values = config.model_dump()
        if isinstance(values.get(section), dict) and key in values[section]:
            values[section][key] = correction.new
            with contextlib.suppress(ValueError):  # a number where it is one
                values[section][key] = json.loads(correction.new)
            with contextlib.suppress(ValidationError):
                config = RunConfig.model_validate(values)
    return config
