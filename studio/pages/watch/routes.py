"""The routes of the watch page: one tick of a run, its commands, and what every page is told of the run at work."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from core.runs.control.store import RunStore
from studio.figures.marks import HELD_OUT, csv_of, marks_of
from studio.figures.now import ended_since, now_of
from studio.figures.points import Window, is_metric, points_of
from studio.pages.watch.view import watched
from studio.services.services import Studio
from studio.shell.json_routes import DONE

VERBS = ("pause", "resume", "save", "stop", "stop_now")


def routes(studio: Studio) -> APIRouter:
    """``/studio/points`` and ``/studio/run/ID/VERB``."""
    router = APIRouter(prefix="/studio")
    store = studio.store

    @router.get("/points")
    def tick(request: Request) -> JSONResponse:
        asked = request.query_params
        run_id = asked.get("run", "") or _newest(store)
        if not run_id:
            return JSONResponse({"run": ""})
        window = Window(
            since=_whole(asked.get("since")),
            shape=asked.get("shape", ""),
            level=_share(asked.get("smooth")),
            first=_whole(asked.get("first")),
            last=_whole(asked.get("last")),
        )
        folder, record = store.open(run_id), store.record(run_id)
        shown = watched(folder, record, with_log=asked.get("log") == "1")
        # Not left to FastAPI, which would encode thousands of numbers one by one.
        points = points_of(folder.path).answer(record, window) | {"marks": marks_of(record)}
        return JSONResponse({"run": run_id, **shown, "points": points})

    @router.get("/run/{run_id}/lines")
    def lines(run_id: str, names: str) -> Response:
        """Lines of a chart as a file, every step of them."""
        known = [name for name in names.split(",") if is_metric(name) or name in HELD_OUT]
        headers = {"Content-Disposition": f'attachment; filename="{run_id}.csv"'}
        return Response(csv_of(store.record(run_id), known), media_type="text/csv; charset=utf-8", headers=headers)

    @router.get("/now")
    def now(since: float = 0.0) -> dict[str, Any]:
        """For every page's header and for notices: what is at work, and what ended after ``since`` (0: none)."""
        return now_of(store) | ended_since(store, since)

    def obeying(verb: str) -> Callable[[str], dict[str, bool]]:
        def obey(run_id: str) -> dict[str, bool]:
            getattr(store, verb)(run_id)
            return DONE

        return obey

    for verb in VERBS:
        router.post(f"/run/{{run_id}}/{verb}")(obeying(verb))

    @router.post("/run/{run_id}/anyway")
    def anyway(run_id: str) -> dict[str, bool]:
        """Resumes although data or versions differ, as a person has confirmed."""
        store.resume(run_id, anyway=True)
        return DONE

    @router.post("/run/{run_id}/discard")
    def discard(run_id: str) -> dict[str, str]:
        """Ends a run at once and deletes it."""
        studio.chats.leave(run_id)
        store.discard(run_id)
        return {"go": "/history"}

    return router


def _newest(store: RunStore) -> str:
    """The running run, else the newest, else empty."""
    runs = [run for run in store.list() if run.state != "unreadable"]
    living = [run.run_id for run in runs if run.state in ("training", "starting")]
    return (living or [run.run_id for run in runs] or [""])[0]


def _whole(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 12 else 0


def _share(text: str | None) -> float:
    try:
        return min(max(float(text or 0), 0.0), 1.0)
    except ValueError:
        return 0.0
