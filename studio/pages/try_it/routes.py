"""The try page's JSON: what stands of a run's chat, its questions and answers, held-out rows, and checks of answers.

A child process answers; while the run trains, the run itself.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body
from fastapi.responses import StreamingResponse
from pydantic import StringConstraints

from core.chat.client import checkpoint_folder
from core.contract.errors import Fault, RunError
from core.data.render.chat_tokens import check_characters
from core.machine.cards import held_by
from core.report.checks import judged
from core.report.choices import Check, read_choices
from core.report.schema import Answers, AnswersPart
from core.runs.control.gpu_lease import TRY, spare_first
from core.runs.control.queue import card_wanted
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from studio.figures.held_out import HeldOut
from studio.figures.queueing import held
from studio.figures.run_figures import UNKNOWN
from studio.pages.try_it.words import say
from studio.services.chats import CheckpointName, Question
from studio.services.services import Studio
from studio.words.faults import in_one

SAMPLE_SECONDS = 180.0
_ENDED = frozenset({"finished", "stopped", "failed", "lost", "paused"})
_Text = Annotated[str, StringConstraints(max_length=1_000_000)]


def routes(studio: Studio, held_out: HeldOut) -> APIRouter:
    """``/studio/ask``, ``/studio/load`` and ``/studio/run/ID/`` ``chat``, ``held-out`` and ``checks``."""
    router = APIRouter(prefix="/studio")
    store = studio.store

    @router.get("/run/{run_id}/chat")
    def chat(run_id: str) -> dict[str, Any]:
        return {**standing(studio, store.open(run_id)), "checks": len(_checks(studio, store.open(run_id)))}

    @router.get("/run/{run_id}/held-out")
    def row(run_id: str, at: int = 0) -> dict[str, Any]:
        folder = store.open(run_id)
        return held_out.row(folder.path, folder.config(), store.record(run_id).plan, at)

    @router.post("/run/{run_id}/checks")
    def checks(
        run_id: str, reference: Annotated[_Text, Body()], answers: Annotated[list[_Text], Body(max_length=5)]
    ) -> list[list[dict[str, Any]]]:
        rows = (Answers(row=at, prompt="", reference=reference, after=text) for at, text in enumerate(answers))
        part = judged(AnswersPart(rows=tuple(rows)), _checks(studio, store.open(run_id)))
        return [[{"name": one.check, "ok": one.after, "why": one.why} for one in row.verdicts] for row in part.rows]

    @router.post("/load")
    def load(run: Annotated[str, Body()], checkpoint: Annotated[CheckpointName, Body()] = "best") -> StreamingResponse:
        folder = store.open(run)
        there = studio.chats.load(folder, checkpoint) if may_load(studio, folder, checkpoint) else iter(())
        return StreamingResponse(_lines(there), media_type="application/x-ndjson")

    @router.post("/ask")
    def ask(question: Question) -> StreamingResponse:
        folder = store.open(question.run)
        if store.record(question.run).state == "training":
            answers = sampled(store, question)
        else:
            answers = studio.chats.ask(folder, question.after(folder.config().data.system_prompt))
        return StreamingResponse(_lines(answers), media_type="application/x-ndjson")

    return router


def standing(studio: Studio, folder: JobFolder) -> dict[str, Any]:
    """What a conversation with a run needs to know: its system prompt, its base model, and whether the card is taken
    by its own training or by another run's."""
    config, cards = folder.config(), spare_first(studio.machine(), studio.locations, TRY).cards
    device = say("try.gpu" if cards.ids else "try.cpu")
    holder, _ = held(studio.store, cards, time.time())
    other = holder if holder and holder["id"] not in ("", folder.name) else None
    told = ""
    if other:
        key = "try.held" if other["ends"] == UNKNOWN else "try.held.until"
        told = say(key, title=other["title"], device=device, time=other["ends"])
    return {
        "system": config.data.system_prompt,
        "base": config.model.model_dump_json(),
        "device": device,
        "held": told,
        "holder": other["id"] if other else "",
        "streamed": say("try.streamed") if config.model.streamed_layers > 0 else "",
    }


def may_load(studio: Studio, folder: JobFolder, checkpoint: str) -> bool:
    """Whether a model may be loaded before it is asked: it is there, and nobody else has the card or waits for it."""
    cards, locations = spare_first(studio.machine(), studio.locations, TRY).cards, studio.locations
    try:
        trained = checkpoint_folder(folder, checkpoint) / folder.config().learns.folder
    except Fault:
        return False
    taken = held_by(locations, cards) not in (None, TRY) or card_wanted(locations, cards)
    return not taken and any(trained.glob("*config.json"))


def _checks(studio: Studio, folder: JobFolder) -> tuple[Check, ...]:
    """The report's checks that a person defined for this run's data."""
    return read_choices(studio.locations).checks_for(Path(folder.config().data.path).name)


def _lines(answers: Iterator[dict[str, Any]]) -> Iterator[str]:
    """JSON lines; a fault in mid-answer is the last line, since the status is already sent."""
    try:
        for answer in answers:
            yield json.dumps(answer) + "\n"
    except Fault as error:
        yield json.dumps({"fault": in_one(error)}) + "\n"


def sampled(store: RunStore, question: Question) -> Iterator[dict[str, Any]]:
    """Asks the training run, which answers between two steps. Ends when both sides are done.

    Raises:
        DataError: the question is longer than any row that the run trains on.
        RunError: it was not answered, or two texts are asked about, of which a command tells one.
    """
    if question.second or question.messages[-1].role == "assistant":
        raise RunError("talk.two")
    check_characters(question.messages[-1:], store.open(question.run).config().train.max_length)
    prompt = question.messages[-1].content
    command = store.sample(question.run, prompt, question.max_new_tokens)
    yield {"note": say("try.sampling")}
    told: dict[str, tuple[str, bool]] = {}
    deadline = time.monotonic() + SAMPLE_SECONDS
    while time.monotonic() < deadline:
        record = store.record(question.run)
        mine = (item for item in record.samples if item.command_id == command)
        answers: dict[str, tuple[str, bool]] = {item.side: (item.text, item.done) for item in mine}
        for side, (text, done) in answers.items():
            if side in question.sides and told.get(side) != (text, done):
                yield {"side": side, "text": text, "done": done}
        told = answers
        if len(told) == 2 and all(done for _, done in told.values()):
            return
        if record.state in _ENDED:
            break
        time.sleep(0.3)
    raise RunError("talk.unanswered")
