"""Block 3, Train: a goal, three settings, and everything else folded away under the names of what it changes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import gradio as gr

from core.contract.config import RunConfig
from core.estimate.fit import chosen
from core.models.catalog import presets
from core.runs.folder.repeat import flat
from studio.figures.proposals import value_words
from studio.figures.run_figures import passes_words
from studio.pages.new_run.form import KNOBS, Form, field_of, label_of
from studio.pages.new_run.outline import block_head
from studio.pages.new_run.view import View
from studio.services.session import AUTOMATIC, Session, sample_of
from studio.shell.explained import of_knobs
from studio.shell.markup import Markup, icon, tag
from studio.shell.parts import board
from studio.words.text import say

__all__ = ["TrainBlock", "advanced", "auto_view", "ends_view", "goal_view", "layout"]

GROUPS = ("memory", "learning", "lora", "saving")

# ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class TrainBlock:
    """The components that the wires need beside the form's fields."""

    preset: gr.Radio
    goal: gr.HTML
    ends: gr.HTML


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
                    form.add(key, field_of(key, chosen(config, key)))
        ends = board(elem_id="train-ends")
    return TrainBlock(preset, goal, ends)


def advanced(form: Form, session: Session) -> gr.HTML:
    """Everything else, folded; returns the board of automatic values."""
    with gr.Accordion(say("train.advanced"), open=False, elem_classes="folded block-sheet", elem_id="block-advanced"):
        form.add("name", gr.Textbox(session.config.name, label=say("train.name"), info=say("train.name.hint")))
        board(_search(), elem_id="advanced-sieve")
        auto = board(elem_id="auto-values")
        for group in GROUPS:
            board(_group_head(group))
            with gr.Row(elem_classes="fields"):
                for key, knob in KNOBS.items():
                    if knob.group == group and not knob.simple and key not in form.fields:
                        form.add(key, field_of(key, chosen(session.config, key)))
    return auto


def _group_head(group: str) -> Markup:
    """A group's title, and what its settings speak of: after Start for the keyboard, as everything here is."""
    title = say(f"group.{group}")
    return tag("div", tag("h3", title, class_="group-title"), of_knobs(group, title), class_="group-head")


def _search() -> Markup:
    """The search among the settings; ``assets/js/advanced.js`` gives it life."""
    field = tag("input", type="search", id="advanced-search", placeholder=say("advanced.search.hint"))
    count = tag("span", role="status", class_="hint", id="advanced-count", data_none=say("advanced.none"))
    return tag("label", tag("span", say("advanced.search")), field, count, class_="advanced-search")


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def goal_view(key: str) -> Markup:
    """What the chosen preset is for; the model that it names for this card stands in the Model block."""
    recipe = next((recipe for recipe in presets() if recipe.key == key), None)
    return tag("p", recipe.goal if recipe else say("train.own"), class_="hint")


def ends_view(view: View) -> Markup:
    """That fewer steps will run than the passes in the field above would need, with the way to all of them. Of a goal
    that is meant for samples its own words say it."""
    train, figures = view.config.train, view.figures
    if not train.max_steps or figures is None or not figures.steps_per_epoch or _is_demo(view.config):
        return Markup()
    passes = figures.total_steps / figures.steps_per_epoch
    if passes > train.num_train_epochs - 0.05:
        return Markup()
    limit = KNOBS["train.max_steps"].label
    words = say("train.ends", steps=f"{figures.total_steps:,}", passes=passes_words(passes), limit=limit,
                asked=f"{train.num_train_epochs:g}")  # fmt: skip
    asked = {"data-do": "change", "data-value": json.dumps({"train.max_steps": 0})}
    button = tag("button", say("train.ends.not"), type="button", class_="quiet-push", **asked)
    return tag("p", icon("info"), tag("span", words), button, class_="origin")


def _is_demo(config: RunConfig) -> bool:
    shown = any(recipe.for_samples for recipe in presets() if recipe.key == config.preset)
    return shown and bool(sample_of(config.data.path))


def auto_view(view: View) -> Markup:
    """Values that were chosen automatically, each with its reason; and those that might be but were set by hand, each
    with the way back. It also says which method the data asks for: fields of another one are left out."""
    if not view.resolved:
        return Markup()
    rows = [_auto_row(found.key, found.value, "auto", tag("span", found.reason)) for found in view.resolved]
    before, now = flat(RunConfig()), flat(view.config)
    ours = [key for key in AUTOMATIC if key in KNOBS and now[key] != before[key]]
    rows += [_auto_row(key, value_words(key, now[key]), "own", _give_back(key, before[key])) for key in ours]
    title = tag("h3", say("auto.title"), class_="group-title")
    return tag("div", title, tag("dl", *rows, class_="auto"), data_method=view.trained.method)


def _auto_row(key: str, value: str, kind: str, more: Markup) -> Markup:
    label = label_of(KNOBS[key]) if key in KNOBS else key
    mark = tag("em", say(f"auto.{kind}"), class_=f"auto-{kind}")
    return tag("div", tag("dt", label, " ", mark), tag("dd", tag("b", value), more))


def _give_back(key: str, automatic: Any) -> Markup:
    """The button that lets us choose again."""
    words = say("auto.back")
    asked = {"data-do": "change", "data-value": json.dumps({key: automatic})}
    return tag("button", words, type="button", class_="quiet-push", aria_label=f"{words}: {KNOBS[key].label}", **asked)
