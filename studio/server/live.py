"""The routes behind watch, try, take home and history: small JSON answers that the pages' own scripts poll.

Everything here looks at run folders or passes a command on to ``core.runs``; no run knows that a page exists. A fault
is answered as ``{"code", "message", "hint"}`` with status 404 (no such run) or 409. The guard stands before all of it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute

from core.contract.config import RunConfig
from core.contract.errors import StudioError
from core.machine.hardware import Machine, read_machine
from core.machine.locations import Locations
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import ExportRequest
from core.runs.folder.notes import named_config
from core.runs.record.words import unknown_fields_words
from studio.figures import run_figures
from studio.figures.held_out import HeldOut
from studio.figures.history_rows import row
from studio.figures.points import PointCache, Window
from studio.figures.verdicts import used_words
from studio.pages.history.routes import history_routes, next_button
from studio.pages.take_home import listing
from studio.pages.try_it.asking import ChatClients, Question, sampled
from studio.pages.watch.log_lines import log_lines
from studio.pages.watch.samples import answers_on_the_way

__all__ = ["Live", "routes"]

VERBS = ("pause", "resume", "save", "stop", "stop_now")


@dataclass
class Live:
    """What the routes work with. ``redraft`` puts a run's config into the visitor's draft (re-run)."""

    locations: Locations
    store: RunStore
    talks: ChatClients
    held_out: HeldOut
    redraft: Callable[[RunConfig], None]
    read_machine: Callable[[], Machine] | None = None
    cache: PointCache = field(default_factory=PointCache)

    def machine(self) -> Machine:
        """The machine, as whoever opened the studio reads it."""
        return self.read_machine() if self.read_machine else read_machine(self.locations.home)

    def newest(self) -> str:
        """The living run, else the newest, else nothing."""
        runs = [run for run in self.store.list() if run.state != "unreadable"]
        living = [run.run_id for run in runs if run.state in ("training", "starting")]
        return (living or [run.run_id for run in runs] or [""])[0]

    def watched(self, run_id: str, window: Window, with_log: bool) -> dict[str, Any]:
        """One tick of the watch page."""
        run_id = run_id or self.newest()
        if not run_id:
            return {"run": ""}
        folder, record = self.store.open(run_id), self.store.record(run_id)
        status = run_figures.status(record, named_config(folder), run_id, time.time())
        status["kept"] = folder.newest_checkpoint() is not None
        if status["verdict"]:
            status["verdict"]["used"] = used_words(folder)
        words = unknown_fields_words(folder.unknown_fields())
        if words and [words, ""] not in status["notes"]:
            status["notes"].append([words, ""])
        status["way"] = answers_on_the_way(record)
        status["next"] = next_button(folder, record)
        answer = {"run": run_id, "status": status, "points": self.cache.get(run_id).answer(record, window)}
        return answer | ({"log": log_lines(folder.events)} if with_log else {})

    def delete(self, run_id: str, at_work: bool = False) -> None:
        """Deletes a run that has ended, or first ends it at once, and what we remember of it."""
        self.talks.leave(run_id)
        (self.store.discard if at_work else self.store.delete)(run_id)
        self.cache.forget(run_id)


class SayingRoute(APIRoute):
    """Turns a StudioError into one line for a person."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler with our errors caught."""
        handle = super().get_route_handler()

        async def saying(request: Request) -> Response:
            try:
                return await handle(request)
            except StudioError as error:
                status = 404 if error.code == "run.unknown" else 409
                return JSONResponse(error.told(), status)

        return saying


def routes(live: Live) -> APIRouter:
    """All live routes under ``/studio``."""
    router = APIRouter(prefix="/studio", route_class=SayingRoute)
    _looking(router, live)
    _steering(router, live)
    _trying(router, live)
    history_routes(router, live)
    return router


def _looking(router: APIRouter, live: Live) -> None:
    @router.get("/points")
    def points(request: Request) -> JSONResponse:
        asked = request.query_params
        window = Window(
            since=_whole(asked.get("since")),
            shape=asked.get("shape", ""),
            level=_number(asked.get("smooth")),
            first=_whole(asked.get("first")),
            last=_whole(asked.get("last")),
        )
        # An answer of our own: FastAPI would look through its thousands of numbers for what is no JSON.
        return JSONResponse(live.watched(asked.get("run", ""), window, asked.get("log") == "1"))

    @router.get("/runs")
    def runs(kept: int = 0, tag: str = "") -> dict[str, Any]:
        rows = [row(summary) for summary in live.store.list()]
        count = len(rows)
        if kept:
            rows = [row for row in rows if row["can"]["watch"] and live.store.open(row["id"]).newest_checkpoint()]
        now = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
        return {"same": True, "tag": now} if tag == now else {"tag": now, "runs": rows, "all": count}

    @router.get("/run/{run_id}/keep")
    def keep(run_id: str) -> dict[str, Any]:
        folder = live.store.open(run_id)
        config = named_config(folder)
        exports = [(name, live.store.export_record(run_id, name)) for name in listing.export_names(folder)]
        record = live.store.record(run_id)
        command = {"command": live.locations.command("export", run_id)}
        return (
            listing.keep(folder, record, config, exports)
            | live.held_out.count(folder.path, config, record.plan)
            | command
        )


def _steering(router: APIRouter, live: Live) -> None:
    for verb in VERBS:
        router.add_api_route(f"/run/{{run_id}}/{verb}", _obey(live, verb), methods=["POST"], name=verb)

    @router.post("/run/{run_id}/delete")
    def delete(run_id: str) -> dict[str, bool]:
        live.delete(run_id)
        return {"ok": True}

    @router.post("/run/{run_id}/discard")
    def discard(run_id: str) -> dict[str, str]:
        live.delete(run_id, at_work=True)
        return {"go": "/history"}

    @router.post("/run/{run_id}/export")
    def export(run_id: str, request: ExportRequest) -> dict[str, str]:
        live.talks.leave()
        return {"name": live.store.export(run_id, request)}

    @router.post("/run/{run_id}/export/{name}/stop")
    def stop_export(run_id: str, name: str) -> dict[str, bool]:
        live.store.stop_export(run_id, name)
        return {"ok": True}


def _obey(live: Live, verb: str) -> Callable[[str], dict[str, bool]]:
    def obey(run_id: str) -> dict[str, bool]:
        getattr(live.store, verb)(run_id)
        return {"ok": True}

    return obey


def _trying(router: APIRouter, live: Live) -> None:
    @router.get("/run/{run_id}/held-out")
    def held_out(run_id: str, at: int = 0) -> dict[str, Any]:
        folder = live.store.open(run_id)
        return live.held_out.row(folder.path, folder.config(), live.store.record(run_id).plan, at)

    @router.post("/ask")
    def ask(question: Question) -> StreamingResponse:
        folder, record = live.store.open(question.run), live.store.record(question.run)
        if record.state == "training":
            answers = sampled(live.store, question)
        else:
            answers = live.talks.ask(folder, question.after(folder.config().data.system_prompt))
        return StreamingResponse(_lines(answers), media_type="application/x-ndjson")


def _lines(answers: Iterator[dict[str, Any]]) -> Iterator[str]:
    """JSON lines; a fault in mid-answer is its last line, since the status has gone out already."""
    try:
        for answer in answers:
            yield json.dumps(answer) + "\n"
    except StudioError as error:
        yield json.dumps({"fault": str(error)}) + "\n"


def _whole(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 12 else 0


def _number(text: str | None) -> float:
    try:
        return min(max(float(text or 0), 0.0), 1.0)
    except ValueError:
        return 0.0
