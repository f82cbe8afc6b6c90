"""The window's words and the look-up: ``say("key", name=value)``.

What several pages say stands in tables here; a page's own words stand in its ``words.py``, whose ``say`` knows both.
All are keyed alike: a second language is as many tables more. Settings and errors bring their words from where they
are declared.
"""

from __future__ import annotations

from studio.words.access import DOOR
from studio.words.frame import FRAME
from studio.words.runs import RUNS


class Words:
    """Looks a key up and fills in its values. An unknown key is a fault of ours and raises KeyError."""

    def __init__(self, *tables: dict[str, str]) -> None:
        self._words: dict[str, str] = {}
        for table in tables:
            if twice := self._words.keys() & table.keys():
                raise ValueError(f"words declared twice: {', '.join(sorted(twice))}")
            self._words |= table

    def __call__(self, key: str, /, **values: object) -> str:
        return self._words[key].format(**values) if values else self._words[key]

    def with_words(self, table: dict[str, str]) -> Words:
        """A look-up of these words and a page's own."""
        return Words(self._words, table)

    def get(self, key: str) -> str:
        """The words of a key that may be missing; empty then."""
        return self._words.get(key, "")

    def under(self, prefix: str) -> dict[str, str]:
        """All words below ``prefix.``, by the rest of their key: what a page hands to its script."""
        start = f"{prefix}."
        return {key.removeprefix(start): words for key, words in self._words.items() if key.startswith(start)}


say = Words(DOOR, FRAME, RUNS)
