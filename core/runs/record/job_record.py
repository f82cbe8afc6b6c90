"""What is known of a job: a fold over its events.

::

    queued → starting → training ⇄ paused → finished | stopped | failed

The log does not show ``lost`` (no last event, and no process lives), which the store judges, nor ``unreadable``, which
listings say of a flawed folder. An attempt that begins at a checkpoint drops the metrics after its step.
"""

import contextlib
import json
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

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
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventTail

State = Literal["queued", "starting", "training", "paused", "finished", "stopped", "failed", "lost", "unreadable"]
RUNNING = frozenset({"queued", "starting", "training"})
"""States in which a process must live, or the job is lost."""
ENDED = frozenset({"finished", "stopped", "failed"})
_MOST_NOTES = 200
"""The newest notes that are kept: a page is sent all of them."""
_LISTS: dict[type[Event], str] = {
    Step: "steps", Evaluation: "evaluations", Checkpoint: "checkpoints", Note: "notes", Correction: "corrections",
    Sample: "samples", Exported: "exported", Paused: "pauses",
}  # fmt: skip
"""Events that a record keeps, each under its field."""
_ANEW = {"queued_reason": "", "ended_at": None, "failure": None, "pending": ""}
"""Reset when a run is queued or started."""
_FOLDS_KEPT = 16
_WORKING = frozenset({"first_step", "training", "merging", "verifying", "measuring"})


@dataclass(frozen=True)
class RunRecord:
    """A job as its log tells it. Times are seconds since the epoch; ``started_at`` is the first start, before that the
    queueing. ``pending`` is the command that was acknowledged and is not yet fulfilled."""

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
    pauses: tuple[Paused, ...] = ()
    samples: tuple[Sample, ...] = ()
    exported: tuple[Exported, ...] = ()
    acknowledged: frozenset[str] = frozenset()
    last_step: int = 0
    stepped: bool = False
    """Whether a step came after ``stage`` in the log."""
    queued_reason: str = ""
    started_at: float | None = None
    begun: bool = False
    """Whether a worker was ever started."""
    ended_at: float | None = None
    pending: str = ""
    anyway: bool = False
    """Whether it was last resumed although data or library versions differ."""
    damaged: int = 0
    """Missing or damaged lines of the log."""


class RunFold:
    """Takes events one by one; ``record`` is the result so far."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {"state": "queued", "attempt": 0}
        self._lists: dict[type[Event], list[Any]] = {kind: [] for kind in _LISTS}
        self._acknowledged: set[str] = set()

    @property
    def record(self) -> RunRecord:
        """The record as of now."""
        lists: dict[str, Any] = {_LISTS[kind]: tuple(events) for kind, events in self._lists.items()}
        return RunRecord(**self._facts, **lists, acknowledged=frozenset(self._acknowledged))

    def add(self, event: Event) -> None:
        """Takes one event; other kinds change only the attempt."""
        facts = self._facts
        facts["attempt"] = max(facts["attempt"], event.attempt)
        match event:
            case Step():
                self._measured(event)
                facts.update(last_step=event.step, stepped=True)
                if facts["state"] == "starting":
                    facts["state"] = "training"
            case Evaluation():
                self._measured(event)
            case Stage():
                facts.update(stage=event, stepped=False)
                if event.stage in _WORKING and facts["state"] == "starting":
                    facts["state"] = "training"
            case Checkpoint():
                self._lists[Checkpoint].append(event)
                if facts.get("pending") == "save":
                    facts["pending"] = ""
            case Note() | Correction() | Sample() | Exported():
                kept = self._lists[type(event)]
                kept.append(event)
                del kept[: -_MOST_NOTES if isinstance(event, Note) else -len(kept)]
            case Queued():
                facts.update(_ANEW, state="queued", queued_reason=event.reason)
                facts.setdefault("started_at", event.at)
            case Resumed():
                facts.update(_ANEW, state="queued", anyway=event.anyway, stage=None)
            case Starting():
                self._begin(event)
            case Hello() | Plan():
                facts[event.kind] = event
            case Acknowledged():
                self._acknowledged.add(event.command_id)
                if event.command in ("pause", "stop", "save"):
                    facts["pending"] = event.command
            case Paused():
                self._lists[Paused].append(event)
                facts.update(state="paused", pending="")
            case Finished() | Stopped() | Failed():
                failure = event if isinstance(event, Failed) else None
                facts.update(state=event.kind, pending="", ended_at=event.at, failure=failure)

    def _begin(self, event: Starting) -> None:
        """A new attempt drops what came after its checkpoint. A worker that has to take an older checkpoint says
        ``Starting`` again, with that one's step."""
        self._facts.update(_ANEW, state="starting", stage=None, stepped=False, last_step=event.resumed_step)
        if not self._facts.get("begun"):
            self._facts.update(started_at=event.at, begun=True)
        for kind in (Step, Evaluation, Checkpoint, Paused):
            self._lists[kind][:] = [metric for metric in self._lists[kind] if metric.step <= event.resumed_step]

    def _measured(self, metric: Step | Evaluation) -> None:
        """Replaces later metrics: a worker may go back to a checkpoint by itself."""
        metrics = self._lists[type(metric)]
        while metrics and metrics[-1].step >= metric.step:
            metrics.pop()
        metrics.append(metric)


def fold(events: Iterable[Event]) -> RunRecord:
    """The record that these events amount to."""
    state = RunFold()
    for event in events:
        state.add(event)
    return state.record


def folded(folder: JobFolder) -> RunRecord:
    """The record that a job's log amounts to as it stands. Raises OSError where it may not be read."""
    return fold(EventTail(folder.events).read())


class Folds:
    """The last few folds, by folder. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: OrderedDict[Path, tuple[EventTail, RunFold]] = OrderedDict()

    def record(self, folder: JobFolder, dead: bool = False) -> RunRecord:
        """The record of this job as of now, without ``lost``. ``dead``: nobody writes its log any more.

        Raises:
            OSError: the log is no regular file, or may not be read.
        """
        with self._guard:
            if (known := self._known.get(folder.path)) and known[0].cut():
                del self._known[folder.path]  # another log
            if folder.path not in self._known:
                self._known[folder.path] = (EventTail(folder.events), RunFold())
            self._known.move_to_end(folder.path)
            tail, fold = self._known[folder.path]
            for event in tail.read():
                fold.add(event)
            if len(self._known) > _FOLDS_KEPT:
                self._known.popitem(last=False)
            torn = dead and tail.torn
            return replace(fold.record, damaged=tail.damaged + torn)

    def forget(self, folder: JobFolder) -> None:
        """Drops what is known of a job that is deleted."""
        with self._guard:
            for path in [path for path in self._known if path == folder.path or folder.path in path.parents]:
                del self._known[path]


def effective_config(config: RunConfig, corrections: Iterable[Correction]) -> RunConfig:
    """run.yaml's config with the corrections applied in order; a key or value that this version does not know is left
    out, since a newer version may have corrected the run."""
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
