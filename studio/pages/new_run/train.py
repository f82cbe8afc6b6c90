"""Block 3, Train: a goal, three settings, and all others folded in groups."""

import gradio as gr

from core.contract.config import RunConfig
from core.contract.methods import SETTINGS
from core.estimate.fit import chosen
from core.models.catalog import presets
from core.runs.folder.run_yaml import flat
from studio.figures.proposals import value_words
from studio.pages.new_run.form import KNOBS, Form, label_of
from studio.pages.new_run.outline import block_head
from studio.pages.new_run.view import View
from studio.pages.new_run.words import say
from studio.services.session import AUTOMATIC, Session
from studio.shell.explained import of_knobs
from studio.shell.markup import Markup, join, push, tag
from studio.shell.parts import board

GROUPS = ("memory", "learning", "method", "lora", "saving")

# ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def layout(form: Form, session: Session) -> None:
    """The block, filled from the session."""
    config = session.config
    with gr.Column(elem_classes="block-sheet", elem_id="block-train"):
        board(block_head("train"))
        form.fields["preset"] = gr.Radio(
            [(recipe.title, recipe.key) for recipe in presets()], value=config.preset or None,
            label=say("train.preset"), elem_classes="pills", elem_id="preset",
        )  # fmt: skip
        form.board("preset-goal", goal_view(config.preset))
        with gr.Row(elem_classes="fields"):
            for key, knob in KNOBS.items():
                if knob.simple:
                    form.add(key, chosen(config, key))


def advanced(form: Form, session: Session, several: bool = False) -> None:
    """Everything else, folded; ``several``: cards to choose from."""
    with gr.Accordion(say("train.advanced"), open=False, elem_classes="folded block-sheet", elem_id="block-advanced"):
        form.fields["name"] = gr.Textbox(session.config.name, label=say("train.name"), info=say("train.name.hint"))
        # Of the settings that belong to a method's loss only those of the method that is shown (``auto_view``).
        block, ids = "gradio-app .gradio-container #block-advanced", [key.replace(".", "-") for key in SETTINGS]
        rules = (f"{block}:not(:has([data-settings~={own}])) #{own} {{ display: none }}" for own in ids)
        board(join(_search(), Markup(f"<style>{' '.join(rules)}</style>")), elem_id="advanced-filter")
        form.board("auto-values")
        for group in GROUPS:
            title = say(f"group.{group}")
            head = (tag("h3", title, class_="group-title"), of_knobs(group, title))
            board(tag("div", *head, class_="group-head"))
            with gr.Row(elem_classes="fields"):
                for key, knob in KNOBS.items():
                    if knob.group == group and not knob.simple and key not in form.fields:
                        form.add(key, chosen(session.config, key), visible=several or knob.term != "cards")


def _search() -> Markup:
    """The search among the settings (``pages/new_run/advanced.js``)."""
    field = tag("input", type="search", id="advanced-search", placeholder=say("advanced.search.hint"))
    count = tag("span", role="status", class_="hint", id="advanced-count", data_none=say("advanced.none"))
    return tag("label", tag("span", say("advanced.search")), field, count, class_="advanced-search")


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def goal_view(key: str) -> Markup:
    """What the chosen preset is for."""
    recipe = next((recipe for recipe in presets() if recipe.key == key), None)
    return tag("p", recipe.goal if recipe else say("train.own"), class_="hint")


def auto_view(view: View) -> Markup:
    """Automatic values, each with its reason; those set by hand instead, each with the button to make it automatic; and
    the method that the data asks for. Settings of other methods are left out."""
    if not view.resolved:
        return Markup()
    rows = [_auto_row(one.key, one.value, "auto", tag("span", one.reason)) for one in view.resolved]
    before, now = flat(RunConfig()), flat(view.config)
    ours = [key for key in AUTOMATIC if key in KNOBS and now[key] != before[key]]
    words = say("auto.back")
    for key in ours:
        back = push(words, "change", {key: before[key]}, aria_label=f"{words}: {KNOBS[key].label}")
        rows.append(_auto_row(key, value_words(key, now[key]), "own", back))
    title = tag("h3", say("auto.title"), class_="group-title")
    settings = " ".join(key.replace(".", "-") for key in view.trained.learning.settings)
    return tag("div", title, tag("dl", *rows, class_="auto"), data_settings=settings)


def _auto_row(key: str, value: str, kind: str, more: Markup) -> Markup:
    label = label_of(KNOBS[key]) if key in KNOBS else key
    mark = tag("em", say(f"auto.{kind}"), class_=f"auto-{kind}")
    return tag("div", tag("dt", label, " ", mark), tag("dd", tag("b", value), more))
