"""The history page: all runs with their commands, the queue, and the comparison of runs.

::

    /history                    queue, filters, rows           assets/js/pages/history.js
    /history?compare=A,B,C      two to five runs compared    assets/js/pages/history/compare.js
"""

from core.contract.methods import METHODS
from studio.figures.history_rows import SPANS
from studio.pages.history.words import say
from studio.services.services import Studio
from studio.shell.markup import Markup, join, tag
from studio.shell.slots import answer_settings, button, dialog, fault_line, live, none_yet, notice, slot, way_back
from studio.words.runs import STATES

GROUPS = ("paused", "finished", "stopped", "failed")
LETTERS = "ABCDE"


def page(_: Studio) -> Markup:
    """The skeleton; rows, queue and comparison are filled in by the scripts."""
    words: dict[str, object] = {**say.under("history")}
    words |= {f"method.{name}": row.title for name, row in METHODS.items()}
    words |= {key: say(f"run.{key}") for key in ("copy", "copied", "not_copied")}
    tried = {key: say(f"try.{key}") for key in ("waiting", "nothing", "no_answer")}
    compared = {**say.under("compare"), **tried, "second.answer": say("try.second.answer"), "chart": say.under("chart")}
    words |= {"queue": say.under("queue"), "compared": compared, "letters": LETTERS}
    sheet = tag("link", rel="stylesheet", href="/studio/assets/history.css")
    back = slot("back", "a", say("compare.back"), href="/history", hidden=True)
    title = slot("title", "h1", say("history.title"))
    head = tag("header", title, back, slot("tell", "div", notice()), class_="page-head")
    said = slot("said", "p", role="status", class_="sr-only")
    full = slot("disk", "p", role="status", class_="fault-line", hidden=True)
    some = slot("some", "div", _queue(), _runs(), hidden=True)
    link = slot("compare-link", "a", class_="push primary", href="/history", hidden=True)
    clear = button(say("history.unpick"), "quiet", data_f="unpick")
    count = slot("picked-count", "p", role="status")
    picked = slot("picked", "div", count, link, clear, class_="picked", hidden=True)
    whole = slot("history", "div", none_yet(), some, picked, class_="history")
    named = tag("p", slot("delete-name", "strong"), " ", slot("delete-size"))
    what = tag("p", say("history.delete.what"))
    delete = tag("button", say("history.delete"), value="delete", class_="push danger")
    answers = tag("div", delete, way_back(say("history.delete.back")), class_="actions")
    asked = dialog("delete-dialog", say("history.delete.title"), named, what, answers)
    return live("history", words, sheet, head, fault_line(), full, said, whole, _compare(), asked)


def _queue() -> Markup:
    title = tag("h2", say("queue.title"), id="queue-title")
    about = tag("p", say("queue.about"), class_="hint")
    holder = slot("holder", "p", class_="queue-holder")
    waiting = slot("waiting", "ol", class_="queue-list")
    attributes = {"class_": "queue", "aria_labelledby": "queue-title", "hidden": True}
    return slot("queue", "section", tag("div", title, about, class_="queue-head"), holder, waiting, **attributes)


def _runs() -> Markup:
    nothing = tag("p", say("history.nothing"), " ", button(say("history.reset"), "quiet", data_f="reset"))
    more = button("", data_f="more", hidden=True)
    runs = slot("runs", "ul", class_="runs")
    title = tag("h2", say("compare.runs"), class_="sr-only")
    return tag(
        "section", title, _filters(), slot("nothing", "div", nothing, hidden=True), runs, more, class_="run-list"
    )


def _filters() -> Markup:
    field = slot("search", "input", type="search", placeholder=say("history.search.hint"))
    search = tag("label", tag("span", say("history.search")), field, class_="filter-search")
    named = [("", say("history.filter.all")), ("living", say("history.filter.living"))]
    named += [(group, STATES[group][0]) for group in GROUPS]
    spans = [("", say("history.span.any")), *((span, say(f"history.span.{span}")) for span in SPANS)]
    anything = [("", say("history.filter.all"))]
    count = slot("count", "p", role="status", class_="hint")
    choices = (
        _choice("filter", "history.filter", named),
        _choice("model", "history.model", anything),
        _choice("method", "history.method", anything),
        _choice("span", "history.span_label", spans),
    )
    return tag("div", search, *choices, count, class_="choices filters")


def _choice(name: str, label: str, options: list[tuple[str, str]]) -> Markup:
    made = (tag("option", words, value=value) for value, words in options)
    return tag("label", tag("span", say(label)), slot(name, "select", *made))


def _compare() -> Markup:
    runs = slot("compared", "ul", class_="compared")
    reports = tag("p", slot("reports", "a", say("compare.reports"), href="/report", class_="push"))
    apart = slot("apart", "p", class_="apart", hidden=True)
    charts = join(tag("h2", say("chart.charts"), class_="sr-only"), slot("compare-charts", "div", class_="charts"))
    figures = _table("compare.figures", "finals", "compare.figure")
    settings = _table("compare.settings", "differing", "compare.setting")
    same = slot("same", "p", class_="hint")
    return slot(
        "compare", "div", runs, reports, apart, charts, figures, settings, same, _ask(), class_="compare", hidden=True
    )


def _table(title: str, name: str, first: str) -> Markup:
    heading = tag("h2", say(title), id=f"{name}-title")
    head = tag("thead", slot(f"{name}-head", "tr", tag("th", say(first), scope="col")))
    table = tag("table", head, slot(name, "tbody"), aria_labelledby=f"{name}-title")
    scroll = tag("div", table, class_="scroll", tabindex="0", role="region", aria_labelledby=f"{name}-title")
    return tag("section", heading, scroll, class_="compare-table")


def _ask() -> Markup:
    title = tag("h2", say("compare.ask"))
    about = tag("p", say("compare.ask.about"), class_="hint")
    prompt = tag("label", tag("span", say("try.prompt")), slot("prompt", "textarea", rows="3", name_="prompt"))
    other = (slot("second-name", "span"), slot("second", "textarea", rows="3", name_="second"))
    second = slot("second-box", "label", *other, hidden=True)
    send = tag("button", say("compare.send"), type="submit", class_="push primary", data_f="send")
    cancel = button(say("try.cancel"), data_f="cancel", hidden=True)
    keys = tag("span", say("try.send.keys"), class_="hint")
    actions = tag("div", send, cancel, keys, class_="actions")
    form = slot("ask", "form", title, about, prompt, second, answer_settings(), actions, class_="card")
    return tag("section", form, slot("answers", "div", class_="exchanges", aria_live="polite"), class_="compare-ask")
