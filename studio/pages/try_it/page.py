"""The try page: one question to the original and to the finetuned model. Filled by ``assets/js/pages/try_it.js``.

A child process answers; while the run trains, the run itself.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from core.contract.errors import Fault, RunError
from core.data.render.chat_tokens import check_characters
from core.runs.control.store import RunStore
from studio.figures.held_out import HeldOut
from studio.pages.try_it.words import say
from studio.services.chats import Question
from studio.services.services import Studio
from studio.shell.markup import Markup, tag
from studio.shell.slots import answer_settings, button, fault_line, live, none_yet, run_choice, slot, verdict
from studio.words.faults import in_one


def page(_: Studio) -> Markup:
    """The skeleton; answers are added by the script."""
    words = {
        "base": say("try.base"),
        "tuned": say("try.tuned"),
        "right": say("try.right"),
        "right_label": say("try.right.label"),
        "title": say("try.title"),
        "title_scores": say("try.title.scores"),
        "waiting": say("try.waiting"),
        "nothing": say("try.nothing"),
        "no_answer": say("try.no_answer"),
        "about": say("try.about"),
        "ask": say("try.send"),
        "ask_scores": say("try.send.scores"),
        "chosen": say("try.chosen"),
        "rejected": say("try.rejected"),
        "living": say("try.living"),
        "living_scores": say("try.living.scores"),
        "living_two": say("try.living.two"),
        "unsaved": say("run.unsaved"),
        "unsaved_do": say("run.unsaved.do"),
    }
    head = tag("header", slot("title", "h1", say("try.title")), slot("about", "p", say("try.about"), class_="about"))
    answers = slot("answers", "div", class_="exchanges", aria_live="polite")
    some = slot("some", "div", _form(), fault_line(), answers, hidden=True)
    return live("try_it", words, head, none_yet(), some)


def _form() -> Markup:
    busy = slot("busy-card", "p", class_="hint", hidden=True)
    named = slot("prompt-name", "span", say("try.prompt"))
    prompt = tag("label", named, slot("prompt", "textarea", rows="4", name_="prompt"))
    other = (slot("second-name", "span"), slot("second", "textarea", rows="3", name_="second"))
    second = slot("second-box", "label", *other, hidden=True)
    chosen = slot("row-chosen", "p", class_="hint", hidden=True)
    send = tag("button", say("try.send"), type="submit", class_="push primary", data_f="send")
    keys = tag("span", say("try.send.keys"), class_="hint")
    cancel = button(say("try.cancel"), data_f="cancel", hidden=True)
    actions = tag("div", send, cancel, keys, class_="actions")
    question = (prompt, second, chosen, _rows(), slot("how", "div", answer_settings()))
    return slot("form", "form", run_choice(), verdict(), busy, *question, actions, class_="card")


def _rows() -> Markup:
    before = button(say("try.row.before"), "quiet", data_f="row-before")
    following = button(say("try.row.next"), "quiet", data_f="row-next")
    return slot("rows", "div", slot("row-words"), before, following, class_="rows", hidden=True)


SAMPLE_SECONDS = 180.0
_ENDED = frozenset({"finished", "stopped", "failed", "lost", "paused"})


def routes(studio: Studio, held_out: HeldOut) -> APIRouter:
    """``/studio/ask`` and ``/studio/run/ID/held-out``."""
    router = APIRouter(prefix="/studio")
    store = studio.store

    @router.get("/run/{run_id}/held-out")
    def row(run_id: str, at: int = 0) -> dict[str, Any]:
        folder = store.open(run_id)
        return held_out.row(folder.path, folder.config(), store.record(run_id).plan, at)

    @router.post("/ask")
    def ask(question: Question) -> StreamingResponse:
        folder = store.open(question.run)
        if store.record(question.run).state == "training":
            answers = sampled(store, question)
        else:
            answers = studio.chats.ask(folder, question.after(folder.config().data.system_prompt))
        return StreamingResponse(_lines(answers), media_type="application/x-ndjson")

    return router


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
