"""The take-home page: exports, with their progress and checks. Filled by ``assets/js/pages/take_home.js``."""

from core.contract.forms import DEFAULT_FORM, FORMS
from studio.pages.take_home.words import say
from studio.services.services import Studio
from studio.shell.explained import leads_to
from studio.shell.markup import Markup, tag
from studio.shell.slots import button, live, none_yet, run_choice, slot, verdict

# ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def page(_: Studio) -> Markup:
    """The skeleton; sizes, exports and progress are filled in by the script."""
    words = {key: say(f"run.{key}") for key in ("copy", "copied", "not_copied")} | {"progress": say("home.progress")}
    words |= {"stop": say("home.stop"), "unsaved": say("run.unsaved"), "unsaved_do": say("run.unsaved.do")}
    about = tag("p", say("home.about"), " ", leads_to("part-home", say("glossary.choices")), class_="about")
    head = tag("header", tag("h1", say("home.title")), about)
    fault = slot("fault", "p", role="alert", class_="fault-line", hidden=True)
    jobs = slot("jobs-box", "section", tag("h2", say("home.list")), slot("jobs", "ul", class_="jobs"), hidden=True)
    some = slot("some", "div", _form(), fault, jobs, hidden=True)
    return live("take_home", words, head, none_yet(), some)


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _form() -> Markup:
    legend = tag("legend", say("home.form"))
    forms = tag("fieldset", legend, *(_choice(form, form == DEFAULT_FORM) for form in FORMS), class_="forms")
    name = slot("name", "input", type="text", name_="name", pattern=r"[A-Za-z0-9][A-Za-z0-9._\-]{0,63}", maxlength="64")
    named = tag("label", tag("span", say("home.name")), name)
    send = tag("button", say("home.send"), type="submit", class_="push primary", data_f="send", disabled=True)
    actions = tag("div", send, slot("disk", class_="hint"), class_="actions")
    copying = button(say("run.copy"), "quiet", data_copy="command")
    same = tag("p", slot("command", "code", class_="path"), copying, class_="job-path")
    command = tag("details", tag("summary", say("home.command")), same, class_="folded")
    return slot("form", "form", run_choice(named), verdict(), forms, actions, command, class_="card")


def _choice(key: str, checked: bool = False) -> Markup:
    radio = tag("input", type="radio", name_="form", value=key, checked=checked)
    title = tag("span", tag("b", say(f"home.{key}")), " ", slot(f"size-{key}", class_="size"))
    words = tag("span", title, tag("span", say(f"home.{key}.for"), class_="hint"))
    return tag("label", radio, words, class_="form-choice")
