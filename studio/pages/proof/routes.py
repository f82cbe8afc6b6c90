"""The routes of the proof page: list, start, stop and delete."""

import json
import time

from fastapi import APIRouter, Response

from core.contract.errors import RunError
from core.proof.store import KINDS, Proofs
from studio.pages.proof.view import shown
from studio.services.services import Studio
from studio.shell.json_routes import DONE


def routes(studio: Studio) -> APIRouter:
    """``/studio/proofs`` and below."""
    router = APIRouter(prefix="/studio/proofs")
    kept = Proofs(studio.locations)

    @router.get("")
    def listed() -> Response:
        # Written with escapes: a result may hold what is no text.
        told = json.dumps({"proofs": [shown(proof, time.time()) for proof in kept.all()]})
        return Response(told, media_type="application/json")

    @router.post("/start/{kind}")
    def start(kind: str) -> dict[str, str]:
        for known in KINDS:
            if known == kind:
                return {"id": kept.start(known, studio.machine())}
        raise RunError("proof.kind", kinds=", ".join(KINDS), kind=kind[:40])

    @router.post("/{proof_id}/stop")
    def stop(proof_id: str) -> dict[str, bool]:
        kept.stop(proof_id)
        return DONE

    @router.post("/{proof_id}/delete")
    def delete(proof_id: str) -> dict[str, bool]:
        kept.delete(proof_id)
        return DONE

    return router
