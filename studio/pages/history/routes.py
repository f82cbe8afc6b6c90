"""The routes of the history: its rows, a run's name and settings, running it again, comparison, queue."""

import hashlib
import json
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from core.runs.control.trash import take_back, waiting
from core.runs.folder.flaws import flaw_of
from core.runs.folder.held_out_rows import kept_draw
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import NAME_LENGTH, NOTE_LENGTH, mark, read_asked, read_opened, rename
from core.runs.folder.run_yaml import command_line, dump_config
from core.runs.record.job_record import effective_config
from studio.figures.history_rows import RowFilter
from studio.figures.points import Window
from studio.figures.proposals import change_for, change_words, trouble_of
from studio.figures.queueing import queue_view
from studio.figures.run_figures import full_disk, run_title
from studio.figures.run_names import titled_config
from studio.pages.history.files import at_home
from studio.pages.history.view import Compared, chosen, comparison
from studio.services.services import Studio
from studio.services.session import Session, reopened
from studio.shell.json_routes import DONE

PAGE = 50
_MOST_ROWS = 5_000


class Marked(BaseModel):
    """What is changed of a run's marks; what is not named stays."""

    model_config = ConfigDict(extra="forbid")
    note: Annotated[str, Field(max_length=2 * NOTE_LENGTH)] = ""
    tags: Annotated[list[Annotated[str, Field(max_length=500)]], Field(max_length=100)] = []
    colour: int = 0
    pinned: bool = False


def routes(studio: Studio) -> APIRouter:
    """The routes of the list, of one run, of the comparison and of the queue."""
    router = APIRouter(prefix="/studio")
    _list_routes(router, studio)
    _run_routes(router, studio)

    @router.get("/queue")
    def queue() -> dict[str, Any]:
        return queue_view(studio.store, studio.machine())

    @router.post("/queue/{run_id}/move")
    def move(run_id: str, place: Annotated[int, Body(embed=True, ge=0, le=100_000)]) -> dict[str, Any]:
        studio.store.move(run_id, place)
        return queue_view(studio.store, studio.machine())

    return router


def _list_routes(router: APIRouter, studio: Studio) -> None:
    """Routes for all runs or several."""
    store = studio.store

    @router.get("/history")
    def history(wanted: Annotated[RowFilter, Depends()], limit: int = PAGE, tag: str = "") -> dict[str, Any]:
        answer = wanted.answer(store.list(), min(max(limit, 1), _MOST_ROWS))
        queue, disk = queue_view(store, studio.machine()), full_disk(studio.locations.home)
        answer |= {"queue": queue, "disk": disk}
        now = hashlib.sha256(json.dumps(answer).encode()).hexdigest()[:16]
        told = {"same": True} if tag == now else answer
        deleted = []  # by the names that they had
        for path, run_id, left in waiting(studio.locations):
            config = None if flaw_of(path) else titled_config(JobFolder(path))
            deleted.append({"id": run_id, "title": run_title(config, run_id), "left": round(left)})
        return {**told, "tag": now, "deleted": deleted}

    @router.get("/compare")
    def compare(runs: str, smooth: float = 0.9, first: int = 0, last: int = 0) -> dict[str, Any]:
        compared = []
        for run_id in chosen(runs):
            folder, record = store.open(run_id), store.record(run_id)
            compared.append(Compared(folder, titled_config(folder), record, kept_draw(folder.path)))
        window = Window(level=min(max(smooth, 0.0), 1.0), first=max(first, 0), last=max(last, 0))
        return comparison(compared, window)


def _run_routes(router: APIRouter, studio: Studio) -> None:
    """Routes for one run."""
    store = studio.store

    @router.get("/run/{run_id}/config")
    def config(run_id: str) -> dict[str, Any]:
        folder, record = store.open(run_id), store.record(run_id)
        asked = folder.config()
        effective = effective_config(asked, record.corrections)
        line = command_line(studio.locations, folder.run_yaml, asked, effective)
        return {
            "yaml": dump_config(effective),
            "command": line,
            "change": change_words(change_for(trouble_of(record), effective)),
        }

    @router.get("/run/{run_id}/yaml")
    def download(run_id: str) -> Response:
        folder, record = store.open(run_id), store.record(run_id)
        text = dump_config(effective_config(folder.config(), record.corrections))
        headers = {"Content-Disposition": f'attachment; filename="{folder.name}.yaml"'}
        return Response(text, media_type="application/yaml; charset=utf-8", headers=headers)

    @router.post("/run/{run_id}/rename")
    def named(run_id: str, name: Annotated[str, Body(embed=True, max_length=10 * NAME_LENGTH)]) -> dict[str, bool]:
        rename(store.open(run_id), name)
        return DONE

    @router.post("/run/{run_id}/delete")
    def delete(run_id: str) -> dict[str, bool]:
        studio.chats.leave(run_id)
        store.delete(run_id, undo=True)
        studio.empty_trash()
        return DONE

    @router.post("/run/{run_id}/restore")
    def restore(run_id: str) -> dict[str, bool]:
        take_back(studio.locations, run_id)
        return DONE

    @router.post("/run/{run_id}/marks")
    def marks(run_id: str, marked: Marked) -> dict[str, Any]:
        return mark(store.open(run_id), marked.model_dump(exclude_unset=True)).model_dump()

    @router.post("/run/{run_id}/rerun")
    @router.post("/run/{run_id}/mend")
    def rerun(run_id: str, request: Request) -> dict[str, str]:
        """Makes the run's settings, as they were asked for, New run's draft; ``mend`` adds the change that is proposed
        after its failure."""
        folder, record = store.open(run_id), store.record(run_id)
        ran, asked = effective_config(folder.config(), record.corrections), read_asked(folder)
        corrected = [correction.key for correction in record.corrections]
        draft = reopened(ran, asked.config if asked else None, corrected)
        if read_opened(folder):
            draft = at_home(draft, studio.locations)
        if request.url.path.endswith("/mend"):
            draft = Session(draft).with_values(change_for(trouble_of(record), ran)).config
        studio.drafts.redraft(draft)
        return {"go": "/"}
