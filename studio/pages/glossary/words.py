"""Words of the Glossary page. The terms themselves: ``core/contract/glossary/words.py``."""

from studio.words.text import say as shared

_WORDS = {
    "glossary.title": "Glossary",
    "glossary.about": "What the words of the studio mean, in the order in which a run meets them.",
    "glossary.search": "Find a word",
    "glossary.search.hint": "rank, epochs, 4-bit …",
    "glossary.found": "{count} of {total} words",
    "glossary.none": "No word is called that, and none speaks of it.",
    "glossary.parts": "Parts of the glossary",
}

say = shared.with_words(_WORDS)
