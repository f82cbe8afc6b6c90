"""The summary of a run for listings, without folding its whole log.

Only the last step of each attempt and the lines of other kinds are parsed. ``summary.json`` beside the log caches the
result for the log's byte count that it names. Whether the job's processes live is never cached.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from core.contract.errors import Fault, RunError
from core.contract.events import Event, Failed, Starting, parse_event
from core.contract.methods import RANKED, LearningMethod
from core.machine.disk import folder_bytes, read_plain, write_whole
from core.machine.locks import is_held
from core.runs.folder.flaws import MOST_BYTES, flaw_of
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import given_name
from core.runs.log.events_log import EventTail
from core.runs.record.job_record import RUNNING, RunRecord, State, fold
from core.runs.record.outcome import Measure, Outcome, Verdict, measures, outcome

_MOST_SECONDS, _MOST_COUNT = 1e11, 1 << 53
"""The largest values that a page can show."""
_STEP = b'{"kind":"step"'


@dataclass(frozen=True)
class RunSummary:
    """A run in a listing. Losses are the latest; what is not known yet is None or empty. ``verdict`` is of a run that
    is over; best loss and step are from after training began. ``damaged`` counts damaged or missing log lines."""

    run_id: str
    name: str
    state: State
    started_at: float | None = None
    ended_at: float | None = None
    method: str = ""
    model_name: str = ""
    data_name: str = ""
    last_step: int = 0
    total_steps: int = 0
    train_loss: float | None = None
    eval_loss: float | None = None
    preset: str = ""
    bytes_on_disk: int | None = None
    failure: Failed | None = None
    verdict: Verdict | Literal[""] = ""
    before_loss: float | None = None
    best_loss: float | None = None
    best_step: int = 0
    damaged: int = 0
    measure: str = ""
    """The first of the method's held-out measures that says which model is better, and its first and best reading."""
    measure_before: float | None = None
    measure_best: float | None = None
    begun: bool = True
    """False for one that left the queue before a worker was started."""

    @property
    def outcome(self) -> Outcome | None:
        """The outcome as it was judged when the log was read."""
        if not self.verdict:
            return None
        after = None if self.best_loss is None else Measure(self.best_loss, self.best_step)
        return Outcome(self.verdict, self.before_loss, after, self.eval_loss)


@dataclass(frozen=True)
class _Kept:
    """``summary.json``: the summary, and the key that it is valid for."""

    key: list[int]
    summary: RunSummary


_KEPT = TypeAdapter(_Kept)


def summarise(folder: JobFolder) -> RunSummary:
    """The summary of one run, from ``summary.json`` where that is valid, else from the log (and then cached)."""
    if flaw := flaw_of(folder.path):
        return _unreadable(folder, flaw)
    try:
        # Checked before the log is read: then what was read is complete.
        dead = nobody_lives(folder)
        key = _key(folder, dead)
        summary = _kept(folder, key)
        if summary is None:
            summary = _make(folder, dead)
            with suppress(OSError):
                write_whole(folder.summary_json, _KEPT.dump_json(_Kept(key, summary)))
    except OSError as error:
        return _unreadable(folder, f"{Path(error.filename or folder.path).name} cannot be read ({error.strerror})")
    lost = dead and summary.state in RUNNING and nobody_lives(folder)
    return replace(summary, state="lost") if lost else summary


def nobody_lives(folder: JobFolder) -> bool:
    """Whether neither a supervisor nor a worker of this job lives: both hold locks while they do."""
    return not is_held(folder.supervisor_lock) and not is_held(folder.events)


def _unreadable(folder: JobFolder, reason: str) -> RunSummary:
    """The summary of a run whose files are not opened."""
    fault = RunError("run.unreadable/listed", reason=reason)
    return RunSummary(
        run_id=folder.name,
        name=folder.name,
        state="unreadable",
        failure=Failed.by(fault),
    )


def scan(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events that a summary needs: of the steps only the last that each attempt leaves, and all others."""
    steps: list[bytes] = []
    last = b""
    for line in lines:
        if line.startswith(_STEP):
            steps.append(line)
            last = line
            continue
        event = parse_event(line)
        if isinstance(event, Starting):  # drops the steps after the checkpoint that it begins at
            while steps and not ((step := parse_event(steps[-1])) and step.step <= event.resumed_step):
                steps.pop()
            if steps and step:
                yield step
            last = b""
        if event is not None:
            yield event
    if last and (event := parse_event(last)) is not None:
        yield event


def _make(folder: JobFolder, dead: bool) -> RunSummary:
    tail, config = EventTail(folder.events), None
    record, given = fold(scan(tail.read_lines())), given_name(folder)
    with suppress(Fault):  # a listing shows what can be shown
        config = folder.config()
    failure = record.failure if record.state == "failed" else None
    became, losses = outcome(record), measures(record)
    return RunSummary(
        run_id=folder.name,
        name=given if given is not None else config.name if config else folder.name,
        state=record.state,
        started_at=record.started_at,
        ended_at=record.ended_at,
        method=config.trained_method if config else "",
        model_name=config.model.name if config else "",
        data_name=Path(config.data.path).name if config else "",
        last_step=record.last_step,
        total_steps=record.plan.total_steps if record.plan else (config.train.max_steps if config else 0),
        train_loss=record.steps[-1].loss if record.steps else None,
        eval_loss=losses[-1].loss if losses else None,
        preset=config.preset if config else "",
        bytes_on_disk=folder_bytes(folder.path, folder.summary_json.name),
        failure=failure,
        verdict=became.verdict if became else "",
        before_loss=became.before if became else None,
        best_loss=became.after.loss if became and became.after else None,
        best_step=became.after.step if became and became.after else 0,
        damaged=tail.damaged + (dead and tail.torn),
        begun=record.begun,
        **(_measured(record, config.learning) if config else {}),
    )


def _measured(record: RunRecord, learning: LearningMethod) -> dict[str, Any]:
    for name in (name for name in learning.measures if name in RANKED):
        told = (getattr(event, name) for event in record.evaluations)
        if known := [value for value in told if value is not None]:
            return {"measure": name, "measure_before": known[0], "measure_best": RANKED[name](known)}
    return {}


def _key(folder: JobFolder, dead: bool) -> list[int]:
    """What the summary depends on: its fields, the log's length, what changes the folder's size, the name."""

    def stat(path: Path, field: str) -> int:
        try:
            return int(getattr(os.lstat(path), field))
        except OSError:
            return 0

    return [
        len(fields(RunSummary)),
        int(dead),
        stat(folder.events, "st_size"),
        sum(map(folder_bytes, folder.export_drafts().values())),
        *(stat(folder.path / part, "st_mtime_ns") for part in ("checkpoints", "exports", "name")),
    ]


def _kept(folder: JobFolder, key: list[int]) -> RunSummary | None:
    try:
        kept = _KEPT.validate_json(read_plain(folder.summary_json, MOST_BYTES["summary.json"]))
    except (OSError, ValueError):
        return None
    known = kept.summary
    times = (known.started_at or 0.0, known.ended_at or 0.0)
    counts = (known.last_step, known.total_steps, known.best_step, known.bytes_on_disk or 0, known.damaged)
    mine = kept.key == key and known.run_id == folder.name
    return known if mine and all(0 <= at < _MOST_SECONDS for at in times) and max(counts) < _MOST_COUNT else None
