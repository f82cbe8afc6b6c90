"""The take-home page: exports, with their progress and checks. Filled by ``assets/js/pages/take_home.js``."""

from typing import Any

from fastapi import APIRouter

from core.contract.forms import DEFAULT_FORM, FORMS
from core.runs.folder.job_folder import ExportRequest
from core.runs.folder.notes import named_config
from studio.figures.held_out import HeldOut
from studio.figures.history_rows import row
from studio.pages.take_home.view import export_names, keep
from studio.pages.take_home.words import say
from studio.services.services import Studio
from studio.shell.explained import leads_to
from studio.shell.json_routes import DONE
from studio.shell.markup import Markup, tag
from studio.shell.slots import button, fault_line, live, none_yet, run_choice, slot, verdict


def page(_: Studio) -> Markup:
    """The skeleton; sizes, exports and progress are filled in by the script."""
    words = {key: say(f"run.{key}") for key in ("copy", "copied", "not_copied")} | {"progress": say("home.progress")}
    words |= {
        "python": say("home.python"),
        "stop": say("home.stop"),
        "unsaved": say("run.unsaved"),
        "unsaved_do": say("run.unsaved.do"),
    }
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
    copying = button(say("run.copy"), "quiet", data_copy="command")
    same = tag("p", slot("command", "code", class_="path"), copying, class_="job-path")
    command = tag("details", tag("summary", say("home.command")), same, class_="folded")
    return slot("form", "form", run_choice(named), verdict(), forms, actions, command, class_="card")


def _choice(key: str, checked: bool = False) -> Markup:
    radio = tag("input", type="radio", name_="form", value=key, checked=checked)
    title = tag("span", tag("b", say(f"home.{key}")), " ", slot(f"size-{key}", class_="size"))
    words = tag("span", title, slot(f"for-{key}", class_="hint"))
    return tag("label", radio, words, class_="form-choice")


def routes(studio: Studio, held_out: HeldOut) -> APIRouter:
    """``/studio/runs``, ``/studio/run/ID/keep`` (both for Try, too) and ``/studio/run/ID/export``."""
    router = APIRouter(prefix="/studio")
    store = studio.store

    @router.get("/runs")
    def runs() -> dict[str, Any]:
        """The runs that have a checkpoint, and the number of all runs."""
        known = store.list()
        readable = (run for run in known if run.state != "unreadable")
        kept = [row(run) for run in readable if store.open(run.run_id).newest_checkpoint()]
        return {"runs": kept, "all": len(known)}

    @router.get("/run/{run_id}/keep")
    def kept(run_id: str) -> dict[str, Any]:
        folder, record = store.open(run_id), store.record(run_id)
        config = named_config(folder)
        exports = [(name, store.export_record(run_id, name)) for name in export_names(folder)]
        rows = held_out.count(folder.path, config, record.plan)
        return {**keep(folder, record, config, exports), **rows, "command": studio.locations.command("export", run_id)}

    @router.post("/run/{run_id}/export")
    def export(run_id: str, request: ExportRequest) -> dict[str, str]:
        studio.chats.leave()
        return {"name": store.export(run_id, request)}

    @router.post("/run/{run_id}/export/{name}/stop")
    def stop_export(run_id: str, name: str) -> dict[str, bool]:
        store.stop_export(run_id, name)
        return DONE

    return router
