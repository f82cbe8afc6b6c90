"""Block 1, Data: which rows, how they are read, what is learned from them, and what the model will see."""

from pathlib import Path

import gradio as gr

from core.contract.config import DataChoice
from core.contract.data import Checkup, DataReport
from core.contract.errors import Fault, ModelError
from core.data.files.made import EDITED, origin_of
from core.data.read.demands import unsuited
from core.data.read.examples import refused_lines, skipped_line
from core.data.read.layouts import LAYOUT_NAMES
from studio.figures.run_figures import bytes_words
from studio.pages.new_run.data import checkup, lengths, roles, sources, table
from studio.pages.new_run.data.chips import classes_view, methods_view
from studio.pages.new_run.data.recipe import RECIPE_ENDINGS
from studio.pages.new_run.data.sources import working_view
from studio.pages.new_run.data.upload import ENDINGS
from studio.pages.new_run.form import Form, shown_columns
from studio.pages.new_run.outline import block_head
from studio.pages.new_run.view import View
from studio.pages.new_run.words import say
from studio.services.session import SAMPLES, Session, sample_of
from studio.shell.markup import Markup, fault, icon, join, push, tag
from studio.shell.parts import board

PANELS = ("rows", "lengths", "doctor", "reading")

_REASONS_SHOWN = 3

# ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def layout(form: Form, session: Session) -> None:
    """The block, filled from the session."""
    data = session.config.data
    with gr.Column(elem_classes="block-sheet", elem_id="block-data"):
        board(block_head("data"))
        with gr.Row(elem_classes="data-choice", equal_height=True):
            form.parts["data-sample"] = gr.Radio(
                [(say(f"data.sample.{key}"), key) for key in SAMPLES], value=sample_of(data.path) or None,
                label=say("data.sample"), elem_classes="pills", elem_id="data-sample",
            )  # fmt: skip
            with gr.Column(elem_classes="data-own"):
                board(_drop_zone())
                form.parts["data-typed"] = gr.Textbox(
                    label=say("data.typed"), placeholder=say("data.typed.example"), elem_id="data-typed", max_lines=1
                )
        sources.layout(form)
        form.board("data-report")
        form.board("data-tabs", tabs_view())
        with gr.Column(elem_id="panel-rows", elem_classes="panel"):
            board(table.skeleton())
            form.board("data-rows")
        lengths.layout(form)
        with gr.Column(elem_id="panel-doctor", elem_classes="panel"):
            form.board("data-doctor")
        _reading(form, data)
    form.fields["data.path"] = gr.Textbox(data.path, visible="hidden", elem_id="data-path")
    # Which column has which role: set by the headers of the table.
    form.fields["columns"] = gr.Textbox(shown_columns(data.columns), visible="hidden", elem_id="data-columns")
    form.fields["method"] = gr.Textbox(session.config.method, visible="hidden", elem_id="method")
    form.parts["data-upload"] = gr.Textbox(visible="hidden", elem_id="data-upload", interactive=True)


def _reading(form: Form, data: DataChoice) -> None:
    with gr.Column(elem_id="panel-reading", elem_classes="panel"):
        with gr.Row(elem_classes="fields"):
            for key in ("layout", "train_on", "template", "eval_fraction", "eval_rows_max"):
                form.add(f"data.{key}", getattr(data, key))
        form.add("data.system_prompt", data.system_prompt)


def _drop_zone() -> Markup:
    """A label around a file input: reachable by keyboard, drop and click; ``pages/new_run.js`` does the rest."""
    kinds = " ".join(ending.lstrip(".").upper() for ending in ENDINGS if ending != ".md")
    chosen = tag(
        "input",
        type="file",
        id="data-file",
        accept=",".join((*ENDINGS, *RECIPE_ENDINGS)),
        class_="sr-only",
        multiple=True,
    )
    words = tag("span", tag("strong", say("data.drop")), tag("span", kinds, class_="kinds"))
    bar = tag("progress", max="1", value="0", hidden=True, aria_label=say("data.uploading"))
    line = tag("span", class_="drop-line", role="status")
    zone = tag("label", chosen, icon("upload"), words, bar, line, class_="drop", for_="data-file")
    texts = {"data-busy": say("data.uploading"), "data-failed": say("data.upload_failed")}
    return tag("div", zone, data_drop=True, **texts)


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def tabs_view(findings: Checkup | Fault | None = None) -> Markup:
    """The tabs of the block's four panels; ``pages/new_run/panels.js`` opens them."""
    words = {"doctor": checkup.tab_words(findings)}
    tabs = (
        tag("button", words.get(name) or say(f"panel.{name}"), type="button", role="tab", id=f"tab-{name}",
            data_panel_tab=name, aria_controls=f"panel-{name}")
        for name in PANELS
    )  # fmt: skip
    return tag("div", *tabs, role="tablist", aria_label=say("panel.label"), class_="tabs")


def report_view(view: View) -> Markup:
    """What is in the file: its format, counts, what is left out; else what its columns seem to be; or the fault."""
    if view.unmapped:
        return join(
            tag("p", icon("file"), _name(view.config.data.path), class_="report-line"), roles.proposal_view(view)
        )
    if view.data_fault is not None and view.report is None:
        return fault(view.data_fault)
    if view.report is None:
        return tag("p", say("data.reading_now"), class_="quiet") if view.config.data.path else Markup()
    report = view.report
    counts = say("data.counts" if report.complete else "data.counts.first", rows=f"{report.rows:,}",
                 usable=f"{report.usable:,}")  # fmt: skip
    method = methods_view(view)  # where there is a choice it says what is learned
    learned = tag("span", _learned(view)) if method is None else None
    kind = say("data.recognised", layout=LAYOUT_NAMES.get(report.layout, report.layout))
    read = tag("span", kind, class_="chip", title=report.reason)
    head = tag("p", icon("file"), _name(report.path), read, tag("span", counts), learned, class_="report-line")
    # What the model's tokenizer is at fault for stands where the rows would be.
    own = view.data_fault is not None and not isinstance(view.data_fault, ModelError)
    below = fault(view.data_fault) if own and view.data_fault else None
    if view.lacks_rows:
        below = fault(unsuited(view.method, report))
    return join(
        head,
        method,
        classes_view(report, view.trained),
        _checking(report, view.progress.get("check")),
        origin_view(report.path, "" if view.source else view.made_from),
        _left_out(view, report),
        below,
    )


def _name(path: str) -> Markup:
    return tag("strong", path.rsplit("/", 1)[-1])


def _left_out(view: View, report: DataReport) -> Markup | None:
    """Rows never go without a word: each frequent reason with their number, and the way to them in the table."""
    lines = [skipped_line(rows) for rows in report.skipped[:_REASONS_SHOWN]]
    lines += refused_lines(view.facts) if view.facts else ()
    if not lines:
        return None
    told = (tag("p", icon("warning"), tag("span", line), class_="left-out") for line in lines)
    shows = table.wish(say("data.left_out.show"), {"state": "left_out"}) if report.skipped else None
    return tag("div", *told, shows, class_="left-outs")


def _checking(report: DataReport, progress: tuple[int, ...] | None) -> Markup | None:
    """The progress of a large file's check, or the button to resume it."""
    if report.complete:
        return None
    if progress is None:
        again = push(say("check.again"), "check")
        stopped = tag("p", icon("warning"), tag("span", say("check.stopped", rows=f"{report.rows:,}")))
        return tag("div", stopped, again, class_="working")
    done, total, rows = progress or (0, report.bytes, report.rows)
    words = say("check.running", done=bytes_words(done), total=bytes_words(total), rows=f"{rows:,}")
    return working_view(words, done, total, "check")


def origin_view(path: str, back: str = "") -> Markup | None:
    """What a made data set was made from, with the way back where the file still exists."""
    try:
        origin = origin_of(Path(path))
        made = str(origin.get("made", ""))
        if made == "mixture":
            weights = ((part.get("name", ""), float(part.get("weight", 1))) for part in origin.get("parts", []))
            parts = ", ".join(say("origin.part", name=name, weight=f"{weight:g}") for name, weight in weights)
            words = say("origin.mixture", parts=parts)
        elif made == "hub":
            words = say("origin.hub", **{key: origin.get(key) or "–" for key in ("name", "subset", "split")})
        elif made == "mended":
            done = ((part.get("what", ""), f"{part.get('count', 0):,}") for part in origin.get("done", []))
            what = ", ".join(say("origin.done", what=what, count=count) for what, count in done)
            words = say("origin.mended", name=origin.get("from", {}).get("name", ""), what=what)
        elif made == EDITED:
            counts = {key: int(origin.get(key, 0)) for key in ("edited", "excluded")}
            what = ", ".join(
                say(f"origin.{key}" if count != 1 else f"origin.{key}.one", count=f"{count:,}")
                for key, count in counts.items()
                if count
            )
            words = say("origin.changed", name=origin.get("from", {}).get("name", ""), what=what)
        else:
            return None
    except (ValueError, TypeError, AttributeError):  # a file of that name which is none of ours
        return None
    button = push(say("origin.back"), "source", {"back": back}, title=back) if back else None
    return tag("p", icon("info"), tag("span", words), button, class_="origin")


def _learned(view: View) -> str:
    raw = view.report is not None and view.report.layout == "text"
    return say("data.learned.everything" if raw else f"data.learned.{view.config.data.train_on}")
