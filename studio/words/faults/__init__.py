"""What a page says of a fault: its cause in a person's words, and what to do. The log and the command line say what was
expected and found (``core.contract.faults``)."""

from typing import Any

from core.contract.errors import Fault
from core.contract.events import Failed
from core.contract.faults import TEXTS
from studio.words.faults.data import DATA
from studio.words.faults.hub import HUB
from studio.words.faults.kinds import Words
from studio.words.faults.machine import MACHINE
from studio.words.faults.models import MODELS
from studio.words.faults.runs import RUNS
from studio.words.faults.tools import TOOLS
from studio.words.faults.window import WINDOW

SAID: dict[str, Words] = {**DATA, **HUB, **MACHINE, **MODELS, **RUNS, **TOOLS, **WINDOW}
"""By the keys of ``TEXTS``."""


def said(fault: Fault | Failed) -> tuple[str, str]:
    """Cause and what to do; the log's own words where key or values come from another version."""
    words = SAID.get(fault.key)
    if words is None:
        return fault.message, fault.hint
    shown = {name: _shown(value) if isinstance(value, str) else value for name, value in fault.values.items()}
    try:
        if isinstance(words, str):
            return words.format(**shown), fault.hint
        cause, cure = (part.format(**shown) for part in words)
        hint = TEXTS[fault.key][1].format(**fault.values).strip()
    except (KeyError, ValueError, IndexError):
        return fault.message, fault.hint
    more = fault.hint.removeprefix(hint).strip()  # the single problems of an event
    return cause, f"{cure} {more}".strip()


def _shown(value: str) -> str:
    """A value with what no page can show written out: foreign names may hold half a letter, or marks that turn text."""
    return "".join(
        letter if letter.isprintable() or letter.isspace() else letter.encode("unicode_escape").decode()
        for letter in value
    )


def in_one(fault: Fault | Failed) -> str:
    """Both as one line."""
    return " ".join(said(fault)).strip()


def told(fault: Fault) -> dict[str, Any]:
    """``Fault.told`` in a page's words."""
    message, hint = said(fault)
    return {**fault.told(), "message": message, "hint": hint}
