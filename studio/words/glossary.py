"""Words of the Glossary page and of the places that lead to it. The terms themselves:
``core/contract/glossary/words.py``.
"""

from __future__ import annotations

__all__ = ["GLOSSARY_WORDS"]

GLOSSARY_WORDS: dict[str, str] = {
    "nav.glossary": "Glossary",
    "glossary.title": "Glossary",
    "glossary.about": "What the words of the studio mean, in the order in which a run meets them.",
    "glossary.search": "Find a word",
    "glossary.search.hint": "rank, epochs, 4-bit …",
    "glossary.found": "{count} of {total} words",
    "glossary.none": "No word is called that, and none speaks of it.",
    "glossary.parts": "Parts of the glossary",
    "glossary.setting": "Setting:",
    "glossary.also": "See also:",
    "glossary.group": "What these words mean",
    "glossary.group.name": "What the words of “{group}” mean",
    "glossary.all": "All words",
    "glossary.readings": "What the readings mean",
    "glossary.choices": "What these words mean",
}
"""Key to words; ``{name}`` is filled in by ``say``, or by the page's script."""
