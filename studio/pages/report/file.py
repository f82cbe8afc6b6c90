"""A report, or several beside each other, as one HTML file to give away: the page's own sections with their styles
inside, no script, no link outside.

Its content policy allows nothing but those styles, so that a text in it cannot load or run anything.
"""

from collections.abc import Sequence

from core.machine.locations import ASSETS
from core.runs.control.store import RunStore
from studio.pages.report.compared.runs import MOST, Compared, compared
from studio.pages.report.compared.whole import together
from studio.pages.report.reading import made_words, needed, title_now
from studio.pages.report.sections.whole import whole
from studio.pages.report.words import say
from studio.shell.markup import Markup, join, tag

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def file_of(store: RunStore, run_ids: Sequence[str]) -> str:
    """The file on these runs, under the names that they have now.

    Raises:
        RunError: one has no report, or there are more than five.
    """
    if len(run_ids) == 1:
        report = needed(store, run_ids[0])
        return as_file(title_now(store, run_ids[0]), made_words(report), whole(report))
    beside = beside_each_other(store, run_ids)
    return as_file(say("report.compared", count=len(beside)), say("report.about"), together(beside))


def beside_each_other(store: RunStore, run_ids: Sequence[str]) -> list[Compared]:
    """The reports of these runs in their places.

    Raises:
        RunError: one has no report, or there are fewer than two or more than five.
    """
    return compared([(title_now(store, run_id), needed(store, run_id)) for run_id in run_ids[: MOST + 1]])


def as_file(title: str, about: str, content: Markup) -> str:
    """The whole file, with the window's colours and the report's own rules."""
    tokens = (ASSETS / "studio.css").read_text(encoding="utf-8").partition("/* ══ The frame")[0]
    styles = Markup(tokens + (ASSETS / "report.css").read_text(encoding="utf-8"))
    top = join(
        Markup('<meta charset="utf-8">'),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        tag("title", say("report.of_run", title=title)),
        tag("style", styles),
    )
    header = tag("header", tag("h1", title), tag("p", about, class_="about"), class_="report-title")
    main = tag("main", header, content, class_="given")
    return join(Markup("<!doctype html>"), tag("html", tag("head", top), tag("body", main), lang="en"))
