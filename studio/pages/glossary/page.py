"""The glossary page: every term that the studio uses, with a search (``assets/js/pages/glossary.js``)."""

from core.contract.glossary.terms import Part
from core.contract.glossary.words import PARTS
from studio.pages.glossary.words import say
from studio.services.services import Studio
from studio.shell.assets import asset
from studio.shell.explained import entry
from studio.shell.markup import Markup, tag
from studio.shell.slots import live, slot


def page(_: Studio) -> Markup:
    """Search, links to the parts, and the terms; only the search needs the script."""
    sheet = tag("link", rel="stylesheet", href=asset("glossary.css"))
    head = tag("header", tag("h1", say("glossary.title")), tag("p", say("glossary.about"), class_="about"))
    leaps = (tag("li", tag("a", part.title, href=f"#part-{part.key}")) for part in PARTS)
    aside = tag("nav", tag("ul", *leaps), aria_label=say("glossary.parts"), class_="parts-of")
    parts = tag("div", *map(_part, PARTS), class_="glossary-parts")
    body = tag("div", aside, parts, class_="glossary-columns")
    return live("glossary", say.under("glossary"), sheet, tag("div", head, _search(), class_="glossary-head"), body)


def _search() -> Markup:
    field = slot("search", "input", type="search", placeholder=say("glossary.search.hint"), autocomplete="off")
    count = slot("count", "p", role="status", class_="hint")
    label = tag("label", tag("span", say("glossary.search")), field)
    return tag("div", label, count, class_="glossary-search")


def _part(part: Part) -> Markup:
    heading = tag("h2", part.title, id=f"part-{part.key}")
    terms = tag("dl", *map(entry, part.terms), class_="terms")
    return tag("section", heading, terms, class_="card", data_part=part.key, aria_labelledby=f"part-{part.key}")
