"""The history page: all runs with their commands, the queue, and the comparison of runs.

::

    /history                    queue, filters, rows           assets/js/pages/history.js
    /history?compare=A,B,C      two to five runs compared    assets/js/pages/history/compare.js
"""

from core.contract.methods import METHODS
from studio.figures.history_rows import SORTS, SPANS
from studio.pages.history.view import LETTERS
from studio.pages.history.words import say
from studio.services.services import Studio
from studio.shell.assets import asset
from studio.shell.markup import Markup, join, tag
from studio.shell.slots import answer_settings, button, dialog, fault_line, file_dialog, live, notice, slot, way_back
from studio.words.runs import STATES

GROUPS = ("paused", "finished", "stopped", "failed")
COLUMNS = ("pick", "title", "differs", "model", "curve", "held_out", "took", "when", "size", "tags", "menu")
NEWEST = "when"
BARE = frozenset({"pick", "menu"})
"""Columns whose head is not seen."""


def page(_: Studio) -> Markup:
    """The skeleton; rows, queue and comparison are filled in by the scripts."""
    words: dict[str, object] = {**say.under("history")}
    words |= {f"method.{name}": row.title for name, row in METHODS.items()}
    words |= {key: say(f"run.{key}") for key in ("copy", "copied", "not_copied", "file", "opened.what", "opened.bare")}
    tried = {key: say(f"try.{key}") for key in ("waiting", "nothing", "no_answer")}
    compared = {**say.under("compare"), **tried, "second.answer": say("try.second.answer"), "chart": say.under("chart")}
    words |= {"queue": say.under("queue"), "compared": compared, "letters": LETTERS}
    sheet = tag("link", rel="stylesheet", href=asset("history.css"))
    said = slot("said", "p", role="status", class_="sr-only")
    full = slot("disk", "p", role="status", class_="fault-line", hidden=True)
    some = slot("some", "div", _queue(), _runs(), hidden=True)
    link = slot("compare-link", "a", class_="push primary", href="/history", hidden=True)
    clear = button(say("history.unpick"), "quiet", data_f="unpick")
    count = slot("picked-count", "p", role="status")
    picked = slot("picked", "div", count, link, clear, class_="picked", hidden=True)
    gone = slot("deleted", "ul", class_="deleted", aria_label=say("history.deleted.label"))
    about = tag("div", tag("h2", say("run.none")), tag("p", say("history.none.what")))
    start = tag("div", tag("a", say("run.none.do"), href="/", class_="push primary"), class_="actions")
    none_yet = slot("none", "div", about, start, class_="none-yet", hidden=True)
    whole = slot("history", "div", none_yet, some, picked, gone, class_="history")
    # Asked only where more goes than the run: exports, or what another run goes on from.
    named = tag("p", slot("delete-name", "strong"), " ", slot("delete-size"))
    push = tag("button", say("history.delete"), value="delete", class_="push danger")
    answers = tag("div", push, way_back(say("history.delete.back")), class_="actions")
    delete = dialog("delete-dialog", say("history.delete.title"), named, slot("delete-what", "ul"), answers)
    parts = (fault_line(), full, said, whole, _compare(), delete, file_dialog())
    return live("history", words, sheet, _head(), *parts)


def _head() -> Markup:
    back = slot("back", "a", say("compare.back"), href="/history", hidden=True)
    title = slot("title", "h1", say("history.title"))
    choose = button(say("history.file.open"), data_f="open", title=say("history.file.drop"))
    file = slot("file", "input", type="file", accept=".zip", hidden=True, aria_label=say("history.file.open"))
    tools = slot("tell", "div", choose, file, notice(), class_="head-tools")
    return tag("header", title, back, tools, class_="page-head")


def _queue() -> Markup:
    title = tag("h2", say("queue.title"), id="queue-title")
    about = tag("p", say("queue.about"), class_="hint")
    holders = slot("holders", "div")
    waiting = slot("waiting", "ol", class_="queue-list")
    attributes = {"class_": "queue", "aria_labelledby": "queue-title", "hidden": True}
    return slot("queue", "section", tag("div", title, about, class_="queue-head"), holders, waiting, **attributes)


def _runs() -> Markup:
    nothing = tag("p", say("history.nothing"), " ", button(say("history.reset"), "quiet", data_f="reset"))
    more = button("", data_f="more", hidden=True)
    title = tag("h2", say("compare.runs"), class_="sr-only", id="runs-title")
    head = tag("div", *(_column(name) for name in COLUMNS), role="row", class_="runs-head")
    body = slot("runs", "div", role="rowgroup", class_="runs-body")
    table = slot(
        "table", "div", tag("div", head, role="rowgroup", class_="runs-top"), body, role="table", class_="runs",
        aria_labelledby="runs-title",
    )  # fmt: skip
    return tag(
        "section", title, _filters(), slot("nothing", "div", nothing, hidden=True), table, more, class_="run-list"
    )


def _column(name: str) -> Markup:
    """The head of a column; one that rows are sorted by is a button."""
    words: Markup | str = say(f"history.column.{name}")
    if name not in SORTS:
        shown = tag("span", words, class_="sr-only") if name in BARE else words
        return tag("div", shown, role="columnheader", class_=f"cell-{name}")
    sort = tag("button", words, type="button", data_sort=name)
    way = "descending" if name == NEWEST else "none"
    return tag("div", sort, role="columnheader", aria_sort=way, class_=f"cell-{name}")


def _filters() -> Markup:
    field = slot("search", "input", type="search", placeholder=say("history.search.hint"))
    search = tag("label", tag("span", say("history.search")), field, class_="filter-search")
    named = [("", say("history.filter.all")), ("living", say("history.filter.living"))]
    named += [(group, STATES[group][0]) for group in GROUPS]
    spans = [("", say("history.span.any")), *((span, say(f"history.span.{span}")) for span in SPANS)]
    anything = [("", say("history.filter.all"))]
    sorts = [("", say("history.sort.newest"))]
    sorts += [(name, say(f"history.column.{name}")) for name in SORTS if name != NEWEST]
    count = slot("count", "p", role="status", class_="hint")
    choices = (
        _choice("filter", "history.filter", named),
        _choice("model", "history.model", anything),
        _choice("method", "history.method", anything),
        _choice("tagged", "history.tag", anything),
        _choice("span", "history.span_label", spans),
        _choice("sort", "history.sort", sorts),
    )
    fold = button(say("history.filters"), data_f="filters", aria_expanded="false")
    return tag("div", search, fold, *choices, count, class_="choices filters")


def _choice(name: str, label: str, options: list[tuple[str, str]]) -> Markup:
    made = (tag("option", words, value=value) for value, words in options)
    return tag("label", tag("span", say(label)), slot(name, "select", *made, aria_label=say(label)))


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
