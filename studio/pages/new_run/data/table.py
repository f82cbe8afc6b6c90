"""The table of a file's own rows: its place on the page, what its script is told, and the routes it asks.

``pages/new_run/table.js`` draws it. It is told by a board (``state_view``) which file is chosen and what is known of
it, and asks for windows of rows with exactly that, so that a restarted studio can answer an open page.
"""

import json
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from core.contract.config import RunConfig
from core.contract.data import Checkup
from core.contract.errors import Fault
from core.contract.rows import RowChange, RowWish
from core.runs.control.prepare import tokenizer_folder
from studio.pages.new_run.cache import cache_of
from studio.pages.new_run.data import roles
from studio.pages.new_run.data.preview import keys_view, row_view
from studio.pages.new_run.view import View, path_of
from studio.pages.new_run.words import say
from studio.services.services import Studio
from studio.shell.json_routes import DONE
from studio.shell.markup import Markup, fault, icon, join, tag

_TOLD: Any = {"model": ..., "method": ..., "data": ..., "train": {"max_length", "problem_type", "seed"}}
"""What rows, lengths and findings depend on."""
_STATES = ("", "used", "left_out", "excluded", "edited")
_ORDERS = ("file", "longest", "shortest", "findings")
_LABELS = 200

# ── what stands on the page ──────────────────────────────────────────────────────────────────────────────────────────


def skeleton() -> Markup:
    """The table without rows; a board that is never replaced."""
    told = {
        **say.under("rows"),
        "roles": [["", say("role.none")], *([word, say(f"role.{word}")] for word in roles.WORDS)],
        "joining": roles.JOINED,
    }
    fault_line = tag("p", role="alert", class_="fault-line", data_f="fault", hidden=True)
    only = tag("p", tag("span", data_f="only", role="status"), _button("all"), class_="only", hidden=True)
    grid = tag("div", role="grid", aria_label=say("rows.title"), aria_multiselectable="true", data_f="grid",
               class_="rows-grid")  # fmt: skip
    seen = tag("div", data_f="seen", id="data-preview")
    beside = tag(
        "div", seen, keys_view(), role="region", aria_label=say("preview.title"), tabindex="0", class_="rows-seen"
    )
    parts = (_tools(), only, fault_line, tag("div", grid, beside, class_="rows-both"))
    table = tag("section", *parts, id="data-table", data_words=json.dumps(told), aria_label=say("rows.title"))
    return join(table, tag("dialog", id="data-whole", aria_label=say("rows.title"), class_="rows-whole"))


def _tools() -> Markup:
    find = tag("input", type="search", data_wish_field="search", placeholder=say("rows.search.example"),
               aria_label=say("rows.search"), maxlength="200", spellcheck="false")  # fmt: skip
    narrow = tag("summary", icon("filter"), tag("span", say("rows.filter")), class_="quiet-push")
    choices = tag("div", *_narrowing(), class_="rows-choices")
    details = tag("details", narrow, choices, class_="rows-filter")
    counts = tag("span", role="status", class_="rows-count", data_f="count")
    changes = tag("span", class_="rows-count", data_f="changes", role="status")
    buttons = (changes, *(_button(name) for name in ("undo", "redo", "exclude", "whole")))
    return tag(
        "div", counts, find, details, *buttons, role="toolbar", aria_label=say("rows.tools"), class_="rows-tools"
    )


def _button(name: str) -> Markup:
    """A button of the table's own script; with a picture where it has one."""
    picture = "" if name == "all" else name
    words = say(f"rows.{name}")
    inside = (icon(picture), tag("span", words, class_="sr-only")) if picture else (words,)
    return tag("button", *inside, type="button", class_="quiet-push", data_rows=name, title=words if picture else None)


def _narrowing() -> list[Markup]:
    def choice(name: str, values: tuple[str, ...]) -> Markup:
        options = (tag("option", say(f"rows.{name}.{value or 'all'}"), value=value) for value in values)
        return _labelled(name, tag("select", *options, data_wish_field=name))

    def limit(name: str) -> Markup:
        return tag("input", type="number", min="0", step="1", data_wish_field=name, aria_label=say(f"rows.{name}"),
                   placeholder=say(f"rows.{name}.short"))  # fmt: skip

    lengths = tag("div", tag("span", say("rows.tokens.between")), limit("tokens_from"), limit("tokens_to"))
    known = (choice(name, ("",)) for name in ("finding", "language", "label"))  # filled in as they become known
    return [choice("state", _STATES), *known, lengths, choice("order", _ORDERS)]


def _labelled(name: str, field: Markup) -> Markup:
    return tag("label", tag("span", say(f"rows.{name}")), field)


def title_of(code: str) -> str:
    """A finding's short name."""
    return say.get(f"finding.{code}") or code.replace("_", " ")


def wish(words: str, narrowed: dict[str, str], **options: str) -> Markup:
    """A button elsewhere in the block that shows only some rows."""
    return tag(
        "button",
        words,
        type="button",
        class_="quiet-push",
        data_wish=json.dumps(narrowed),
        data_panel="rows",
        **options,
    )


def state_view(view: View) -> Markup:
    """What the script is told: which rows, what their columns are, and what can be asked for; nothing where there are
    no rows to show. ``file``: the untouched one, where a made one with a person's changes is trained on."""
    if view.report is None and view.guess is None:
        # Until the file is known what stands there stays, so that nothing moves.
        known = view.data_fault is not None or not view.config.data.path
        return tag("div", data_state="", hidden=True) if known else Markup()
    checkup = view.checkup if isinstance(view.checkup, Checkup) else None
    labels = view.report.labels.counts if view.report and view.report.labels else {}
    state = {
        "config": view.config.model_dump(mode="json", include=_TOLD, exclude_defaults=True),
        "file": view.source or view.config.data.path,
        "counted": view.facts is not None,
        "words": roles.shown_words(view),
        "findings": [[one.code, title_of(one.code), one.text] for one in checkup.findings if one.rows]
        if checkup
        else [],
        "languages": [*checkup.languages] if checkup and len(checkup.languages) > 1 else [],
        "labels": [*labels][:_LABELS],
    }
    return tag("div", data_state=json.dumps(state), hidden=True)


# ── routes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Asked(BaseModel):
    """Which rows are chosen, as ``state_view`` told it."""

    model_config = ConfigDict(frozen=True)
    config: RunConfig


class _Window(_Asked):
    wish: RowWish = RowWish()


class _Row(_Asked):
    row: int = Field(ge=1)


class _Change(_Asked):
    change: RowChange


def routes(studio: Studio) -> APIRouter:
    """``POST /studio/data/table``, ``row``, ``change``, ``undo``, ``redo`` and ``made``."""
    router = APIRouter(prefix="/studio/data")
    known, service = cache_of(studio), studio.data

    @router.post("/table")
    def table(asked: _Window) -> dict[str, Any]:
        view = known.ready(asked.config)
        data, checkup = view.config.data, view.checkup if isinstance(view.checkup, Checkup) else None
        folder = tokenizer_folder(view.spec) if view.spec is not None else None
        rows = service.table(
            path_of(data), data, asked.wish, tokenizer_folder=folder, method=view.method, checkup=checkup
        )
        return rows.model_dump(mode="json", exclude_defaults=True)

    @router.post("/row")
    def row(asked: _Row) -> dict[str, Any]:
        """All of a row's text, and the row as the model will see it."""
        view = known.ready(asked.config)
        data = view.config.data
        try:
            seen = row_view(known.row(view, asked.row)) if view.readable else Markup()
        except Fault as error:
            seen = fault(error)
        return {"cells": service.row(path_of(data), data, asked.row), "seen": seen}

    @router.post("/change")
    def change(asked: _Change) -> dict[str, bool]:
        service.change(path_of(asked.config.data), asked.change)
        return DONE

    @router.post("/undo")
    def undo(asked: _Asked) -> dict[str, bool]:
        service.undo(path_of(asked.config.data))
        return DONE

    @router.post("/redo")
    def redo(asked: _Asked) -> dict[str, bool]:
        service.redo(path_of(asked.config.data))
        return DONE

    @router.post("/made")
    def made(asked: _Asked) -> dict[str, str]:
        """Makes the data set with all changes, and tells where it is; without any, where the file is."""
        data = asked.config.data
        return {"path": str(service.changed(path_of(data), data).path)}

    return router
