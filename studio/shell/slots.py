"""Skeletons of the live pages: HTML with named slots, which the pages' scripts fill.

A live page is one element with ``data-live`` (its script) and ``data-words`` (its words as JSON; scripts have none); a
slot is an element with ``data-f``.
"""

import json
from typing import Any

from studio.shell.assets import asset
from studio.shell.explained import leads_to
from studio.shell.markup import Markup, join, tag
from studio.words.text import say


def live(name: str, words: dict[str, Any], *children: object) -> Markup:
    """The page's one element; its script is ``assets/js/pages/NAME.js``."""
    asleep = tag("noscript", tag("p", say("run.away")))
    everything = json.dumps({"away": say("run.away"), **words})
    return tag("section", *children, asleep, class_=f"live live-{name}", data_live=name, data_words=everything)


def slot(name: str, element: str = "span", *children: object, **attributes: object) -> Markup:
    """An element that the script finds by ``name``."""
    return tag(element, *children, data_f=name, **attributes)


def button(words: str, kind: str = "", **attributes: object) -> Markup:
    """A button that submits nothing by itself."""
    return tag("button", words, type="button", class_=f"push {kind}".strip(), **attributes)


def fault_line() -> Markup:
    """The page's line for a fault."""
    return slot("fault", "p", role="alert", class_="fault-line", hidden=True)


def none_yet() -> Markup:
    """Shown where there is no run at all."""
    link = tag("a", say("run.none.do"), href="/", class_="push primary")
    return slot("none", "div", tag("p", say("run.none")), link, class_="none-yet", hidden=True)


def run_choice(*more: object) -> Markup:
    """The choice of a run and of one of its checkpoints."""
    run = tag("label", tag("span", say("run.choose")), slot("run", "select", name_="run"))
    checkpoint = tag("label", tag("span", say("try.checkpoint")), slot("checkpoint", "select", name_="checkpoint"))
    return tag("div", run, checkpoint, *more, class_="choices")


def verdict(*more: object) -> Markup:
    """A run's verdict, what to do and which checkpoint is used, filled by ``assets/js/dom.js``; ``more`` leads on, then
    its report. The box itself is never hidden, since a status that comes into being is not announced."""
    lines = (slot("verdict-text", "strong"), slot("verdict-do", "p"), slot("verdict-used", "p"))
    report = tag("a", say("run.report"), href="/report", data_to="/report", class_="push")
    actions = slot("verdict-actions", "span", *more, report, class_="actions", hidden=True)
    return slot("verdict", "div", tag("div", *lines, role="status"), actions, class_="verdict")


def answer_settings(*more: object) -> Markup:
    """How a model is to answer, folded; for Try and the comparison."""
    fields = [
        _number("temperature", "0", min="0", max="2", step="0.1"),
        _number("top_p", "1", min="0.05", max="1", step="0.05"),
        _number("length", "128", min="1", max="4096", step="1"),
        _number("seed", "0", min="0", max="2147483647", step="1"),
        _setting("stop", slot("stop", "textarea", rows="1", name_="stop", spellcheck="false")),
    ]
    why = leads_to("part-watching", say("glossary.choices"))
    fold = tag("div", *more, tag("div", *fields, class_="choices settings"), why)
    return tag("details", tag("summary", say("try.settings")), fold, class_="folded")


def _number(name: str, value: str, **bounds: str) -> Markup:
    return _setting(name, slot(name, "input", type="number", name_=name, value=value, **bounds))


def _setting(name: str, field: Markup) -> Markup:
    return tag("label", tag("span", say(f"try.{name}")), field, tag("small", say(f"try.{name}.hint"), class_="hint"))


def way_back(words: str) -> Markup:
    """The button of a dialog that changes nothing. It has the focus first, so that Enter does no harm."""
    return tag("button", words, value="", class_="push", autofocus=True)


def dialog(name: str, title: str, *children: object, **attributes: object) -> Markup:
    """A question before something that cannot be undone; its buttons' values answer, one is ``way_back``."""
    heading = tag("h2", title, id=f"{name}-title")
    form = tag("form", heading, *children, method="dialog")
    return slot(name, "dialog", form, class_="ask", aria_labelledby=f"{name}-title", **attributes)


def file_dialog() -> Markup:
    """What goes into a run's file, before it is saved (``assets/js/run_file.js``)."""
    box = slot("file-adapter", "input", type="checkbox")
    words = tag("span", tag("b", say("run.file.adapter")), tag("span", say("run.file.adapter.help"), class_="hint"))
    save = tag("button", say("run.file.save"), value="file", class_="push primary")
    answers = tag("div", save, way_back(say("run.file.back")), class_="actions")
    what = (tag("p", slot("file-name", "strong")), tag("p", say("run.file.what")))
    return dialog("file-dialog", say("run.file.title"), *what, tag("label", box, words, class_="check"), answers)


def notice() -> Markup:
    """A button that asks the browser to tell when a run ends, off until it is pressed, and a sound besides
    (``assets/js/notice.js``)."""
    ask = tag("button", say("notice.tell"), type="button", class_="push", data_notice="tell", aria_pressed="false")
    box = tag("label", tag("input", type="checkbox", data_notice="sound"), tag("span", say("notice.sound")))
    about = tag("p", say("notice.about"), " ", tag("a", say("notice.closed"), href="/settings"), class_="hint")
    listed = tag("div", box, about, class_="notice-list")
    more = tag("details", tag("summary", aria_label=say("notice.title")), listed, class_="notice-more")
    fault = tag("p", role="status", class_="hint", data_notice="fault")
    sheet = tag("link", rel="stylesheet", href=asset("notice.css"))
    told = json.dumps(say.under("notice"))
    return join(sheet, tag("div", tag("div", ask, more, class_="notice-ask"), fault, class_="notice", data_told=told))
