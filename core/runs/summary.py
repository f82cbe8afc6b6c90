"""One line of the list of runs, and how it is had without folding the whole log.

Cold, only the lines that are no steps and the last step of each attempt are parsed. Warm, ``summary.json`` beside the
log is believed as long as the log has the byte count that it names; deleting that file changes nothing. Whether the
job's processes live is never cached.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.contract.errors import StudioError
from core.contract.events import Event, Starting, parse_event
from core.disk import folder_bytes, write_whole
from core.runs.folder import JobFolder
from core.runs.locks import is_held
from core.runs.log import EventTail
from core.runs.names import given_name
from core.runs.record import RUNNING, RunRecord, State, fold

__all__ = ["RunSummary", "nobody_lives", "summarise"]

_STEP = b'{"kind":"step"'
_STARTING = b'{"kind":"starting"'


@dataclass(frozen=True)
class RunSummary:
    """A run in a listing. Losses are the latest; what is not known yet is None or empty; ``failure`` is its cause
    in one line, with its code and what to do."""

    run_id: str
    name: str
    state: State
    started_at: float | None
    ended_at: float | None
    method: str
    model_name: str
    data_name: str
    last_step: int
    total_steps: int
    train_loss: float | None
    eval_loss: float | None
    preset: str
    bytes_on_disk: int | None
    failure: str = ""
    failure_code: str = ""
    failure_hint: str = ""


def summarise(folder: JobFolder) -> RunSummary:
    """The summary of one run, from ``summary.json`` where that is valid, else from the log (and then kept there)."""
    dead = nobody_lives(folder)
    key = _key(folder)
    summary = _read(folder, key)
    if summary is None:
        # Dead before the log was read means that what was read is all there will be.
        summary = _make(folder)
        with suppress(OSError):
            write_whole(folder.summary_json, json.dumps({"key": key, "summary": asdict(summary)}))
    if dead and summary.state in RUNNING and nobody_lives(folder):
        return replace(summary, state="lost")
    return summary


def nobody_lives(folder: JobFolder) -> bool:
    """Whether neither a supervisor nor a worker of this job lives: both hold locks for as long as they do."""
    return not is_held(folder.supervisor_lock) and not is_held(folder.events)


def scan(path: Path) -> Iterator[Event]:
    """The events that a summary needs: all but the steps, and of those the last that each start leaves standing."""
    steps: list[bytes] = []
    last = b""
    for line in EventTail(path).read_lines():
        if line.startswith(_STEP):
            steps.append(line)
            last = line
            continue
        if line.startswith(_STARTING):
            yield from _standing(steps, line)
            last = b""
        yield from _parsed(line)
    yield from _parsed(last)


def _standing(steps: list[bytes], starting: bytes) -> Iterator[Event]:
    """Drops what came after the checkpoint that an attempt begins at, and gives the step before that."""
    begins = parse_event(starting)
    limit = begins.resumed_step if isinstance(begins, Starting) else 0
    while steps:
        step = next(_parsed(steps[-1]), None)
        if step is not None and step.step <= limit:
            yield step
            return
        steps.pop()


def _parsed(line: bytes) -> Iterator[Event]:
    if line and (event := parse_event(line)) is not None:
        yield event


def _make(folder: JobFolder) -> RunSummary:
    record, config, given = fold(scan(folder.events)), _config(folder), given_name(folder)
    failure = record.failure if record.state == "failed" else None
    return RunSummary(
        run_id=folder.name,
        name=given if given is not None else config.name if config else folder.name,
        state=record.state,
        started_at=record.started_at,
        ended_at=record.ended_at,
        method=config.method if config else "",
        model_name=config.model.name if config else "",
        data_name=Path(config.data.path).name if config else "",
        last_step=record.last_step,
        total_steps=record.plan.total_steps if record.plan else (config.train.max_steps if config else 0),
        train_loss=record.steps[-1].loss if record.steps else None,
        eval_loss=_eval_loss(record),
        preset=config.preset if config else "",
        bytes_on_disk=folder_bytes(folder.path, folder.summary_json.name),
        failure=failure.message if failure else "",
        failure_code=failure.code if failure else "",
        failure_hint=failure.hint if failure else "",
    )


def _eval_loss(record: RunRecord) -> float | None:
    return next((found.loss for found in reversed(record.evaluations) if found.loss is not None), None)


def _config(folder: JobFolder) -> RunConfig | None:
    try:
        return folder.config()
    except StudioError:
        return None  # a listing shows what can be shown


def _key(folder: JobFolder) -> list[int]:
    """What the summary depends on: its fields, the log's length, the folders whose change moves its size, the name."""
    return [
        len(fields(RunSummary)),
        _stat(folder.events, "st_size"),
        *(_stat(folder.path / part, "st_mtime_ns") for part in _PARTS),
    ]


_PARTS = ("checkpoints", "exports", "name")


def _stat(path: Path, field: str) -> int:
    try:
        return int(getattr(path.stat(), field))
    except OSError:
        return 0


def _read(folder: JobFolder, key: list[int]) -> RunSummary | None:
    try:
        raw: dict[str, Any] = json.loads(folder.summary_json.read_bytes())
        return RunSummary(**raw["summary"]) if raw["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
