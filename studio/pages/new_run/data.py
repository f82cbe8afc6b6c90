"""Block 1, Data: which rows, how they are read, what of them is learned, and what the model will see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from core.contract.config import DataChoice
from core.contract.data import DataReport, Preview, PreviewRow, Span
from core.contract.errors import StudioError
from core.data.formats import LAYOUT_NAMES, ROLES
from studio.markup import Markup, fault, icon, join, tag
from studio.pages.new_run.desk import ROWS_A_PAGE, View
from studio.pages.new_run.form import ROLES as ROLE_FIELDS
from studio.pages.new_run.form import Form, field_of
from studio.pages.new_run.outline import block_head
from studio.parts import board
from studio.session import SAMPLES, Session, sample_of
from studio.text import say
from studio.upload import ENDINGS

__all__ = ["DataBlock", "layout", "mapping", "preview_view", "report_view"]

_PROBLEMS_SHOWN = 40

# ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class DataBlock:
    """The components that the wires need beside the form's fields."""

    sample: gr.Radio
    upload: gr.Textbox
    typed: gr.Textbox
    report: gr.HTML
    preview: gr.HTML
    offset: gr.Number
    earlier: gr.Button
    later: gr.Button
    shown_roles: gr.Textbox
    roles: tuple[gr.Dropdown, ...]


def layout(form: Form, session: Session) -> DataBlock:
    """The block, filled from the session."""
    data = session.config.data
    with gr.Column(elem_classes="block-sheet", elem_id="block-data"):
        board(block_head("data"))
        with gr.Row(elem_classes="data-choice", equal_height=True):
            sample = gr.Radio(
                [(say(f"data.sample.{key}"), key) for key in SAMPLES],
                value=sample_of(data.path) or None,
                label=say("data.sample"),
                elem_classes="pills",
                elem_id="data-sample",
            )
            with gr.Column(elem_classes="data-own"):
                board(_drop_zone())
                typed = gr.Textbox(
                    label=say("data.typed"), placeholder=say("data.typed.example"), elem_id="data-typed", max_lines=1
                )
        report = board(elem_id="data-report")
        preview = board(elem_id="data-preview")
        with gr.Row(elem_classes="pager"):
            earlier = gr.Button(say("preview.earlier"), size="sm", interactive=False)
            later = gr.Button(say("preview.later"), size="sm", interactive=False)
            offset = gr.Number(0, visible=False, precision=0)
        shown_roles, roles = _reading(form, data)
    form.add("data.path", gr.Textbox(data.path, visible="hidden", elem_id="data-path"))
    upload = gr.Textbox(visible="hidden", elem_id="data-upload", interactive=True)
    return DataBlock(sample, upload, typed, report, preview, offset, earlier, later, shown_roles, roles)


def _reading(form: Form, data: DataChoice) -> tuple[gr.Textbox, tuple[gr.Dropdown, ...]]:
    with gr.Accordion(say("data.reading"), open=False, elem_classes="folded"):
        with gr.Row(elem_classes="fields"):
            for key in ("data.layout", "data.train_on", "data.template"):
                form.add(key, field_of(key, getattr(data, key.removeprefix("data."))))
        board(tag("p", say("data.mapping"), class_="hint"))
        with gr.Row(elem_classes="fields"):
            roles = tuple(_role(form, index) for index in range(ROLE_FIELDS))
        form.add("roles", gr.Textbox(",".join(data.columns), visible=False))
        shown = gr.Textbox("", visible=False)
        with gr.Row(elem_classes="fields"):
            for key in ("data.eval_fraction", "data.eval_rows_max"):
                form.add(key, field_of(key, getattr(data, key.removeprefix("data."))))
        form.add("data.system_prompt", field_of("data.system_prompt", data.system_prompt))
    return shown, roles


def _role(form: Form, index: int) -> Any:
    field = gr.Dropdown(
        [], label=say("data.role"), allow_custom_value=True, visible=False, interactive=True, elem_id=f"role-{index}"
    )
    return form.add(f"role.{index}", field)


def _drop_zone() -> Markup:
    """A label around a file input: reachable by keyboard, drop and click; ``assets/js/new_run.js`` does the rest."""
    kinds = " ".join(ending.lstrip(".").upper() for ending in ENDINGS if ending != ".md")
    chosen = tag("input", type="file", id="data-file", accept=",".join(ENDINGS), class_="sr-only")
    words = tag("span", tag("strong", say("data.drop")), tag("span", kinds, class_="kinds"))
    bar = tag("progress", max="1", value="0", hidden=True, aria_label=say("data.uploading"))
    line = tag("span", class_="drop-line", role="status")
    zone = tag("label", chosen, icon("upload"), words, bar, line, class_="drop", for_="data-file")
    texts = {"data-busy": say("data.uploading"), "data-failed": say("data.upload_failed")}
    return tag("div", zone, data_drop=True, **texts)


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def report_view(view: View) -> Markup:
    """What is in the file: layout and why, counts, problems; or the fault."""
    if view.data_fault is not None and view.report is None:
        return fault(view.data_fault)
    if view.report is None:
        return tag("p", say("data.reading_now"), class_="quiet") if view.config.data.path else Markup()
    report = view.report
    name = tag("strong", report.path.rsplit("/", 1)[-1])
    counts = say("data.counts", rows=f"{report.rows:,}", usable=f"{report.usable:,}")
    head = tag("p", icon("file"), name, tag("span", counts), tag("span", _learned(view)), class_="report-line")
    kind = say("data.recognised", layout=LAYOUT_NAMES.get(report.layout, report.layout))
    why = tag("p", tag("span", kind, class_="chip"), tag("span", report.reason.rstrip(".") + "."), class_="report-why")
    below = fault(view.data_fault) if view.data_fault is not None else None
    return join(head, why, _problems(report), below)


def _learned(view: View) -> str:
    if view.report is not None and view.report.method == "dpo":
        return say("data.learned.dpo")
    raw = view.report is not None and view.report.layout == "text"
    return say("data.learned.everything" if raw else f"data.learned.{view.config.data.train_on}")


def _problems(report: DataReport) -> Markup | None:
    count = report.rows - report.usable
    if not report.problems:
        return None
    lines = (
        tag("li", tag("b", say("data.row", row=found.row)), found.text) for found in report.problems[:_PROBLEMS_SHOWN]
    )
    summary = tag("summary", icon("warning"), say("data.problems", count=f"{count:,}"))
    return tag("details", summary, tag("ol", *lines), class_="problems")


def preview_view(found: Preview | StudioError | None, offset: int) -> Markup:
    """Rows as the model will see them, token kinds coloured, with the key to the colours."""
    if found is None:
        return Markup()
    if isinstance(found, StudioError):
        return fault(found)
    keys = (
        tag("span", say(f"preview.{kind}"), class_=f"token {kind}") for kind in ("trained", "read", "special", "cut")
    )
    last = min(offset + ROWS_A_PAGE, found.total)
    where = say("preview.where", first=f"{min(offset + 1, last):,}", last=f"{last:,}", total=f"{found.total:,}")
    head = tag("div", tag("h3", say("preview.title")), tag("span", *keys, class_="keys"), class_="preview-head")
    notes = (tag("p", note, class_="hint") for note in found.notes)
    rows = tag("ol", *(_row(row) for row in found.rows), class_="rows", tabindex="0", aria_label=say("preview.title"))
    foot = tag("p", where, " · ", say("preview.template", template=found.template), class_="preview-where")
    return join(head, *notes, rows, foot)


def _row(row: PreviewRow) -> Markup:
    counts = say("preview.counts", tokens=f"{row.tokens:,}", trained=f"{row.trained_tokens:,}")
    cut = say("preview.cut_tokens", count=f"{row.cut_tokens:,}") if row.cut_tokens else None
    side = tag("b", say(f"preview.side.{row.side}")) if row.side else None
    head = tag("div", tag("b", say("data.row", row=row.row)), side, tag("span", counts), cut, class_="row-head")
    return tag("li", head, tag("p", *(_span(span) for span in row.spans), class_="row-text"))


def _span(span: Span) -> Markup:
    text = span.text.replace("\n", "⏎\n") if span.kind == "special" else span.text
    return tag("span", text, class_=f"token {span.kind}")


def mapping(view: View, columns: Sequence[str]) -> tuple[str, list[Any]]:
    """Names of the roles shown, and the update of each role's field."""
    data, report = view.config.data, view.report
    if report is not None:
        names, used = report.roles, dict(report.mapping)
    else:
        names, used = ROLES.get(data.layout, ()), dict(data.columns)
    shown = list(names)[:ROLE_FIELDS]
    choices = [("–", ""), *((column, column) for column in columns)]
    updates = [
        gr.update(visible=True, label=role, choices=choices, value=used.get(role, ""))
        if role
        else gr.update(visible=False)
        for role in (*shown, *([""] * (ROLE_FIELDS - len(shown))))
    ]
    return ",".join(shown), updates
