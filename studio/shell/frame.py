"""The frame around every page: head, header and navigation, there before any script has run.

Plain pages are made whole here (``document``); ``responses.py`` puts the same head and header into Gradio's page. A
live page names all modules of its script in its head, so that the browser requests them at once.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from core.machine.locations import ASSETS
from studio.shell.assets import asset
from studio.shell.installed import manifest_head
from studio.shell.markup import Markup, icon, join, tag
from studio.words.text import say

LINKS = (("/", "nav.new"), ("/watch", "nav.watch"), ("/try", "nav.try"), ("/history", "nav.history"))
MORE = (
    ("/report", "nav.report"),
    ("/take-home", "nav.take"),
    ("/doctor", "nav.doctor"),
    ("/proof", "nav.proof"),
    ("/glossary", "nav.glossary"),
    ("/settings", "nav.settings"),
)
TITLES = {**dict(LINKS), **dict(MORE)}
PAGES = tuple(TITLES)
"""The paths of all pages."""
Now = Mapping[str, Any]
"""What is at work, as ``studio/figures/now.py`` tells it; empty where nothing is known of it."""
_IMPORT = re.compile(r'^import .* from "(\.[\w./]+\.js)";$', re.MULTILINE)
_LIVE = re.compile(r' data-live="(\w+)"')


def document(path: str, content: Markup, now: Now, script: str = "") -> Markup:
    """A whole page: the frame around ``content``, and one module as its script, by default that of live pages."""
    sheet, script = tag("link", rel="stylesheet", href=asset("runs.css")), script or asset("studio.js")
    top = join(
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        title(path), head(), sheet, preloads(content), tag("script", type="module", src=script),
    )  # fmt: skip
    main = tag("main", content, id="page", tabindex="-1", class_="plain")
    return join(
        Markup("<!doctype html>"), tag("html", tag("head", top), tag("body", header(path, now), main), lang="en")
    )


def title(path: str) -> Markup:
    """The title of the page at ``path``; empty for any other path."""
    return tag("title", f"{say(TITLES[path])} · {say('app')}") if path in TITLES else Markup()


def head() -> Markup:
    """What stands in every page's head."""
    return join(
        tag("link", rel="stylesheet", href=asset("studio.css")),
        tag("link", rel="icon", type="image/svg+xml", href=asset("logo.svg")),
        manifest_head(),
        Markup('<meta name="color-scheme" content="light dark">'),
        tag("script", src=asset("frame.js")),
    )


def header(path: str, now: Now) -> Markup:
    """The skip link, the logo, the navigation with the page at ``path`` marked as open, and the run at work.

    The logo links to the same page as the first link, so Tab skips it.
    """
    mark = tag(
        "a", icon("logo"), tag("span", say("app")), href="/", class_="mark", aria_label=say("nav.home"), tabindex="-1"
    )
    skip = ("#start", "skip.start") if path == "/" else ("#page", "skip")
    inner = tag("div", *_links(MORE, path), theme_choice("theme", say("theme.title")), class_="more-list")
    here = any(path == target for target, _ in MORE)
    more = tag("details", tag("summary", say("nav.more"), data_here=here), inner, class_="more-menu")
    pages = tag("nav", *_links(LINKS, path), more, aria_label=say("nav.label"))
    way = tag("a", say(skip[1]), href=skip[0], class_="skip")
    return join(way, tag("header", mark, pages, _at_work(now), class_="top"))


def theme_choice(name: str, legend: str, **attributes: object) -> Markup:
    """The theme's switches, kept by the browser (``assets/frame.js``), under a name that no others of the page have."""
    choices = []
    for theme in ("", "light", "dark"):
        switch = tag("input", type="radio", name_=name, value=theme, data_theme_choice=True)
        choices.append(tag("label", switch, say(f"theme.{theme or 'system'}")))
    return tag("fieldset", tag("legend", legend), *choices, **attributes)


def _at_work(now: Now) -> Markup:
    """A link to the run at work with its progress; ``assets/js/now.js`` keeps it up to date, and has its begin and end
    read out."""
    parts = (
        tag("span", now.get(name, ""), data_now=name, class_=f"now-{name}")
        for name in ("word", "percent", "title", "left", "waiting")
    )
    share = now.get("share")
    bar = tag("progress", value=share, max="1", data_now="share", aria_hidden="true", hidden=share is None)
    at_work = now.get("id", "")
    link = tag(
        "a",
        *parts,
        bar,
        href=f"/watch?run={at_work}" if at_work else "/history",
        class_="now",
        hidden=not (at_work or now.get("waiting")),
        data_id=at_work,
        data_words=json.dumps(say.under("now")),
    )
    return join(link, tag("span", role="status", class_="sr-only", data_now="said"))


def _links(links: Iterable[tuple[str, str]], path: str) -> list[Markup]:
    return [tag("a", say(words), href=to, aria_current="page" if to == path else None) for to, words in links]


def preloads(content: Markup) -> Markup:
    """The preloads for a page with this content; empty where it is not live."""
    live = _LIVE.search(content)
    if live is None:
        return Markup()
    names = dict.fromkeys((*_needed(f"pages/{live.group(1)}.js"), *_needed("notice.js")))
    return join(*(tag("link", rel="modulepreload", href=asset(f"js/{name}")) for name in names))


@cache
def _needed(script: str) -> tuple[str, ...]:
    """A script and all its imports, itself first; paths below ``assets/js``."""
    names = [script]
    for name in names:  # grows while it is walked
        source = (ASSETS / "js" / name).read_text(encoding="utf-8")
        imported = (os.path.normpath(f"{name}/../{path}") for path in _IMPORT.findall(source))
        names += [other for other in imported if other not in names]
    return tuple(names)
