"""Block 3, Train: a goal, three settings, and everything else folded away under the names of what it changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from core.catalog import presets
from core.contract.config import RunConfig
from studio.markup import Markup, tag
from studio.pages.new_run.desk import View
from studio.pages.new_run.form import KNOBS, Form, field_of, label_of
from studio.pages.new_run.outline import block_head
from studio.parts import board
from studio.session import Session
from studio.text import say

__all__ = ["TrainBlock", "advanced", "auto_view", "layout"]

GROUPS = ("memory", "learning", "lora", "saving")

# ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class TrainBlock:
    """The components that the wires need beside the form's fields."""

    preset: gr.Radio
    goal: gr.HTML


def layout(form: Form, session: Session) -> TrainBlock:
    """The block, filled from the session."""
    config = session.config
    with gr.Column(elem_classes="block-sheet", elem_id="block-train"):
        board(block_head("train"))
        preset = gr.Radio(
            [(recipe.title, recipe.key) for recipe in presets()],
            value=config.preset or None,
            label=say("train.preset"),
            elem_classes="pills",
            elem_id="preset",
        )
        form.add("preset", preset)
        goal = board(goal_view(config.preset), elem_id="preset-goal")
        with gr.Row(elem_classes="fields"):
            for key, knob in KNOBS.items():
                if knob.simple:
                    form.add(key, field_of(key, _value(config, key)))
    return TrainBlock(preset, goal)


def advanced(form: Form, session: Session) -> gr.HTML:
    """Everything else, folded; returns the board of automatic values."""
    with gr.Accordion(say("train.advanced"), open=False, elem_classes="folded block-sheet", elem_id="block-advanced"):
        form.add("name", gr.Textbox(session.config.name, label=say("train.name"), info=say("train.name.hint")))
        auto = board(elem_id="auto-values")
        for group in GROUPS:
            board(tag("h3", say(f"group.{group}"), class_="group-title"))
            with gr.Row(elem_classes="fields"):
                for key, knob in KNOBS.items():
                    if knob.group == group and not knob.simple and key not in form.fields:
                        form.add(key, field_of(key, _value(session.config, key)))
    return auto


def _value(config: RunConfig, key: str) -> Any:
    part, name = key.split(".")
    return getattr(getattr(config, part), name)


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def goal_view(key: str) -> Markup:
    """What the chosen preset is for."""
    goal = next((recipe.goal for recipe in presets() if recipe.key == key), "")
    return tag("p", goal or say("train.own"), class_="hint")


def auto_view(view: View) -> Markup:
    """Values that were chosen automatically, each with its reason."""
    if not view.resolved:
        return Markup()
    rows = (
        tag("div", tag("dt", label_of(KNOBS[found.key]) if found.key in KNOBS else found.key),
            tag("dd", tag("b", found.value), tag("span", found.reason)))
        for found in view.resolved
    )  # fmt: skip
    return tag("div", tag("h3", say("auto.title"), class_="group-title"), tag("dl", *rows, class_="auto"))
