"""The history page: every run, searched, filtered, resumed, repeated, deleted. Filled by ``assets/js/history.js``."""

from __future__ import annotations

from studio.house import Studio
from studio.markup import Markup, tag, wording
from studio.slots import dialog, live, none_yet, slot
from studio.text import STATES, say

__all__ = ["page"]

GROUPS = ("paused", "finished", "stopped", "failed")

# ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def page(_: Studio) -> Markup:
    """The skeleton; rows are added by the script."""
    words = wording("history") | {key: say(f"run.{key}") for key in ("copy", "copied", "not_copied")}
    head = tag("header", tag("h1", say("history.title")))
    fault = slot("fault", "p", role="alert", class_="fault-line", hidden=True)
    runs = slot("runs", "ul", class_="runs")
    some = slot("some", "div", _sieve(), runs, hidden=True)
    return live("history", words, head, fault, none_yet(), some, _delete_dialog())


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _sieve() -> Markup:
    field = slot("search", "input", type="search", placeholder=say("history.search.hint"))
    search = tag("label", tag("span", say("history.search")), field)
    named = [("", say("history.filter.all")), ("living", say("history.filter.living"))]
    named += [(group, STATES[group][0]) for group in GROUPS]
    options = (tag("option", words, value=group) for group, words in named)
    state = tag("label", tag("span", say("history.filter")), slot("filter", "select", *options))
    return tag("div", search, state, slot("count", "p", role="status", class_="hint"), class_="choices")


def _delete_dialog() -> Markup:
    name = tag("p", slot("delete-name", "strong"), " ", slot("delete-size"))
    what = tag("p", say("history.delete.what"))
    delete = tag("button", say("history.delete"), value="delete", class_="push danger")
    back = tag("button", say("history.delete.back"), value="", class_="push")
    return dialog("delete-dialog", say("history.delete.title"), name, what, tag("div", delete, back, class_="actions"))
