"""Words of the frame around every page and of New run."""

from __future__ import annotations

__all__ = ["START"]

START: dict[str, str] = {
    "app": "Luthier",
    "skip": "Skip to the page",
    "nav.label": "Pages",
    "nav.new": "New run",
    "nav.watch": "Watch",
    "nav.history": "History",
    "nav.doctor": "Doctor",
    "nav.try": "Try it",
    "nav.take": "Take it home",
}
