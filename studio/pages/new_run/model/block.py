"""Block 2, Model: which base model, how it is held in memory, the one that is proposed, and what is chosen.

The field takes a hub id or a folder as it is typed; the list below it (``model_list``) is opened by it, and is filled
by the studio whenever that happens.
"""

from dataclasses import dataclass

import gradio as gr

from studio.pages.new_run.asking import push
from studio.pages.new_run.form import Form, field_of
from studio.pages.new_run.model.model_list import here_words, proposal_view
from studio.pages.new_run.outline import block_head
from studio.pages.new_run.view import View
from studio.services.session import Session
from studio.shell.markup import Markup, fault, join, tag
from studio.shell.parts import board
from studio.words.text import say

# ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ModelBlock:
    """The block's boards."""

    about: gr.HTML
    listing: gr.HTML


def layout(form: Form, session: Session) -> ModelBlock:
    """The block, filled from the session."""
    chosen = session.config.model
    with gr.Column(elem_classes="block-sheet", elem_id="block-model"):
        board(block_head("model"))
        with gr.Row(elem_classes="fields model-fields"):
            name = gr.Textbox(
                chosen.name,
                label=say("model.name"),
                placeholder=say("model.name.example"),
                max_lines=1,
                interactive=True,
                elem_id="model-name",
            )
            form.add("model.name", name)
            form.add("model.quantization", field_of("model.quantization", chosen.quantization, info=None))
        about = board(elem_id="model-about")
        listing = board(elem_id="model-list")
    return ModelBlock(about, listing)


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def model_view(view: View) -> Markup:
    """The chosen model, or why it cannot be used; and the one that is proposed, with why."""
    proposed = proposal_view(view.proposal, view.config.model.name) if view.proposal else None
    return join(_chosen(view), proposed)


def _chosen(view: View) -> Markup:
    if view.model_fault is not None:
        again = push(say("model.again"), "change", {"model.name": view.config.model.name})
        return join(fault(view.model_fault), again if view.config.model.name else None)
    if view.spec is None:
        return tag("p", say("model.looking"), class_="quiet") if view.config.model.name else Markup()
    spec = view.spec
    facts = [
        say("model.parameters", count=_count(spec.shape.parameters)),
        say("model.instruct" if spec.instruct else "model.base"),
        spec.licence,
        say("model.context", tokens=f"{spec.shape.max_position_embeddings:,}"),
        here_words(spec),
        say("model.gated") if spec.gated and not spec.cached else "",
    ]
    line = tag("p", *(tag("span", fact, class_="chip") for fact in facts if fact), class_="chips")
    return join(line, tag("p", spec.about, class_="hint") if spec.about else None)


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.1f} M"
