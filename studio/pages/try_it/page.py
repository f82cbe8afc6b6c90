"""The try page: one question to the original and to the finetuned model. Filled by ``assets/js/pages/try_it.js``."""

from studio.pages.try_it.words import say
from studio.services.services import Studio
from studio.shell.markup import Markup, tag
from studio.shell.slots import answer_settings, button, live, none_yet, run_choice, slot, verdict

# ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def page(_: Studio) -> Markup:
    """The skeleton; answers are added by the script."""
    words = {
        "base": say("try.base"),
        "tuned": say("try.tuned"),
        "right": say("try.right"),
        "waiting": say("try.waiting"),
        "nothing": say("try.nothing"),
        "none": say("try.no_answer"),
        "living": say("try.living"),
        "unsaved": say("run.unsaved"),
        "unsaved_do": say("run.unsaved.do"),
    }
    head = tag("header", tag("h1", say("try.title")), tag("p", say("try.about"), class_="about"))
    fault = slot("fault", "p", role="alert", class_="fault-line", hidden=True)
    answers = slot("answers", "div", class_="exchanges", aria_live="polite")
    some = slot("some", "div", _form(), fault, answers, hidden=True)
    return live("try_it", words, head, none_yet(), some)


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _form() -> Markup:
    busy = slot("busy-card", "p", class_="hint", hidden=True)
    prompt = tag("label", tag("span", say("try.prompt")), slot("prompt", "textarea", rows="4", name_="prompt"))
    chosen = slot("row-chosen", "p", class_="hint", hidden=True)
    send = tag("button", say("try.send"), type="submit", class_="push primary", data_f="send")
    keys = tag("span", say("try.send.keys"), class_="hint")
    cancel = button(say("try.cancel"), data_f="cancel", hidden=True)
    actions = tag("div", send, cancel, keys, class_="actions")
    question = (prompt, chosen, _rows(), answer_settings())
    return slot("form", "form", run_choice(), verdict(), busy, *question, actions, class_="card")


def _rows() -> Markup:
    before = button(say("try.row.before"), "quiet", data_f="row-before")
    following = button(say("try.row.next"), "quiet", data_f="row-next")
    return slot("rows", "div", slot("row-words"), before, following, class_="rows", hidden=True)
