"""A report as one HTML file to give away: the page's own sections with their styles inside, no script, no link outside.

Its content policy allows nothing but those styles, so that a text in it cannot load or run anything.
"""

from functools import cache

from core.machine.locations import ASSETS
from studio.pages.report.words import say
from studio.shell.markup import Markup, join, tag

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def as_file(title: str, about: str, content: Markup) -> str:
    """The whole file."""
    top = join(
        Markup('<meta charset="utf-8">'),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        tag("title", say("report.of_run", title=title)),
        tag("style", _styles()),
    )
    header = tag("header", tag("h1", title), tag("p", about, class_="about"), class_="report-title")
    main = tag("main", header, content, class_="given")
    return join(Markup("<!doctype html>"), tag("html", tag("head", top), tag("body", main), lang="en"))


@cache
def _styles() -> Markup:
    """The window's colours and the report's own rules."""
    tokens = (ASSETS / "studio.css").read_text(encoding="utf-8").partition("/* ══ The frame")[0]
    return Markup(tokens + (ASSETS / "report.css").read_text(encoding="utf-8"))
