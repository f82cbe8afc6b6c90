"""The take-home page's JSON: runs and what is kept of one (both for Try, too), and exports begun and stopped."""

from typing import Any

from fastapi import APIRouter

from core.runs.folder.job_folder import ExportRequest
from core.runs.folder.notes import named_config
from studio.figures.held_out import HeldOut
from studio.figures.history_rows import row
from studio.figures.run_names import Names
from studio.pages.take_home.sending import sending
from studio.pages.take_home.view import export_names, keep
from studio.services.services import Studio
from studio.shell.json_routes import DONE


def routes(studio: Studio, held_out: HeldOut) -> APIRouter:
    """``/studio/runs``, ``/studio/run/ID/keep`` and ``/studio/run/ID/export``."""
    router = APIRouter(prefix="/studio")
    store = studio.store

    @router.get("/runs")
    def runs() -> dict[str, Any]:
        """The runs that have a checkpoint, and the number of all runs."""
        known = store.list()
        names = Names(known)
        return {"runs": [row(run, names) for run in known if run.kept], "all": len(known)}

    @router.get("/run/{run_id}/keep")
    def kept(run_id: str) -> dict[str, Any]:
        folder, record = store.open(run_id), store.record(run_id)
        config = named_config(folder)
        exports = [(name, store.export_record(run_id, name)) for name in export_names(folder)]
        rows = held_out.count(folder.path, config, record.plan)
        return {**keep(folder, record, config, exports), **rows, "command": studio.locations.command("export", run_id)}

    @router.post("/run/{run_id}/export")
    def export(run_id: str, request: ExportRequest) -> dict[str, str]:
        studio.chats.leave()
        return {"name": store.export(run_id, request)}

    @router.post("/run/{run_id}/export/{name}/stop")
    def stop_export(run_id: str, name: str) -> dict[str, bool]:
        store.stop_export(run_id, name)
        return DONE

    router.include_router(sending(studio))
    return router
