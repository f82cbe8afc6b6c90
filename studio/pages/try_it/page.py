"""The try page: a conversation with the finetuned model, beside the original and other checkpoints; or texts for a
model that gives scores. Filled by ``assets/js/pages/try_it.js``.

::

    choice of run, columns, blind test, settings
    the conversation, or the scores        assets/js/pages/try_it/   chat.js, turn.js, columns.js, scores.js, kept.js
    what is asked next, at the foot
"""

from studio.pages.try_it.words import say
from studio.services.services import Studio
from studio.shell.assets import asset
from studio.shell.markup import Markup, tag
from studio.shell.slots import answer_settings, button, fault_line, live, none_yet, run_choice, slot, verdict


def page(_: Studio) -> Markup:
    """The skeleton; answers are added by the scripts."""
    words: dict[str, object] = {**say.under("try")}
    words |= {"unsaved": say("run.unsaved"), "unsaved_do": say("run.unsaved.do")}
    sheet = tag("link", rel="stylesheet", href=asset("try.css"))
    kept = tag("span", say("try.kept"), class_="hint")
    over = slot("over-box", "div", kept, button(say("try.over"), "quiet", data_f="over"), class_="actions", hidden=True)
    title = tag("div", tag("h1", say("try.title")), slot("about", "p", say("try.about"), class_="about"))
    head = tag("header", title, over, class_="try-head")
    empty = slot("empty", "div", slot("empty-words", "p"), slot("suggested", "ul", class_="suggested"), hidden=True)
    answers = slot("answers", "div", class_="exchanges")
    said = slot("said", "p", role="status", class_="sr-only")
    heading = tag("h2", say("try.talk"), class_="sr-only")
    talk = tag("div", heading, empty, answers, class_="talk")
    all_ = (_choices(), verdict(), _taken(), talk, fault_line(), _form(), said)
    return live("try_it", words, sheet, head, none_yet(), slot("some", "div", *all_, class_="try", hidden=True))


def _choices() -> Markup:
    """What answers, and how."""
    columns = slot("columns", "ul", class_="columns", aria_label=say("try.columns"))
    box = tag("label", slot("blind", "input", type="checkbox"), tag("span", say("try.blind")), class_="switch")
    blind = tag("div", box, slot("blind-about", class_="hint"), class_="blind")
    tally = tag("p", slot("tally-words"), button(say("try.tally.clear"), "quiet", data_f="tally-clear"), class_="tally")
    row = slot("chat-row", "div", columns, _compare(), blind, class_="chat-row")
    system = slot("system", "textarea", rows="2", name_="system")
    asked = tag("label", tag("span", say("try.system")), system, tag("small", say("try.system.hint"), class_="hint"))
    settings = slot("how", "div", answer_settings(asked))
    kept = slot("tally", "div", tally, role="status", hidden=True)
    return tag("div", run_choice(), row, kept, settings, class_="card")


def _compare() -> Markup:
    run = tag("label", tag("span", say("try.compare.run")), slot("other-run", "select", name_="other-run"))
    step = tag(
        "label", tag("span", say("try.checkpoint")), slot("other-checkpoint", "select", name_="other-checkpoint")
    )
    add = button(say("try.compare.add"), data_f="other-add", disabled=True)  # until its checkpoints are known
    base = button(say("try.compare.base"), data_f="other-base")
    why = slot("other-why", "p", class_="hint", role="status")
    fold = tag("div", run, step, tag("div", add, base, class_="actions"), why, class_="compare-fold")
    return slot("compare", "details", tag("summary", say("try.compare")), fold, class_="compare-with")


def _taken() -> Markup:
    """Where the card is busy, with this run or with another; and where layers stream, so that answers are slow."""
    ask = slot("held-ask", "a", say("try.held.ask"), href="/try", class_="push")
    held = slot("held", "div", slot("held-words", "p"), ask, class_="taken", hidden=True)
    slow = slot("streamed", "p", class_="hint", hidden=True)
    return tag("div", slot("busy-card", "p", class_="taken", hidden=True), held, slow, role="status")


def _loading() -> Markup:
    bar = tag("progress", max="1", value="0", aria_label=say("try.loading.said"), data_f="loading-bar")
    cancel = button(say("try.loading.cancel"), "quiet", data_f="loading-cancel")
    return slot("loading", "div", slot("loading-words"), bar, cancel, class_="loading", hidden=True)


def _form() -> Markup:
    named = slot("prompt-name", "span", say("try.ask"))
    prompt = tag("label", named, slot("prompt", "textarea", rows="2", name_="prompt"))
    other = (slot("second-name", "span"), slot("second", "textarea", rows="3", name_="second"))
    second = slot("second-box", "label", *other, hidden=True)
    chosen = slot("row-chosen", "p", class_="hint", hidden=True)
    send = tag("button", say("try.send"), type="submit", class_="push primary", data_f="send")
    cancel = button(say("try.cancel"), data_f="cancel", hidden=True)
    keys = tag("span", say("try.send.keys"), class_="hint keys")
    actions = tag("div", _rows(), keys, cancel, send, class_="actions")
    return slot("form", "form", _loading(), chosen, prompt, second, actions, class_="card composer")


def _rows() -> Markup:
    before = button(say("try.row.before"), "quiet", data_f="row-before")
    following = button(say("try.row.next"), "quiet", data_f="row-next")
    return slot("rows", "div", following, before, slot("row-words", class_="hint"), class_="rows", hidden=True)
