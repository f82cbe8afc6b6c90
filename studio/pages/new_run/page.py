"""New run's page: machine strip, blocks, the summary beside them; Advanced below, after Start for the keyboard.

Answers are dictionaries of components to values, so that a handler says only what it changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from core.models.catalog import presets
from studio.pages.new_run.data import block as data
from studio.pages.new_run.data.block import DataBlock
from studio.pages.new_run.form import Answer, Form
from studio.pages.new_run.model import block as model
from studio.pages.new_run.model.block import ModelBlock
from studio.pages.new_run.outline import draft_view, head_view
from studio.pages.new_run.plan import summary
from studio.pages.new_run.plan.proposals import probe_view
from studio.pages.new_run.train import block as train
from studio.pages.new_run.view import View
from studio.services.services import Studio
from studio.services.session import Session, for_own_file
from studio.shell.markup import Markup, tag
from studio.shell.parts import board, channel
from studio.words.text import say

ASKED = ("change", "draft", "source", "mix", "check", "examine", "count", "preview", "probe", "stop", "models")
"""What buttons within boards ask for, each through a hidden field of its own (``parts.channel``): one for all would
answer them one after the other, and Cancel would wait for what it ends."""


@dataclass(frozen=True)
class Page:
    """The fields and the components beside them that events read or write."""

    form: Form
    data: DataBlock
    model: ModelBlock
    goal: gr.HTML
    auto: gr.HTML
    machine: gr.HTML
    draft: gr.HTML
    summary: gr.HTML
    bar: gr.HTML
    start: gr.Button
    outcome: gr.HTML
    more: gr.HTML
    probe: gr.HTML
    asked: dict[str, gr.Textbox]

    def said(self, view: View) -> Answer:
        """What the page says of a view, but for the file itself."""
        words, ready = summary.start_words(view)
        return {
            self.draft: draft_view(view.before),
            self.summary: summary.summary_view(view),
            self.bar: tag("p", view.figures.sentence if view.figures else "", class_="bar-line"),
            self.start: gr.update(value=words, interactive=ready),
            self.more: summary.more_view(view),
            self.machine: head_view(view.machine),
            self.model.about: model.model_view(view),
            self.goal: train.goal_view(view.config.preset),
            self.auto: train.auto_view(view),
            **self.probed(view),
            **self.data.lengths_of(view),
        }

    def probed(self, view: View) -> Answer:
        """The probe: its button where a run could start, how far it is, or what it measured."""
        return {self.probe: probe_view(view) or ""}

    def another_file(self, path: str, values: Sequence[Any], sample: str | None = None, typed: str = "") -> Answer:
        """The fields under another file: it is read from scratch, and what was said of the one before it goes."""
        fields = self.form.fields
        shown = dict(zip(fields, values, strict=True))
        changes = {} if sample else for_own_file(shown.get("preset") or "", shown)
        return {
            **{fields[key]: value for key, value in changes.items()},
            fields["data.path"]: path, fields["data.layout"]: "auto", fields["roles"]: "",
            self.data.sample: sample, self.data.typed: typed, self.data.preview.search: "",
            self.data.sources.outcome: Markup(), self.outcome: Markup(),
        }  # fmt: skip

    def another_file_outputs(self) -> list[Any]:
        """Everything that ``another_file`` may answer."""
        of_samples = {key for recipe in presets() for key in recipe.for_samples}
        fields = [self.form.fields[key] for key in ("preset", *sorted(of_samples))]
        return [*fields, *self.another_file("", list(self.form.fields), sample="any")]


def lay_out(studio: Studio, session: Session) -> Page:
    """Draws the page for a session; nothing is looked up that could take time."""
    form = Form()
    machine = board(head_view(studio.machine()), elem_id="machine")
    draft = board(elem_id="draft-line")
    with gr.Column(elem_classes="desk"):
        with gr.Column(elem_classes="desk-blocks"):
            data_block = data.layout(form, session)
            model_block = model.layout(form, session)
            goal = train.layout(form, session)
        with gr.Column(elem_classes="desk-summary"), gr.Column(elem_classes="summary-sheet"):
            plan = board(tag("h2", say("summary.title")), elem_id="summary")
            with gr.Column(elem_classes="start-bar"):
                bar = board(elem_id="start-line")
                # Until the draft is restored the fields show what stood in them when the studio was started.
                start = gr.Button(say("start.now"), variant="primary", elem_id="start", size="lg", interactive=False)
                outcome = board(elem_id="outcome")
            more = board(elem_id="summary-more")
            probe = board(elem_id="summary-probe")
        with gr.Column(elem_classes="desk-advanced"):
            auto = train.advanced(form, session)
    form.add("draft_id", gr.Textbox("", visible=False))
    return Page(
        form, data_block, model_block, goal, auto, machine, draft, plan, bar, start, outcome, more, probe,
        {name: channel(name) for name in ASKED},
    )  # fmt: skip
