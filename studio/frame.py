"""The frame around every page: head, header and navigation stand in the first bytes, before any script has run.

Pages of plain HTML are made whole here (``document``); into Gradio's page ``studio/shell.py`` puts the same head and
header.
"""

from __future__ import annotations

from studio.markup import Markup, icon, join, tag
from studio.text import say

__all__ = ["document", "head", "header", "title"]

LINKS = (("/", "nav.new"), ("/watch", "nav.watch"), ("/history", "nav.history"), ("/doctor", "nav.doctor"))
TITLES = {**dict(LINKS), "/try": "nav.try", "/take-home": "nav.take"}
LIVE = "/studio/assets/studio.js"


def document(path: str, content: Markup, script: str = LIVE) -> Markup:
    """A whole page: our frame around ``content``, and one script, which is a module of ours."""
    sheet = Markup('<link rel="stylesheet" href="/studio/assets/runs.css">')
    top = join(
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        title(path), head(), sheet, tag("script", type="module", src=script),
    )  # fmt: skip
    main = tag("main", content, id="page", tabindex="-1", class_="plain")
    return join(Markup("<!doctype html>"), tag("html", tag("head", top), tag("body", header(path), main), lang="en"))


def title(path: str) -> Markup:
    """The title of the page at ``path``; nothing for a path that is no page of ours."""
    return tag("title", f"{say(TITLES[path])} · {say('app')}") if path in TITLES else Markup()


def head() -> Markup:
    """What stands in every page's head."""
    return join(
        Markup('<link rel="stylesheet" href="/studio/assets/studio.css">'),
        Markup('<link rel="icon" type="image/svg+xml" href="/studio/assets/logo.svg">'),
        Markup('<link rel="manifest" crossorigin="use-credentials" href="/studio/assets/app.webmanifest">'),
        Markup('<meta name="color-scheme" content="light dark">'),
    )


def header(path: str) -> Markup:
    """The skip link, our mark and the navigation, with the page at ``path`` marked as the one that is open."""
    links = (
        tag("a", say(words), href=target, aria_current="page" if target == path else None) for target, words in LINKS
    )
    mark = tag("a", icon("logo"), tag("span", say("app")), href="/", class_="mark", aria_label=say("nav.home"))
    return join(
        tag("a", say("skip"), href="#page", class_="skip"),
        tag("header", mark, tag("nav", *links, aria_label=say("nav.label")), class_="top"),
    )
