"""Block 2, Model: which base model, how it is held in memory, and whether it fits this machine."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from core.catalog import cached_models, catalogue
from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.estimate import estimate, resolve
from core.hardware import Machine
from studio.figures import bytes_words
from studio.markup import Markup, fault, join, tag
from studio.pages.new_run.form import Form, field_of
from studio.pages.new_run.outline import block_head
from studio.pages.new_run.view import View
from studio.parts import board
from studio.session import Session
from studio.text import say

__all__ = ["ModelBlock", "layout", "model_choices", "model_view"]

_ORDER = {"fits": 0, "unknown": 1, "tight": 2, "too_large": 3}

# ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ModelBlock:
    """The components that the wires need beside the form's fields."""

    name: gr.Dropdown
    about: gr.HTML


def layout(form: Form, session: Session, machine: Machine) -> ModelBlock:
    """The block, filled from the session."""
    config = session.config
    with gr.Column(elem_classes="block-sheet", elem_id="block-model"):
        board(block_head("model"))
        with gr.Row(elem_classes="fields model-fields"):
            name = gr.Dropdown(
                model_choices(config, machine),
                value=config.model.name,
                label=say("model.name"),
                allow_custom_value=True,
                interactive=True,
                elem_id="model-name",
            )
            form.add("model.name", name)
            form.add("model.quantization", field_of("model.quantization", config.model.quantization, info=None))
        about = board(elem_id="model-about")
    return ModelBlock(name, about)


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def model_choices(config: RunConfig, machine: Machine) -> list[tuple[str, str]]:
    """Every model that can be chosen, what fits first, each with its size and whether it is here already."""
    specs = {spec.name: spec for spec in (*cached_models(), *catalogue())}
    judged = sorted(((_verdict(config, spec, machine), spec) for spec in specs.values()), key=_place)
    rows = [(_label(spec, verdict), spec.name) for verdict, spec in judged]
    return [(f"{say('model.starter')} · {say('model.fit.fits')}", "starter"), *rows]


def _place(judged: tuple[str, ModelSpec]) -> tuple[int, int]:
    verdict, spec = judged
    return _ORDER[verdict], spec.shape.parameters


def _verdict(config: RunConfig, spec: ModelSpec, machine: Machine) -> str:
    full, _ = resolve(config, spec, None, machine)
    return estimate(full, spec, None, machine).verdict


def _label(spec: ModelSpec, verdict: str) -> str:
    size = say("model.here") if spec.cached else say("model.download", size=bytes_words(spec.download_bytes))
    kind = say("model.instruct" if spec.instruct else "model.base")
    return " · ".join((spec.title, kind, say(f"model.fit.{verdict}"), size))


def model_view(view: View) -> Markup:
    """One line about the chosen model, or why it cannot be used."""
    if view.model_fault is not None:
        return fault(view.model_fault)
    if view.spec is None:
        return tag("p", say("model.looking"), class_="quiet") if view.config.model.name else Markup()
    spec = view.spec
    facts = [
        say("model.parameters", count=_count(spec.shape.parameters)),
        say("model.instruct" if spec.instruct else "model.base"),
        spec.licence,
        say("model.context", tokens=f"{spec.shape.max_position_embeddings:,}"),
        say("model.here") if spec.folder else say("model.download", size=bytes_words(spec.download_bytes)),
        say("model.gated") if spec.gated and not spec.cached else "",
    ]
    line = tag("p", *(tag("span", fact, class_="chip") for fact in facts if fact), class_="chips")
    return join(line, tag("p", spec.about, class_="hint") if spec.about else None)


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.1f} M"
