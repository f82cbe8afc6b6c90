"""Other sources of rows, folded in the Data block: files mixed by weight, or a data set of the hub.

Both become one made data set, which is then chosen like a file. ``pages/new_run/panels.js`` sends all fields of these
forms with every button, so that nothing typed is lost.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import gradio as gr

from core.contract.config import DataChoice, Layout
from core.contract.errors import DataError
from studio.pages.new_run.data.upload import ENDINGS
from studio.pages.new_run.form import Form
from studio.pages.new_run.words import say
from studio.shell.markup import Markup, icon, join, push, tag

MOST_PARTS = 8
DEFAULT_ROWS = 20_000
MOST_ROWS = 10_000_000


@dataclass(frozen=True)
class Part:
    """One file of a mixture, and how often its rows are seen.

    ``rows``: how many of them can be used; 0 where that is not known yet.
    """

    file: DataChoice
    weight: float = 1.0
    rows: int = 0


# ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def layout(form: Form) -> None:
    """The folded part, with empty forms."""
    with (
        gr.Accordion(say("sources.title"), open=False, elem_classes="folded sources", elem_id="more-sources"),
        gr.Row(elem_classes="source-forms", equal_height=False),
    ):
        form.board("mix-form", mix_view(()))
        form.board("hub-form", hub_view())
    form.board("source-outcome")  # unfolded: the doctor's fixes answer here too


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def mix_view(parts: Sequence[Part]) -> Markup:
    """The mixture so far: its files with layout and weight, a way to add one, and the button that makes it."""
    head = join(tag("h3", say("mix.title")), tag("p", say("mix.about"), class_="hint"))
    lines = tag("ol", *(_part(part, index, parts) for index, part in enumerate(parts)), class_="mix-parts")
    chosen = tag("input", type="file", id="mix-file", accept=",".join(ENDINGS), class_="sr-only")
    add = tag("label", chosen, icon("upload"), tag("span", say("mix.add")), class_="quiet-push", for_="mix-file")
    make = push(say("mix.make"), "source", {"mix": "make"}, disabled=len(parts) < 2)
    busy = {"data-busy": say("data.uploading"), "data-failed": say("data.upload_failed")}
    line = tag("p", class_="drop-line", role="status")
    buttons = (add if len(parts) < MOST_PARTS else None, make if parts else None)
    foot = tag("div", *buttons, line, class_="mix-foot", **busy)
    return tag("div", head, lines if parts else None, foot, data_form="mix", class_="source-form")


def hub_view() -> Markup:
    """The form of a hub data set."""
    head = join(tag("h3", say("hub.title")), tag("p", say("hub.about"), class_="hint"))
    fields = (
        _field("name", "text", "", placeholder=say("hub.name.example"), class_="wide"),
        _field("subset", "text", "", placeholder=say("hub.subset.example")),
        _field("split", "text", "train"),
        _field("rows", "number", str(DEFAULT_ROWS), min="1", max=str(MOST_ROWS)),
    )
    fetch = push(say("hub.fetch"), "source", {"hub": "fetch"})
    return tag("div", head, tag("div", *fields, class_="hub-fields"), tag("div", fetch, class_="mix-foot"),
               data_form="hub", class_="source-form")  # fmt: skip


def working_view(words: str, done: int, total: int, kind: str) -> Markup:
    """The progress of long work, with the button that stops it."""
    share = None if not total else f"{min(1.0, done / total):.3f}"
    bar = tag("progress", max="1", value=share, aria_label=words)
    stop = push(say("work.cancel"), "stop", {"kind": kind})
    return tag("div", tag("p", words, role="status"), bar, stop, class_="working")


def _part(part: Part, index: int, parts: Sequence[Part]) -> Markup:
    whole = sum(other.weight * other.rows for other in parts)
    known = whole and all(other.rows for other in parts)
    name = Path(part.file.path).name
    options = (
        tag("option", say(f"choice.data.layout.{key}"), value=key, selected=key == part.file.layout)
        for key in get_args(Layout)
    )
    kept = join(
        tag("input", type="hidden", name_=f"path.{index}", value=part.file.path),
        tag("input", type="hidden", name_=f"columns.{index}", value=json.dumps(part.file.columns)),
    )
    layout = tag("select", *options, name_=f"layout.{index}", aria_label=say("mix.layout", name=name))
    weight = tag("input", type="number", name_=f"weight.{index}", value=f"{part.weight:g}", min="0", step="any",
                 aria_label=say("mix.weight", name=name))  # fmt: skip
    share = tag("span", f"{100 * part.weight * part.rows / whole:.0f}%" if known else "", class_="share")
    named = say("mix.remove.name", name=name)
    remove = push(say("mix.remove"), "mix", {"mix": "remove", "index": index}, aria_label=named)
    return tag("li", kept, tag("b", name), layout, tag("span", "×", aria_hidden="true"), weight, share, remove,
               data_rows=part.rows)  # fmt: skip


def _field(name: str, kind: str, value: str, **options: object) -> Markup:
    field = tag("input", type=kind, name_=name, value=value, spellcheck="false", autocomplete="off", **options)
    return tag("label", tag("span", say(f"hub.{name}")), field, class_=options.get("class_"))


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def parts_of(form: dict[str, Any]) -> tuple[Part, ...]:
    """The mixture by its form's fields; an unknown layout becomes automatic.

    Raises:
        DataError: a weight that is no number above 0.
    """
    parts = []
    for index in range(MOST_PARTS):
        if path := str(form.get(f"path.{index}", "")):
            layout, columns = form.get(f"layout.{index}", "auto"), form.get(f"columns.{index}") or "{}"
            try:
                file = DataChoice.model_validate({"path": path, "layout": layout, "columns": json.loads(columns)})
            except (ValueError, TypeError):
                file = DataChoice(path=path)
            parts.append(Part(file, _weight(form.get(f"weight.{index}", "1"), Path(path).name)))
    return tuple(parts)


def _weight(sent: object, name: str) -> float:
    try:
        weight = float(str(sent).replace(",", "."))
    except ValueError:
        weight = -1.0
    if not 0 < weight <= 1e6:
        raise DataError("mix.weight", name=name, found=str(sent)[:40])
    return weight


def hub_wish(form: dict[str, Any]) -> tuple[str, str, str, int]:
    """The hub's form: name, subset, split and how many rows at most.

    Raises:
        DataError: no name, or rows that are no number.
    """
    name, rows = str(form.get("name", "")).strip(), str(form.get("rows", "")).strip()
    if not name:
        raise DataError("hub.name")
    if not rows.isdecimal() or not 1 <= int(rows) <= MOST_ROWS:
        raise DataError("hub.rows", most=MOST_ROWS, found=rows[:40] or "–")
    return name, str(form.get("subset", "")).strip(), str(form.get("split", "")).strip() or "train", int(rows)
