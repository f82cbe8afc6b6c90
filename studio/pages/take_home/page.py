"""The take-home page: exports, with their progress and checks. Filled by ``assets/js/pages/take_home.js``."""

from typing import get_args

from core.contract.forms import DEFAULT_FORM, FORMS, FinishedFrom
from studio.pages.take_home.words import say
from studio.services.services import Studio
from studio.shell.explained import leads_to
from studio.shell.markup import Markup, join, tag
from studio.shell.slots import button, fault_line, live, none_yet, run_choice, slot, verdict


def page(_: Studio) -> Markup:
    """The skeleton; sizes, exports and progress are filled in by the script."""
    named = {key: say(f"run.{key}") for key in ("copy", "copied", "not_copied", "unsaved")}
    shown = {key: say(f"home.{key}") for key in ("progress", "uses", "lines", "stop")}
    words = {**named, **shown, "unsaved_do": say("run.unsaved.do"), "hub": say.under("hub")}
    about = tag("p", say("home.about"), " ", leads_to("part-home", say("glossary.choices")), class_="about")
    head = tag("header", tag("h1", say("home.title")), about)
    jobs = slot("jobs-box", "section", tag("h2", say("home.list")), slot("jobs", "ul", class_="jobs"), hidden=True)
    some = slot("some", "div", _form(), fault_line(), jobs, hidden=True)
    return live("take_home", words, head, none_yet(), some)


def _form() -> Markup:
    legend = tag("legend", say("home.form"))
    forms = tag("fieldset", legend, *(_choice(form, form == DEFAULT_FORM) for form in FORMS), class_="forms")
    name = slot("name", "input", type="text", name_="name", pattern=r"[A-Za-z0-9][A-Za-z0-9._\-]{0,63}", maxlength="64")
    named = tag("label", tag("span", say("home.name")), name)
    send = tag("button", say("home.send"), type="submit", class_="push primary", data_f="send", disabled=True)
    actions = tag("div", send, slot("disk", class_="hint"), class_="actions")
    command = tag("details", tag("summary", say("home.command")), _copied("command"), class_="folded")
    missing = slot("missing", "div", slot("missing-words", "p"), _copied("install"), class_="missing", hidden=True)
    inner = (run_choice(named), verdict(), forms, _options(), missing, actions, command)
    return slot("form", "form", *inner, class_="card")


def _copied(name: str) -> Markup:
    """A command with the button that copies it."""
    return tag(
        "p", slot(name, "code", class_="path"), button(say("run.copy"), "quiet", data_copy=name), class_="job-path"
    )


def _choice(key: str, checked: bool = False) -> Markup:
    radio = tag("input", type="radio", name_="form", value=key, checked=checked)
    title = tag("span", tag("b", say(f"home.{key}")), slot(f"size-{key}", class_="size"))
    words = tag("span", title, slot(f"for-{key}", class_="hint"))
    return tag("label", radio, words, class_="form-choice")


def _options() -> Markup:
    """What only some forms ask; the script shows what the chosen one reads."""
    kinds = tag("select", name_="quantisation", data_f="quantisation")
    kind = tag("label", tag("span", say("home.quantisation")), kinds, slot("kind-use", class_="hint"))
    weights = tag("select", *(tag("option", say(f"weights.{name}"), value=name) for name in get_args(FinishedFrom)),
                  name_="weights", data_f="weights")  # fmt: skip
    base = tag("label", tag("span", say("home.weights")), weights, tag("span", say("home.weights.use"), class_="hint"))
    box = tag("input", type="checkbox", name_="importance", data_f="importance")
    words = tag("span", tag("b", say("home.importance")), tag("span", say("home.importance.use"), class_="hint"))
    asked = {
        "quantisation": join(kind, leads_to("gguf", say("home.options.words"))),
        "importance": tag("label", box, words, class_="check"),
        "weights": base,
    }
    parts = (slot(f"option-{name}", "div", part, hidden=True) for name, part in asked.items())
    return slot("options", "div", *parts, class_="options", hidden=True)
