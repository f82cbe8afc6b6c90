"""The glossary: every word of the trade that window, command line and README use, explained once.

    terms ─► PARTS ─► help of knobs · /glossary · launcher.py explain · README's "Words"

Its parts stand in the order of the way through. A second language is as many tables, keyed alike.
"""

import re

from core.contract.glossary.learning import LEARNING
from core.contract.glossary.terms import ADAPTER, DATA, HOME, MEMORY, MODEL, WATCHING, Part, Term

PARTS: tuple[Part, ...] = (
    Part("data", "Data", DATA),
    Part("model", "Model", MODEL),
    Part("adapter", "Adapter", ADAPTER),
    Part("learning", "Learning", LEARNING),
    Part("memory", "Memory and speed", MEMORY),
    Part("watching", "Watching and trying", WATCHING),
    Part("home", "Saving and taking home", HOME),
)

GLOSSARY: dict[str, Term] = {term.key: term for part in PARTS for term in part.terms}
"""Key to term, in the order of the parts."""


def called(term: Term) -> set[str]:
    """Every way to write a term's name, as ``plainly`` has them."""
    words = (term.key, *re.split(r"[()]", term.name), *term.names)
    return {plainly(word) for word in words if word.strip()}


def plainly(word: str) -> str:
    """A name as it is compared: small letters, a blank for every ``_`` and ``-``: ``max_length`` is ``max length``."""
    return " ".join(word.lower().replace("_", " ").replace("-", " ").split())
