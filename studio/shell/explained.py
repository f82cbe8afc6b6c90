"""The glossary's words as HTML: on their own page, folded beside a group of settings, and as links from elsewhere."""

from core.contract.config import RunConfig
from core.contract.glossary.terms import Term
from core.contract.glossary.words import GLOSSARY, called
from core.contract.knobs import Knob, knobs
from studio.shell.markup import Markup, join, tag
from studio.words.text import say

PATH = "/glossary"
_KNOBS = knobs(RunConfig)


def entry(term: Term) -> Markup:
    """A term with its anchor, the settings that it explains, and its neighbours; a group of a ``dl``."""
    names = {"data_names": " ".join(sorted(called(term)))}
    links = [tag("a", near.name, href=f"#{near.key}") for near in map(GLOSSARY.__getitem__, term.also)]
    neighbours = tag("span", say("glossary.also"), " ", Markup(", ".join(links))) if links else None
    more = tag("dd", _settings(term), neighbours, class_="aside")
    return tag("div", _name(term), tag("dd", term.text), more, id=term.key, class_="term", **names)


def of_knobs(group: str, title: str) -> Markup:
    """The terms that the settings of a group use, folded."""
    named = dict.fromkeys(knob.term for knob in _KNOBS.values() if knob.group == group and knob.term)
    pairs = (tag("div", _name(term), tag("dd", term.text)) for term in map(GLOSSARY.__getitem__, named))
    inner = tag("dl", *pairs, class_="terms")
    link = tag("p", leads_to("", say("glossary.all")))
    summary = tag("summary", say("glossary.group"), aria_label=say("glossary.group.name", group=title))
    return tag("details", summary, inner, link, class_="group-words")


def leads_to(anchor: str, words: str) -> Markup:
    """A quiet link to a term, to a part of the glossary (``part-memory``), or to all of it."""
    return tag("a", words, href=f"{PATH}#{anchor}" if anchor else PATH, class_="what-is")


def _name(term: Term) -> Markup:
    return tag("dt", tag("b", term.name))


def _settings(term: Term) -> Markup | None:
    settings = [_setting(knob, term) for knob in _KNOBS.values() if knob.term == term.key]
    return tag("span", say("glossary.setting"), " ", Markup(", ".join(settings))) if settings else None


def _setting(knob: Knob, term: Term) -> Markup:
    """Its key in run.yaml, with its label where that differs from the term's name."""
    code = tag("code", knob.key)
    return code if knob.label == term.name else join(code, f": {knob.label}")
