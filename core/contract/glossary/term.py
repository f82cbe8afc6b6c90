"""A word of the trade, explained once: what the glossary (``core/contract/glossary/words.py``) is made of.

A term has its plain name first and the field's own name second. Its first sentence (``brief``) also stands alone, as
the help of a setting that asks for it (``knob(term=…)``); ``more`` goes on where a person wants to know.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Part", "Term"]


@dataclass(frozen=True)
class Term:
    """A word explained. ``key`` is its anchor on the page and what ``explain`` takes."""

    key: str
    plain: str
    technical: str
    """The field's names for it, commas between, the usual one first; empty where the plain name is the field's own."""
    brief: str
    more: str
    also: tuple[str, ...] = ()
    """Keys of terms that are near."""
    names: tuple[str, ...] = ()
    """Other words by which a person may ask for it."""

    @property
    def heading(self) -> str:
        """Plain words first: ``Size of the adapter (rank)``."""
        return f"{self.plain} ({self.technical})" if self.technical else self.plain

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
