"""The window's words and the look-up: ``say("key", name=value)``.

Words stand in tables by page (``words_start``: the frame and New run; ``words_data``: its Data block; ``words_runs``:
watch, try and take home; ``words_history``; ``words_proof``: menu and proof; ``words_glossary``), keyed alike: a second
language is as many more. Knobs and errors bring their words from where they are declared.
"""

from __future__ import annotations

from studio.words.access import DOOR
from studio.words.data import DATA
from studio.words.glossary import GLOSSARY_WORDS
from studio.words.history import HISTORY
from studio.words.proof import PROOF
from studio.words.runs import RUNS, STATES
from studio.words.start import START

__all__ = ["STATES", "say"]


class _Say:
    """Looks a key up and fills in its values. An unknown key is a fault of ours and raises KeyError."""

    def __init__(self, *tables: dict[str, str]) -> None:
        self._words: dict[str, str] = {}
        for table in tables:
            twice = self._words.keys() & table.keys()
            if twice:
                raise ValueError(f"words declared twice: {', '.join(sorted(twice))}")
            self._words |= table

    def __call__(self, key: str, /, **values: object) -> str:
        return self._words[key].format(**values) if values else self._words[key]

    def get(self, key: str) -> str:
        """The words of a key that may be missing; empty then."""
        return self._words.get(key, "")

    def under(self, prefix: str) -> dict[str, str]:
        """All words below ``prefix.``, by the rest of their key."""
        start = f"{prefix}."
        return {key.removeprefix(start): words for key, words in self._words.items() if key.startswith(start)}


say = _Say(DOOR, START, DATA, RUNS, HISTORY, PROOF, GLOSSARY_WORDS)
