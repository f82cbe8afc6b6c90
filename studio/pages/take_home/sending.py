"""An export sent to the hub from the page: begun, looked at, stopped. The token stays in the thread that sends."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, SecretStr, StringConstraints

from core.models.hub.publish import publish
from core.runs.control.exported import may_leave
from studio.services.long_work import LongWork, Work
from studio.services.services import Studio
from studio.shell.json_routes import DONE
from studio.words.faults import told

_KIND = "publish"


class Sending(BaseModel):
    """Where an export is to be sent; ``token``: empty for the person's own login."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    to: Annotated[str, StringConstraints(strip_whitespace=True, min_length=3, max_length=200)]
    private: bool = True
    token: SecretStr = SecretStr("")


def sending(studio: Studio) -> APIRouter:
    """``/studio/run/ID/export/NAME/publish``: POST begins, GET looks, ``…/publish/stop`` stops."""
    router, works = APIRouter(prefix="/run/{run_id}/export/{name}/publish"), LongWork()

    @router.post("")
    def begin(run_id: str, name: str, asked: Sending) -> dict[str, bool]:
        folder, token = may_leave(studio.store, run_id, name), asked.token.get_secret_value()

        def send(work: Work) -> dict[str, Any]:
            page = publish(folder, asked.to, work.tell, work.stopped, token, asked.private)
            return {"page": page, "private": asked.private}

        works.start((_KIND, (run_id, name)), send)
        return DONE

    @router.get("")
    def look(run_id: str, name: str) -> dict[str, Any]:
        """``login``: whether no token has to be asked for; ``share``: of the work done, 0 to 1; ``page``: its address
        once it is sent; ``fault``: why it ended otherwise."""
        from huggingface_hub import get_token

        work = works.of((_KIND, (run_id, name)))
        if work is None:
            return {"login": bool(get_token()), "going": False, "share": 0.0, "page": "", "fault": None}
        done, total = work.progress or (0, 1)
        return {
            "login": bool(get_token()),
            "going": not work.ended.is_set(),
            "share": done / max(1, total),
            "page": "",
            "fault": told(work.fault) if work.fault else None,
            **(work.result or {}),
        }

    @router.post("/stop")
    def stop(run_id: str, name: str) -> dict[str, bool]:
        if work := works.of((_KIND, (run_id, name))):
            work.stop_asked.set()
        return DONE

    return router
