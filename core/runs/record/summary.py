"""The summary of a run for listings, without folding its whole log.

Of the steps only those at the ends of what each attempt leaves are parsed. ``summary.json`` beside the log caches the
result for the log's byte count that it names. Whether the job's processes live is never cached.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter

from core.contract.config import RunConfig
from core.contract.errors import Fault, RunError
from core.contract.events import Event, Failed, Starting, parse_event
from core.machine.disk import folder_bytes, read_plain, write_whole
from core.machine.locks import is_held
from core.runs.folder.flaws import MOST_BYTES, flaw_of
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import Marks, given_name, read_asked, read_marks, read_opened
from core.runs.folder.run_yaml import flat
from core.runs.log.events_log import EventTail
from core.runs.record.job_record import RUNNING, State, fold
from core.runs.record.outcome import (
    ENDS,
    Course,
    Measure,
    Outcome,
    Readings,
    Verdict,
    best,
    measures,
    outcome,
    own_readings,
)

_MOST_SECONDS, _MOST_COUNT = 1e11, 1 << 53
"""The largest values that a page can show."""
_STEP = b'{"kind":"step"'
_LOSS = re.compile(rb'"step":(\d{1,15}),.*?"loss":(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)[,}]')
"""Of a step's line; a tenth of the time that its whole event takes."""
_DRAWN = 40
"""Points of a small curve."""
_LEAST_DRAWN = 3
_LONGEST = 200
_SIDE_FILES = ("checkpoints", "exports", "name", "marks.json", "asked.json", "report.json")
"""What a summary depends on beside the log."""
_NOT_SETTINGS = frozenset({"name", "preset", "resume_from", "method", "model.name", "model.source", "model.revision",
                           "data.path", "data.sha256"})  # fmt: skip
_UNTOUCHED = flat(RunConfig())


Item = TypeVar("Item")


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
    course: Course = field(default_factory=Course)
    """Of the training loss, as the verdict saw it."""
    own: Readings | None = None
    """What the method itself measures on held-out rows, where that says which model is better."""
    begun: bool = True
    """False for one that left the queue before a worker was started."""
    data_key: str = ""
    """The data's content hash where it is known, else its path."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What was asked for by dotted key, where it is not the default."""
    curve: tuple[tuple[float, float], ...] = ()
    """Up to forty points of the held-out loss over the steps, of the training loss where that was measured less than
    three times (then ``curve_of`` is "train")."""
    curve_of: Literal["held_out", "train"] = "held_out"
    marks: Marks = field(default_factory=Marks)
    opened: bool = False
    """Whether it was opened from a file."""
    kept: bool = False
    """Whether a checkpoint stands."""
    reported: bool = False
    exports: int = 0
    resume_from: str = ""
    cards: int = 0
    """How many cards it was last trained on together; 0 for one, and on the CPU."""

    @property
    def outcome(self) -> Outcome | None:
        """The outcome as it was judged when the log was read."""
        if not self.verdict:
            return None
        after = None if self.best_loss is None else Measure(self.best_loss, self.best_step)
        return Outcome(self.verdict, self.before_loss, after, self.eval_loss, self.course, self.own)


_FIELDS = len(fields(RunSummary)) + len(fields(Readings))


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


def scan(lines: Iterable[bytes], steps: list[bytes]) -> Iterator[Event]:
    """The events that a summary needs: of the steps only those at the ends of what each attempt leaves, and all others.
    ``steps`` takes the lines of the steps that stand."""
    stepped = False
    for line in lines:
        if line.startswith(_STEP):
            steps.append(line)
            stepped = True
            continue
        event = parse_event(line)
        if isinstance(event, Starting):  # drops the steps after the checkpoint that it begins at
            while steps and not ((step := parse_event(steps[-1])) and step.step <= event.resumed_step):
                steps.pop()
            yield from _ends(steps)
            stepped = False
        if event is not None:
            yield event
    if stepped:
        yield from _ends(steps)


def _ends(steps: Sequence[bytes]) -> Iterator[Event]:
    kept = steps if len(steps) <= 2 * ENDS else [*steps[:ENDS], *steps[-ENDS:]]
    return (event for event in map(parse_event, kept) if event is not None)


def _make(folder: JobFolder, dead: bool) -> RunSummary:
    tail, config = EventTail(folder.events), None
    steps: list[bytes] = []
    record, given = fold(scan(tail.read_lines(), steps)), given_name(folder)
    with suppress(Fault):  # a listing shows what can be shown
        config = folder.config()
    failure = record.failure if record.state == "failed" else None
    became, losses = outcome(record), measures(record)
    after = best(one for one in losses if one.step)
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
        before_loss=next((one.loss for one in losses if one.step == 0), None),
        best_loss=after.loss if after else None,
        best_step=after.step if after else 0,
        damaged=tail.damaged + (dead and tail.torn),
        course=became.course if became else Course(),
        begun=record.begun,
        marks=read_marks(folder),
        opened=read_opened(folder) is not None,
        kept=folder.newest_checkpoint() is not None,
        reported=folder.report_json.is_file(),
        exports=len(folder.finished_exports()),
        cards=len(record.hello.cards) if record.hello else 0,
        **_drawn(losses, steps),
        own=own_readings(record),
        **(_chosen(folder, config) if config else {}),
    )


def _chosen(folder: JobFolder, config: RunConfig) -> dict[str, Any]:
    """What was chosen: as asked for, since automatic values say nothing about what a person changed."""
    asked = read_asked(folder)
    settings = {
        key: value[:_LONGEST] if isinstance(value, str) else value
        for key, value in flat(asked.config if asked else config).items()
        if key not in _NOT_SETTINGS and value != _UNTOUCHED[key]
    }
    key = config.data.sha256 or config.data.path
    return {"settings": json.loads(json.dumps(settings)), "data_key": key, "resume_from": config.resume_from}


def _drawn(losses: Sequence[Measure], steps: Sequence[bytes]) -> dict[str, Any]:
    """A small curve. Training losses are means over neighbouring steps."""
    if len(losses) >= _LEAST_DRAWN:
        return {"curve": tuple((one.step, _short(one.loss)) for one in _spread(losses, _DRAWN))}
    read = filter(None, map(_LOSS.search, _spread(steps, 3 * _DRAWN)))
    known = [(int(one[1]), loss) for one in read if isfinite(loss := float(one[2]))]
    width = max(1, -(-len(known) // _DRAWN))
    parts = [known[at : at + width] for at in range(0, len(known), width)]
    curve = tuple((part[-1][0], _short(sum(loss for _, loss in part) / len(part))) for part in parts)
    return {"curve": curve, "curve_of": "train"}


def _spread(items: Sequence[Item], most: int) -> Sequence[Item]:
    """At most so many, evenly spaced, the first and the last among them."""
    count = len(items)
    return items if count <= most else [items[at * (count - 1) // (most - 1)] for at in range(most)]


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _key(folder: JobFolder, dead: bool) -> list[int]:
    """What the summary depends on: its fields, the log's length, what changes the folder's size, the name."""

    place = os.fspath(folder.path)

    def stat(name: str, field: str) -> int:
        try:
            return int(getattr(os.lstat(f"{place}/{name}"), field))  # a Path for each would take a third of a listing
        except OSError:
            return 0

    sides = {name: stat(name, "st_mtime_ns") for name in _SIDE_FILES}
    # Older kernels' clocks tick every few milliseconds: two changes of marks within one differ by their file alone.
    marks = stat("marks.json", "st_ino")
    drafts = folder.export_drafts().values() if sides["exports"] else ()
    return [_FIELDS, int(dead), stat("events.jsonl", "st_size"), sum(map(folder_bytes, drafts)), marks, *sides.values()]


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
