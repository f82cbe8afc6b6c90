"""One thing that the doctor noticed: a line, and a line that says what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["GIB", "MachineFinding", "advice", "fault", "fine"]

GIB = 1 << 30


@dataclass(frozen=True)
class MachineFinding:
    """One thing noticed. ``action`` is empty where nothing is to be done."""

    level: Literal["fine", "advice", "fault"]
    code: str
    text: str
    action: str = ""


def fine(code: str, text: str, action: str = "") -> MachineFinding:
    """As it should be, or not to be changed."""
    return MachineFinding("fine", code, text, action)


def advice(code: str, text: str, action: str) -> MachineFinding:
    """Works, and would work better."""
    return MachineFinding("advice", code, text, action)


def fault(code: str, text: str, action: str) -> MachineFinding:
    """Does not work until something is done."""
    return MachineFinding("fault", code, text, action)
