"""New run's layout: machine strip, blocks, the summary beside them; Advanced below, after Start for the keyboard."""

from __future__ import annotations

from dataclasses import dataclass, fields

import gradio as gr

from studio.pages.new_run.data import block as data
from studio.pages.new_run.data.block import DataBlock
from studio.pages.new_run.form import Form
from studio.pages.new_run.model import block as model
from studio.pages.new_run.model.block import ModelBlock
from studio.pages.new_run.outline import head_view
from studio.pages.new_run.train import block as train
from studio.pages.new_run.train.block import TrainBlock
from studio.services.services import Studio
from studio.services.session import Session
from studio.shell.markup import tag
from studio.shell.parts import board, channel
from studio.words.text import say

__all__ = ["Parts", "lay_out"]


@dataclass(frozen=True)
class Asks:
    """What buttons within boards say, each through a hidden field of its own (``parts.channel``)."""

    change: gr.Textbox
    draft: gr.Textbox
    source: gr.Textbox
    mix: gr.Textbox
    check: gr.Textbox
    examine: gr.Textbox
    count: gr.Textbox
    probe: gr.Textbox
    stop: gr.Textbox
    models: gr.Textbox


@dataclass(frozen=True)
class Parts:
    """The components that events read or write, beside the form's fields."""

    data: DataBlock
    model: ModelBlock
    train: TrainBlock
    machine: gr.HTML
    draft: gr.HTML
    summary: gr.HTML
    bar: gr.HTML
    start: gr.Button
    outcome: gr.HTML
    more: gr.HTML
    probe: gr.HTML
    auto: gr.HTML
    asked: Asks


def lay_out(form: Form, session: Session, studio: Studio) -> Parts:
    """Draws the page for a session; nothing is looked up that could take time."""
    strip = board(head_view(studio.machine()), elem_id="machine")
    draft = board(elem_id="draft-line")
    with gr.Column(elem_classes="desk"):
        with gr.Column(elem_classes="desk-blocks"):
            data_block = data.layout(form, session)
            model_block = model.layout(form, session)
            train_block = train.layout(form, session)
        with gr.Column(elem_classes="desk-summary"), gr.Column(elem_classes="summary-sheet"):
            summary = board(tag("h2", say("summary.title")), elem_id="summary")
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
    asked = Asks(**{field.name: channel(field.name) for field in fields(Asks)})
    start_parts = strip, draft, summary, bar, start, outcome
    return Parts(data_block, model_block, train_block, *start_parts, more, probe, auto, asked)
