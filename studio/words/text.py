"""The look-up of words: ``say("key", name=value)``.

Words of several pages are in tables here; a page's own are in its ``words.py``, whose ``say`` knows both. Settings and
errors have their words where they are declared.
"""

from __future__ import annotations

from studio.words.access import ACCESS
from studio.words.frame import FRAME
from studio.words.runs import RUNS


class Words:
    """Looks a key up and fills in its values; KeyError for an unknown one."""

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
        """The words of a key, or empty."""
        return self._words.get(key, "")

    def every(self) -> dict[str, str]:
        """All words by key."""
        return dict(self._words)

    def under(self, prefix: str) -> dict[str, str]:
        """All words below ``prefix.``, by the rest of their key, for a page's script."""
        start = f"{prefix}."
        return {key.removeprefix(start): words for key, words in self._words.items() if key.startswith(start)}


say = Words(ACCESS, FRAME, RUNS)
