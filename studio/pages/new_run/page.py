"""New run's page: machine strip, blocks, the summary beside them, Advanced below. For the keyboard, and for who hears
the page, the summary with Start comes first: what stands is a run that can be started.

Answers are dictionaries of components to values, so that a handler says only what it changes.
"""

import itertools
from typing import Any

import gradio as gr

from core.models.catalog import presets
from studio.figures.queueing import held_cards
from studio.pages.new_run import model, plan, summary, train
from studio.pages.new_run.data import block, checkup, lengths, table
from studio.pages.new_run.form import Answer, Form, draft_shown
from studio.pages.new_run.outline import draft_view, head_view
from studio.pages.new_run.view import View
from studio.pages.new_run.words import say
from studio.services.services import Studio
from studio.services.session import Session
from studio.shell.markup import Markup, tag
from studio.shell.parts import channel

ASKED = ("change", "draft", "source", "mix", "check", "examine", "count", "roles", "edited", "probe", "stop", "models")
"""Commands of buttons within boards, each with a hidden field of its own (``parts.channel``): with one for all, Cancel
would wait for what it stops."""


class Page:
    """What the page shows of a view."""

    def __init__(self, form: Form, made: Session) -> None:
        self.form, self.parts = form, form.parts
        self.made = made
        """The choices that its fields begin with."""
        self._looks = itertools.count(1)

    def shown(self, **values: Any) -> Answer:
        """Values of parts, by their ids with underscores."""
        return {self.parts[name.replace("_", "-")]: value for name, value in values.items()}

    def said(self, view: View) -> Answer:
        """All but the file's outputs."""
        words, ready = summary.start_words(view)
        picture, numbers = lengths.lengths_view(view)
        return self.shown(
            draft_line=draft_view(view.before),
            summary=summary.summary_view(view),
            start_line=tag("p", view.figures.sentence if view.figures else "", class_="bar-line"),
            start=gr.update(value=words, interactive=ready),
            summary_more=summary.more_view(view),
            summary_probe=plan.probe_view(view) or "",
            machine=head_view(view.machine, view.config.train.cards, view.held),
            model_about=model.model_view(view),
            preset_goal=train.goal_view(view.config.preset),
            auto_values=train.auto_view(view),
            lengths_picture=picture,
            lengths_figures=numbers,
        )

    def look(self) -> Answer:
        """Asks for a look at what is missing."""
        return self.shown(look=next(self._looks))

    def file(self, view: View) -> Answer:
        """The file's outputs: report, the table of its rows and the doctor's findings."""
        return {**self.shown(data_report=block.report_view(view)), **self.examined(view)}

    def examined(self, view: View) -> Answer:
        """The doctor's panel, its name on the tab, and its marks on the rows."""
        rows = view.report.usable if view.report and view.measurable else 0
        panel = checkup.checkup_view(view.checkup, rows, view.progress.get("examine"))
        tabs = block.tabs_view(view.checkup)
        return self.shown(data_doctor=panel, data_tabs=tabs, data_rows=table.state_view(view))

    def another_file(self, path: str, goal: str | None, sample: str | None = None, typed: str = "") -> Answer:
        """The fields for another file, without what was said of the last one. A goal for samples gives way to a file of
        one's own, whose settings are proposed when it is read; until then Start waits."""
        short = not sample and any(recipe.for_samples for recipe in presets() if recipe.key == goal)
        changes = {"data.path": path, "data.layout": "auto", "columns": "", **({"preset": None} if short else {})}
        settling = {"start": gr.update(value=say("start.settling"), interactive=False)} if path and not sample else {}
        return {self.form.fields[key]: value for key, value in changes.items()} | self.shown(
            data_sample=sample, data_typed=typed, source_outcome=Markup(), **settling
        )


def lay_out(studio: Studio, session: Session) -> Page:
    """Draws the page for a session; nothing is looked up."""
    form = Form()
    machine = studio.machine()
    form.board("machine", head_view(machine, session.config.train.cards, held_cards(studio.locations, machine)))
    form.board("draft-line")
    with gr.Column(elem_classes="new-run"):
        with gr.Column(elem_classes="new-run-summary"), gr.Column(elem_classes="summary-sheet"):
            form.board("summary", tag("h2", say("summary.title")))
            with gr.Column(elem_classes="start-bar"):
                form.board("start-line")
                # Until the draft is restored the fields show the draft of the studio's start.
                form.parts["start"] = gr.Button(
                    say("start.now"), variant="primary", elem_id="start", size="lg", interactive=False
                )
                form.board("outcome")
            form.board("summary-more")
            form.board("summary-probe")
        with gr.Column(elem_classes="new-run-blocks"):
            for part in (block, model, train):
                part.layout(form, session)
        with gr.Column(elem_classes="new-run-advanced"):
            train.advanced(form, session, several=len(machine.gpus) > 1)
    form.parts["look"] = gr.State(0)  # its change asks for a look
    form.fields["draft_id"] = gr.Textbox(draft_shown(session), visible=False)
    for name in ASKED:
        form.parts[f"act-{name}"] = channel(name)
    return Page(form, session)
