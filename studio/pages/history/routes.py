"""The routes of the history: its rows, what a run is called, what to do about a failed one, comparison, and the queue.

They stand under ``/studio`` beside those of ``live.py``, behind the same guard, and answer faults in the same way.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from core.contract.config import RunConfig
from core.contract.errors import StudioError
from core.runs.folder.held_out_rows import kept_draw
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import NAME_LENGTH, named_config, read_asked, rename
from core.runs.folder.repeat import command_line
from core.runs.folder.run_yaml import dump_config
from core.runs.record.job_record import RunRecord, effective_config
from core.runs.record.outcome import outcome
from studio.figures import run_figures
from studio.figures.full_disk import full_disk
from studio.figures.history_rows import RowFilter, row
from studio.figures.points import Window
from studio.figures.proposals import change_for, change_words, next_action, offer, trouble
from studio.figures.queueing import queue_view
from studio.pages.history import comparing
from studio.services.session import reopened

if TYPE_CHECKING:
    from studio.server.live import Live

__all__ = ["history_routes", "next_button"]

PAGE = 50
_TOLD = ("id", "title", "word", "state", "cause", "verdict")
_MOST_ROWS = 5_000


class Name(BaseModel):
    """What a run is to be called; empty for the name that it has by itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = Field(max_length=10 * NAME_LENGTH)


class Place(BaseModel):
    """A place in the queue, 0 being next."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    place: int = Field(ge=0, le=100_000)


def history_routes(router: APIRouter, live: Live) -> None:
    """Adds the routes of the history, of the comparison and of the queue."""
    _rows(router, live)
    _one(router, live)
    _again(router, live)
    _queue(router, live)


def _rows(router: APIRouter, live: Live) -> None:
    @router.get("/history")
    def history(request: Request, limit: int = PAGE, tag: str = "") -> dict[str, Any]:
        asked = request.query_params
        sieve = RowFilter(**{field: asked.get(field, "") for field in RowFilter.__dataclass_fields__})
        answer = sieve.answer([row(summary) for summary in live.store.list()], min(max(limit, 1), _MOST_ROWS))
        answer |= {"queue": queue_view(live.store, live.machine()), "disk": full_disk(live.locations.home)}
        now = hashlib.sha256(json.dumps(answer).encode()).hexdigest()[:16]
        return {"same": True, "tag": now} if tag == now else {"tag": now, **answer}

    @router.get("/compare")
    def compare(runs: str, smooth: float = 0.9, first: int = 0, last: int = 0) -> dict[str, Any]:
        found = [_compared(live, run_id) for run_id in comparing.chosen(runs)]
        points = [live.cache.get(run.run_id) for run in found]
        window = Window(level=min(max(smooth, 0.0), 1.0), first=max(first, 0), last=max(last, 0))
        return comparing.comparison(found, points, window)

    @router.get("/ended")
    def ended(since: float = 0.0) -> dict[str, Any]:
        """Runs that ended after ``since``, for whoever wants to be told; ``now`` is what to ask with next. The first
        question (0) tells of none: what ended before nobody waited for."""
        found = [summary for summary in live.store.list() if summary.ended_at and summary.ended_at > since]
        newest = max((summary.ended_at or 0.0 for summary in found), default=since or time.time())
        told = [{key: row(summary)[key] for key in _TOLD} for summary in found] if since else []
        return {"now": newest, "runs": told}


def _compared(live: Live, run_id: str) -> comparing.Compared:
    folder = live.store.open(run_id)
    config = named_config(folder)
    title, draw = run_figures.run_title(config, run_id), kept_draw(folder.path)
    return comparing.Compared(run_id, title, config, live.store.record(run_id), draw)


def _one(router: APIRouter, live: Live) -> None:
    @router.get("/run/{run_id}/config")
    def config(run_id: str) -> dict[str, Any]:
        folder, record = live.store.open(run_id), live.store.record(run_id)
        asked = folder.config()
        effective = effective_config(asked, record.corrections)
        line = command_line(live.locations, folder.run_yaml, asked, effective)
        changes = change_for(_trouble(record), effective)
        return {"yaml": dump_config(effective), "command": line, "change": change_words(changes)}

    @router.get("/run/{run_id}/yaml")
    def download(run_id: str) -> Response:
        folder, record = live.store.open(run_id), live.store.record(run_id)
        text = dump_config(effective_config(folder.config(), record.corrections))
        headers = {"Content-Disposition": f'attachment; filename="{folder.name}.yaml"'}
        return Response(text, media_type="application/yaml; charset=utf-8", headers=headers)

    @router.post("/run/{run_id}/rename")
    def named(run_id: str, wish: Name) -> dict[str, bool]:
        rename(live.store.open(run_id), wish.name)
        return {"ok": True}


def next_button(folder: JobFolder, record: RunRecord) -> dict[str, str]:
    """What the watch page's button does about a run that ended badly, and its words; nothing where its run.yaml cannot
    be read."""
    code = _trouble(record)
    if next_action(record.state, code):  # in most ticks not: then no file needs to be read
        with contextlib.suppress(StudioError):
            return offer(record.state, code, effective_config(folder.config(), record.corrections))
    return {"verb": "", "words": ""}


def _trouble(record: RunRecord) -> str:
    return trouble(record.failure.code if record.failure else "", outcome(record))


def _again(router: APIRouter, live: Live) -> None:
    @router.post("/run/{run_id}/rerun")
    def rerun(run_id: str) -> dict[str, str]:
        live.redraft(_reopened(live.store.open(run_id), live.store.record(run_id)))
        return {"go": "/"}

    @router.post("/run/{run_id}/anyway")
    def anyway(run_id: str) -> dict[str, bool]:
        """Goes on though data or versions are others: a person has said so."""
        live.store.resume(run_id, anyway=True)
        return {"ok": True}

    @router.post("/run/{run_id}/mend")
    def mend(run_id: str) -> dict[str, str]:
        """As ``rerun``, with the change that is proposed after its failure."""
        folder, record = live.store.open(run_id), live.store.record(run_id)
        # Proposed for what ran, as the button said: reopened, an automatic value is "auto" again.
        changes = change_for(_trouble(record), effective_config(folder.config(), record.corrections))
        live.redraft(_changed(_reopened(folder, record), changes))
        return {"go": "/"}


def _reopened(folder: JobFolder, record: RunRecord) -> RunConfig:
    asked = read_asked(folder)
    corrected = [correction.key for correction in record.corrections]
    return reopened(effective_config(folder.config(), record.corrections), asked.config if asked else None, corrected)


def _changed(config: RunConfig, changes: dict[str, Any]) -> RunConfig:
    values = config.model_dump()
    for key, value in changes.items():
        part, _, name = key.rpartition(".")
        values[part][name] = value
    return RunConfig.model_validate(values)


def _queue(router: APIRouter, live: Live) -> None:
    @router.get("/queue")
    def queue() -> dict[str, Any]:
        return queue_view(live.store, live.machine())

    @router.post("/queue/{run_id}/move")
    def move(run_id: str, wish: Place) -> dict[str, Any]:
        live.store.move(run_id, wish.place)
        return queue_view(live.store, live.machine())
