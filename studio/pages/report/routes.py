"""The routes of the report page: the page itself, its files, the making, and the choices for all reports."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response
from fastapi.responses import HTMLResponse

from core.report.choices import ReportChoices, write_choices
from core.runs.folder.job_folder import ReportRequest
from studio.figures.now import now_of
from studio.pages.report.file import file_of
from studio.pages.report.page import page
from studio.pages.report.reading import making, needed, recount
from studio.services.services import Studio
from studio.shell.frame import document
from studio.shell.json_routes import DONE

Asked = Annotated[list[str], Query(alias="run", max_length=20)]


def routes(studio: Studio) -> APIRouter:
    """``/report``, ``/studio/report.html``, ``/studio/report.json``, ``/studio/run/ID/report`` and
    ``/studio/report-choices``."""
    router = APIRouter()

    @router.get("/report", response_class=HTMLResponse)
    def shown(asked: Asked = []) -> str:  # noqa: B006 - FastAPI copies it
        return document("/report", page(studio, asked), now_of(studio.store))

    @router.get("/studio/report.html")
    def html(asked: Asked) -> Response:
        """The report as one file, or the comparison of several."""
        text = file_of(studio.store, asked)
        return _download(text, "text/html; charset=utf-8", asked[0], "html")

    @router.get("/studio/report.json")
    def as_json(asked: Asked) -> Response:
        reports = [needed(studio.store, run_id).model_dump(mode="json") for run_id in asked]
        text = json.dumps(reports[0] if len(reports) == 1 else reports, indent=1)
        return _download(text, "application/json", asked[0], "json")

    @router.get("/studio/run/{run_id}/report")
    def state(run_id: str) -> dict[str, Any]:
        return making(studio.store, run_id)

    @router.post("/studio/run/{run_id}/report")
    def make(run_id: str, request: ReportRequest) -> dict[str, bool]:
        studio.chats.leave(run_id)  # it holds the model that is to be measured
        studio.store.report(run_id, request)
        return DONE

    @router.post("/studio/run/{run_id}/report/stop")
    def stop(run_id: str) -> dict[str, bool]:
        studio.store.stop_report(run_id)
        return DONE

    @router.post("/studio/run/{run_id}/report/checks")
    def count(run_id: str) -> dict[str, bool]:
        """Counts today's checks in the report's answers."""
        recount(studio.store, run_id)
        return DONE

    @router.post("/studio/report-choices")
    def choose(choices: Annotated[ReportChoices, Body()]) -> dict[str, bool]:
        write_choices(studio.locations, choices)
        return DONE

    return router


def _download(text: str, kind: str, run_id: str, suffix: str) -> Response:
    named = f'attachment; filename="{run_id}-report.{suffix}"'
    return Response(text, media_type=kind, headers={"Content-Disposition": named, "Cache-Control": "no-store"})
