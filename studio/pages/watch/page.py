"""The watch page: one run while it works, and what became of it. Filled by ``assets/js/pages/watch.js``."""

from typing import Any

from core.contract.methods import HELD_OUT_MEASURES, MEASURES, SHARES
from studio.pages.watch.words import say
from studio.services.services import Studio
from studio.shell.explained import leads_to
from studio.shell.markup import Markup, tag
from studio.shell.slots import button, dialog, fault_line, file_dialog, live, none_yet, notice, slot, verdict, way_back

LEVELS = ("0", "0.6", "0.9", "0.98")
FACTS = ("step", "epoch", "loss", "held_out", "speed", "memory", "took", "device")

REWARDS = {"chosen_reward": "a", "rejected_reward": "b"}
"""Measures that are compared, with their tones: one chart."""
HIGHER = {"accuracy", "macro_f1", "margin", "speed"}
"""Charts whose best reading is the highest."""
LOWER = {"loss", "mean_error"}
MARKS = ("checkpoint", "break", "correction")
BESIDE = {"accuracy": ("macro_f1", "c")}
"""What evaluations measure beside a measure, in its chart, with its tone."""


def page(_: Studio) -> Markup:
    """The skeleton, without a run in it yet."""
    words = {"chart": say.under("chart"), "charts": charts(), "way": say.under("way"), "matrix": say.under("matrix")}
    again = button("", "primary", data_f="verdict-again", hidden=True)
    asked = (tag("h2", say("way.title")), slot("way-about", "p", class_="hint"))
    way = slot("way", "section", *asked, slot("questions", "div", class_="questions"), class_="way card", hidden=True)
    became = verdict(again, *_onward("verdict-"))
    parts = (_head(), became, _failure(), _facts(), _charts(), _matrix(), way, _folded())
    some = slot("some", "div", *parts, hidden=True)
    # Until a run's name is the title.
    unnamed = tag("p", say("watch.title"), role="heading", aria_level="1", class_="sr-only unnamed")
    return live("watch", words, unnamed, fault_line(), none_yet(), some, _stop_dialog(), file_dialog())


def charts() -> list[dict[str, Any]]:
    """The charts in their order: what each reads, in which tone, and how its readings are written."""
    memory = (("memory_bytes", "memory.run", "a"), ("card_used_bytes", "memory.card", "b"))
    return [
        _chart("loss", "loss", ("loss", "loss.train", "a"), ("evaluation", "loss.held_out", "b"), log=True, best=True),
        _chart("learning_rate", "rate", ("learning_rate", "learning_rate.now", "a"), base=0),
        *(_measured(name) for name in MEASURES if name not in REWARDS),
        _chart("rewards", "number", *(series for name in REWARDS for series in _reward(name))),
        _chart("grad_norm", "number", ("grad_norm", "grad_norm.now", "a"), log=True, base=0),
        _chart("speed", "speed", ("tokens_per_second", "speed.now", "a"), base=0),
        _of_cards("memory", "bytes", *memory, base=0, forecast=True),
        _of_cards("load", "share", ("gpu_load", "load.now", "a"), base=0, top=1),
        _of_cards("power_watts", "watts", ("power_watts", "power_watts.now", "a"), base=0),
        _of_cards("temperature_celsius", "celsius", ("temperature_celsius", "temperature_celsius.now", "a")),
    ]


def _of_cards(key: str, form: str, *series: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    """A chart whose last line is a card's: of a run on several cards there is one for each."""
    return _chart(key, form, *series, each=series[-1][0], **more)


def _measured(name: str) -> dict[str, Any]:
    """What some methods measure beside the loss; a chart without readings takes no place."""
    series = [(name, "loss.train", "a"), (f"held_out_{name}", "loss.held_out", "b")]
    if name in BESIDE:
        other, tone = BESIDE[name]
        series.append((f"held_out_{other}", f"{name}.{other}", tone))
    if name in SHARES:
        return _chart(name, "share", *series, base=0, top=1)
    return _chart(name, "number", *series)


def _reward(name: str) -> tuple[tuple[str, str, str], ...]:
    """A reward's line, and in its own tone what was held out."""
    tone, held_out = REWARDS[name], f"held_out_{name}"
    return (name, f"rewards.{name}", tone), (held_out, f"rewards.{held_out}", f"{tone} held-out")


def _chart(key: str, form: str, *series: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    drawn = []
    for name, label, tone in series:
        points = name == "evaluation" or name.startswith("held_out_")
        drawn.append({"key": name, "label": say(f"chart.{label}"), "tone": tone, "points": points})
    good = "high" if key in HIGHER else "low" if key in LOWER else "range"
    named = {"title": say(f"chart.{key}"), "axis": say(f"chart.axis.{key}")}
    return {"key": key, **named, "format": form, "good": good, "series": drawn, **more}


def _head() -> Markup:
    dot = tag("span", class_="dot", aria_hidden="true")
    state = slot("state", "p", dot, slot("word"), class_="state")
    timing = slot(
        "timing",
        "dl",
        *(tag("div", tag("dt", say(f"watch.{name}")), slot(name, "dd")) for name in ("finish", "left")),
        class_="timing",
    )
    title = tag("div", state, slot("name", "h1", say("watch.title")), slot("sentence", "p", role="status"))
    bar = slot("bar", "progress", max="1", aria_label=say("watch.progress"), class_="bar")
    stage = slot("stage-box", "p", slot("stage", "b"), " ", slot("detail"), class_="stage")
    own = slot("own", "div", *(slot(f"own-{name}", "p") for name in ("opened", "tags", "note")), class_="watch-own")
    top = tag("div", title, timing, class_="watch-top")
    verbs = [("resume", "primary"), ("anyway", ""), ("pause", ""), ("save", ""), ("stop", ""), ("stop_now", "danger")]
    pushes = [button(say(f"watch.{verb}"), kind, data_verb=verb, hidden=True) for verb, kind in verbs]
    after = slot("next", "span", *_onward(), class_="next", hidden=True)
    file = button(say("run.file"), data_f="save-file", hidden=True)
    label = say("watch.actions")
    actions = tag("div", *pushes, after, file, notice(), class_="actions", role="group", aria_label=label)
    return tag("header", top, own, stage, bar, actions, class_="watch-head")


def _onward(where: str = "") -> list[Markup]:
    """What a model that is saved leads on to; beside a verdict, else in the head."""
    links = [("try", "/try", "primary"), ("take", "/take-home", "")]
    return [
        slot(f"{where}{name}", "a", say(f"watch.{name}"), href=to, data_to=to, class_=f"push {kind}".strip())
        for name, to, kind in links
    ]


def _failure() -> Markup:
    words = tag("div", slot("cause", "strong"), slot("cure", "p"))
    does = button("", "primary", data_f="next-do", hidden=True)
    return slot("failure", "div", words, does, class_="failure", hidden=True)


def _facts() -> Markup:
    pairs = (tag("div", tag("dt", say(f"watch.{name}")), slot(name, "dd")) for name in FACTS)
    more = (
        tag("div", tag("dt", say(f"chart.{name}")), slot(name, "dd"), data_measure=name, hidden=True)
        for name in HELD_OUT_MEASURES
    )
    cards = slot("cards", "ul", class_="card-states", aria_label=say("watch.cards"), hidden=True)
    return tag("div", tag("dl", *pairs, *more, class_="facts"), cards, class_="facts-box")


def _charts() -> Markup:
    options = (tag("option", say(f"watch.smooth.{level}"), value=level) for level in LEVELS)
    smooth = tag("label", tag("span", say("watch.smooth")), slot("smooth", "select", *options))
    whole = button(say("watch.whole"), data_f="whole", hidden=True)
    hint = tag("p", say("watch.charts.help"), class_="hint")
    title, meant = tag("h2", say("chart.charts")), leads_to("part-watching", say("glossary.readings"))
    bar = tag("div", title, hint, meant, whole, smooth, class_="charts-bar")
    kinds = (
        tag("span", say(f"chart.mark.{kind}"), class_=f"mark-{kind}", data_mark=kind, hidden=True) for kind in MARKS
    )
    marks = slot("marks", "p", *kinds, class_="chart-marks")
    return tag("section", bar, marks, slot("charts", "div", class_="charts"), class_="charts-box")


def _matrix() -> Markup:
    """The confusion matrix of the newest evaluation (``pages/watch/matrix.js``)."""
    head = (tag("h2", say("matrix.title"), id="matrix-title"), leads_to("classification", say("matrix.what")))
    table = tag("table", slot("matrix-head", "thead"), slot("matrix-body", "tbody"), aria_labelledby="matrix-title")
    scroll = tag("div", table, class_="scroll", tabindex="0", role="region", aria_labelledby="matrix-title")
    most = slot("matrix-most", "div", tag("h3", say("matrix.most")), slot("matrix-pairs", "ul"))
    told = tag("div", most, slot("matrix-said", "p", class_="matrix-said"), class_="matrix-told")
    whole = (tag("div", *head, class_="matrix-top"), slot("matrix-about", "p", class_="hint"))
    drawn = slot("matrix-drawn", "div", scroll, told, class_="matrix-drawn")
    return slot("matrix", "section", *whole, drawn, class_="matrix card", hidden=True)


def _folded() -> Markup:
    title = tag("h2", say("watch.notes"))
    lists = (slot("corrections", "ul"), slot("note-list", "ul"))
    notes = slot("notes", "section", title, *lists, class_="notes", hidden=True)
    lines = slot("plan", "ul")
    plan = slot("plan-box", "details", tag("summary", say("watch.plan")), lines, class_="folded", hidden=True)
    scroll = tag("div", slot("log", "ol"), tabindex="0", role="region", aria_label=say("watch.log"), class_="log")
    log = slot("log-box", "details", tag("summary", say("watch.log")), scroll, class_="folded")
    return tag("div", notes, plan, log, class_="more")


def _stop_dialog() -> Markup:
    choices = [("stop", "keep", "primary"), ("stop_now", "now", ""), ("discard", "discard", "danger")]
    rows = [
        tag(
            "div",
            tag("button", say(f"watch.stop.{key}"), value=value, class_=f"push {kind}".strip()),
            tag("p", say(f"watch.stop.{key}.help")),
        )
        for value, key, kind in choices
    ]
    return dialog("stop-dialog", say("watch.stop.title"), *rows, way_back(say("watch.stop.back")))
