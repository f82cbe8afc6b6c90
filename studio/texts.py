"""Every text of the window, to be read at a sitting::

    python -m studio.texts            all of them
    python -m studio.texts faults     one part

A person who changes words reads them here as somebody who does not know the project would.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

from core.contract.config import RunConfig
from core.contract.faults import TEXTS
from core.contract.glossary.words import GLOSSARY
from core.contract.knobs import knobs
from core.contract.methods import METHODS
from core.estimate.reasons import BECAUSE
from core.models.catalog import presets
from studio.pages.doctor import words as doctor
from studio.pages.glossary import words as glossary
from studio.pages.history import words as history
from studio.pages.new_run import words as new_run
from studio.pages.proof import words as proof
from studio.pages.report import words as report
from studio.pages.settings import words as settings
from studio.pages.take_home import words as take_home
from studio.pages.try_it import words as try_it
from studio.pages.watch import words as watch
from studio.words.faults import SAID
from studio.words.text import say

Lines = Iterator[tuple[str, str]]
"""A text's key, and the text."""


_PAGES: tuple[ModuleType, ...] = (doctor, glossary, history, new_run, proof, report, settings, take_home, try_it, watch)


def _own(page: ModuleType) -> Lines:
    """The words of a page that are its own."""
    return ((key, text) for key, text in page.say.every().items() if not say.get(key))


def _faults() -> Lines:
    """Cause and what to do, as a page says them."""
    for key, (_, hint) in TEXTS.items():
        words = SAID[key]
        yield key, f"{words} {hint}".strip() if isinstance(words, str) else " ".join(words)


PARTS: dict[str, Callable[[], Lines]] = {
    "every page": lambda: iter(say.every().items()),
    **{page.__name__.split(".")[-2]: lambda page=page: _own(page) for page in _PAGES},  # type: ignore[misc]
    "knobs": lambda: ((knob.key, f"{knob.label}: {knob.hint}") for knob in knobs(RunConfig).values()),
    "why a setting is proposed": lambda: iter(BECAUSE.items()),
    "methods": lambda: ((key, f"{row.title}: {row.reason}") for key, row in METHODS.items()),
    "presets": lambda: ((recipe.key, f"{recipe.title}: {recipe.goal}") for recipe in presets()),
    "words": lambda: ((term.key, f"{term.name}: {term.brief} {term.more}") for term in GLOSSARY.values()),
    "faults": _faults,
}
"""What is printed, by its heading."""


def main(arguments: Sequence[str]) -> int:
    """Prints the parts that are named, else all."""
    if unknown := set(arguments) - PARTS.keys():
        print(f"Expected some of {', '.join(PARTS)}, found {', '.join(unknown)}.", file=sys.stderr)
        return 1
    for name in arguments or PARTS:
        print(f"\n── {name} ──\n")
        for key, text in PARTS[name]():
            print(f"{key:40} {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
