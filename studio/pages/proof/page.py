"""The proof page: the fast core tested on this machine, on request. Filled by ``assets/js/pages/proof.js``."""

import json
import time

from fastapi import APIRouter, Response

from core.contract.errors import RunError
from core.proof.store import KINDS, Proofs, multiplied
from studio.pages.proof.view import shown
from studio.pages.proof.words import say
from studio.services.services import Studio
from studio.shell.json_routes import DONE
from studio.shell.markup import Markup, tag
from studio.shell.slots import button, fault_line, live, slot


def page(studio: Studio) -> Markup:
    """Kinds of proof to start, the running one, and earlier results."""
    machine = studio.machine()
    on = say("proof.on.card", card=machine.gpu.name) if machine.gpu else say("proof.on.cpu")
    head = tag("header", tag("h1", say("proof.title")), tag("p", say("proof.about"), class_="about"), tag("p", on))
    offers = []
    for kind in KINDS:  # what it proves, its button, and its progress
        name, about = say(f"proof.{kind}"), tag("p", say(f"proof.{kind}.about"), class_="about")
        bar = tag("progress", max="1", data_bar=kind, aria_label=say("proof.progress", what=name))
        stop = button(say("proof.stop"), "quiet", data_stop=kind, aria_label=f"{say('proof.stop')}: {name}")
        work = tag("div", tag("p", data_text=kind), bar, stop, data_work=kind, class_="proof-work", hidden=True)
        start = button(say(f"proof.{kind}.start"), data_start=kind)
        if kind == "eight" and not multiplied(machine):
            offers.append(tag("section", tag("h2", name), about, tag("p", say("proof.eight.cpu")), class_="card offer"))
            continue
        offers.append(tag("section", tag("h2", name), about, start, work, class_="card offer"))
    title = tag("h2", say("proof.results"))
    none = slot("none", "p", say("proof.none"), class_="about")
    words = say.under("proof")
    said = slot("said", "p", role="status", class_="sr-only")
    offered, results = tag("div", *offers, class_="offers"), slot("results", "ul", class_="proofs")
    return live("proof", words, head, fault_line(), offered, said, title, none, results)


def routes(studio: Studio) -> APIRouter:
    """``/studio/proofs`` and below."""
    router = APIRouter(prefix="/studio/proofs")
    kept = Proofs(studio.locations)

    @router.get("")
    def listed() -> Response:
        # ASCII with escapes: a result may contain lone surrogates.
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
