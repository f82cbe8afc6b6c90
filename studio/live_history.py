"""The routes of the history: its rows, what a run is called, what to do about a failed one, comparison, and the queue.

They stand under ``/studio`` beside those of ``live.py``, behind the same guard, and answer faults in the same way.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from core.contract.config import RunConfig
from core.runs.asked import read_asked
from core.runs.folder import JobFolder
from core.runs.names import NAME_LENGTH, named_config, rename
from core.runs.record import RunRecord, effective_config
from core.runs.repeat import command_line
from core.runs.run_yaml import dump_config
from studio import comparing, figures
from studio.history_rows import Sieve, row
from studio.points import Window
from studio.proposals import change_for, change_words, next_action, offer
from studio.queueing import queue_view
from studio.session import reopened

if TYPE_CHECKING:
    from studio.live import Live

__all__ = ["history_routes", "next_button"]

PAGE = 50
_TOLD = ("id", "title", "word", "state", "cause")
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
        sieve = Sieve(**{field: asked.get(field, "") for field in Sieve.__dataclass_fields__})
        answer = sieve.answer([row(summary) for summary in live.store.list()], min(max(limit, 1), _MOST_ROWS))
        answer["queue"] = queue_view(live.store, live.machine())
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
    return comparing.Compared(run_id, figures.run_title(config, run_id), config, live.store.record(run_id))


def _one(router: APIRouter, live: Live) -> None:
    @router.get("/run/{run_id}/config")
    def config(run_id: str) -> dict[str, Any]:
        folder, record = live.store.open(run_id), live.store.record(run_id)
        asked = folder.config()
        effective = effective_config(asked, record.corrections)
        line = command_line(folder.run_yaml, asked, effective, _unusual(live.locations.home))
        changes = change_for(record.failure.code, effective) if record.failure else {}
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
    """What the watch page's button does about a run that ended badly, and its words."""
    code = record.failure.code if record.failure else ""
    if not next_action(record.state, code):
        return {"verb": "", "words": ""}  # most ticks: no file needs to be read for that
    return offer(record.state, code, effective_config(folder.config(), record.corrections))


def _unusual(home: Path) -> Path | None:
    """The root, where the command line would not find it by itself."""
    return None if home == (Path.home() / "luthier-studio").resolve() else home


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
        code = record.failure.code if record.failure else ""
        # Proposed for what ran, as the button said: reopened, an automatic value is "auto" again.
        changes = change_for(code, effective_config(folder.config(), record.corrections))
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
