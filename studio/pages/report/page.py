"""The report page: one run's report or two to five beside each other, made on the server. Its script
(``assets/js/pages/report.js``) looks for a newer one, starts and stops the making, and edits the checks.

::

    /report              the newest report
    /report?run=A        one run's
    /report?run=A&run=B  a comparison
"""

from collections.abc import Sequence
from typing import Any

from core.contract.errors import Fault
from core.report.choices import read_choices
from core.report.schema import Report
from studio.pages.report.compared.runs import MOST
from studio.pages.report.compared.whole import together
from studio.pages.report.editing import editing, editing_words
from studio.pages.report.file import beside_each_other
from studio.pages.report.reading import Run, made_words, making, report_of, runs_of, stale
from studio.pages.report.sections.whole import whole
from studio.pages.report.view import lacks
from studio.pages.report.words import say
from studio.services.services import Studio
from studio.shell.assets import asset
from studio.shell.explained import leads_to
from studio.shell.markup import Markup, fault, join, tag
from studio.shell.slots import button, fault_line, live, slot


def page(studio: Studio, asked: Sequence[str]) -> Markup:
    """The page of these runs; without any, of the newest report, else of the newest run."""
    runs = runs_of(studio.store)
    wanted = list(dict.fromkeys(asked)) or [run.run_id for run in sorted(runs, key=lambda run: not run.reported)[:1]]
    sheet = tag("link", rel="stylesheet", href=asset("report.css"))
    words: dict[str, Any] = {}
    try:
        if not wanted:
            about = tag("header", tag("h1", say("report.title")), tag("p", say("report.about"), class_="about"))
            link = tag("a", say("run.none.do"), href="/", class_="push primary")
            content = join(about, tag("div", tag("p", say("run.none")), link, class_="none-yet"))
        elif len(wanted) > 1:
            content = _several(studio, wanted, runs)
        else:
            words, content = _one(studio, wanted[0], runs)
    except Fault as error:
        content = join(_head(runs, ""), fault(error))
    return live("report", words, sheet, content)


def _head(runs: Sequence[Run], chosen: str, *actions: object) -> Markup:
    """The title, the choice of a run, and what can be done with its report."""
    words = leads_to("part-watching", say("glossary.choices"))
    about = tag("div", tag("h1", say("report.title")), tag("p", say("report.about"), " ", words, class_="about"))
    options = [tag("option", _option(run), value=run.run_id, selected=run.run_id == chosen) for run in runs]
    if chosen not in {run.run_id for run in runs}:
        options.insert(0, tag("option", say("report.choose"), value="", selected=True))
    choice = tag("label", tag("span", say("run.choose")), slot("run", "select", *options, name_="run"))
    return tag("header", about, tag("div", choice, *actions, class_="report-choice"), class_="report-top")


def _option(run: Run) -> str:
    return " · ".join((run.title, say("report.stands") if run.reported else run.word))


# ── one run ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _one(studio: Studio, run_id: str, runs: Sequence[Run]) -> tuple[dict[str, Any], Markup]:
    """One run's report, or how to make it."""
    report, run = report_of(studio.store, run_id), next((one for one in runs if one.run_id == run_id), None)
    state = making(studio.store, run_id)
    choices = read_choices(studio.locations)
    words = {
        "run": run_id,
        "state": state,
        "reported": report is not None,
        "editing": editing_words(choices, report.data if report else ""),
    }
    actions = _files(f"run={run_id}") if report else None
    changed = report is not None and stale(studio.store, report)
    box = _making(report, run is not None and run.living, changed)
    compare = _compare_with(runs, run_id) if report else None
    more = tag("div", compare, editing(), class_="report-more")
    # A report stands first, and what can be done with it below; what is missing or being made is told of first.
    shown = whole(report) if report else None
    parts = (shown, box) if report and report.held_out and not state["living"] else (box, shown)
    return words, join(_head(runs, run_id, actions), fault_line(), *parts, more)


def _files(query: str) -> Markup:
    """What a report is given away as."""
    links = (
        tag("a", say(f"report.file.{kind}"), href=f"/studio/report.{kind}?{query}", class_="push", download=True)
        for kind in ("html", "json")
    )
    return tag("span", *links, class_="actions")


def _making(report: Report | None, training: bool, changed: bool) -> Markup:
    """Where the making stands, and its buttons; filled by the script. ``changed``: other checks than were counted."""
    missing = say("report.training" if training else "report.none")
    lacking = missing if report is None else say("report.lacks") if lacks(report) else ""
    lines = (
        tag("p", lacking) if lacking else None,
        tag("p", say("report.stale")) if changed else None,
        tag("p", made_words(report), class_="hint") if report else None,
    )
    words = slot("made", "div", *lines, class_="made")
    text, bar = slot("text", "p", role="status"), slot("bar", "progress", max="1", aria_label=say("report.progress"))
    work = slot("work", "div", text, bar, hidden=True)
    kind = "primary" if lacking else "quiet"
    goes_on = say("report.make" if report is None else "report.go_on")
    auto = say("report.minutes.auto")
    minutes = slot("minutes", "input", type="number", min="0", max="10000", step="any", placeholder=auto)
    longer = tag("label", tag("span", say("report.minutes")), minutes)
    pushes = (
        button(say("report.recount"), data_f="count", hidden=not changed),
        button(goes_on, kind, data_make="false", hidden=not lacking),
        button(say("report.again"), "quiet", data_make="true", hidden=report is None),
    )
    asks = None if training else slot("asks", "div", longer, *pushes, class_="actions")
    stop = button(say("report.stop"), "quiet", data_f="stop", hidden=True)
    return tag("section", words, work, asks, stop, class_="card report-making")


def _compare_with(runs: Sequence[Run], run_id: str) -> Markup | None:
    """The other reports, of which up to four can be set beside this one; works without a script."""
    others = [run for run in runs if run.reported and run.run_id != run_id]
    if not others:
        return None
    boxes = (
        tag("label", tag("input", type="checkbox", name_="run", value=run.run_id), tag("span", run.title))
        for run in others
    )
    hidden = tag("input", type="hidden", name_="run", value=run_id)
    send = tag("button", say("report.compare.send"), type="submit", class_="push")
    about = tag("p", say("report.compare.about", most=MOST - 1), class_="hint")
    listed = tag("div", *boxes, class_="others scroll-y")
    form = tag("form", hidden, about, listed, send, method="get", action="/report")
    return tag("details", tag("summary", say("report.compare")), form, class_="folded")


# ── several ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _several(studio: Studio, asked: Sequence[str], runs: Sequence[Run]) -> Markup:
    """Two to five reports beside each other."""
    beside = beside_each_other(studio.store, asked)
    actions = _files("&".join(f"run={run_id}" for run_id in asked))
    return join(_head(runs, "", actions), fault_line(), together(beside))
