"""A word of the trade, explained once: what the glossary (``core/contract/glossary/words.py``) is made of.

A term has the field's name, by which people search for it. Its first sentence (``brief``) says it in plain words and
also stands alone, as the help of a setting that asks for it (``knob(term=…)``); ``more`` goes on where a person wants
to know.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """A word explained. ``key`` is its anchor on the page and what ``explain`` takes."""

    key: str
    name: str
    """The field's name; a second one may stand behind it in brackets."""
    brief: str
    more: str
    also: tuple[str, ...] = ()
    """Keys of terms that are near."""
    names: tuple[str, ...] = ()
    """Other words by which a person may ask for it."""

    @property
    def text(self) -> str:
        """The whole explanation."""
        return f"{self.brief} {self.more}"


@dataclass(frozen=True)
class Part:
    """Terms that belong together."""

    key: str
    title: str
    terms: tuple[Term, ...]
