"""Words of the menu in the frame, and of the Proof page."""

from __future__ import annotations

__all__ = ["PROOF"]

_MENU = {
    "nav.more": "More",
    "nav.proof": "Proof",
    "theme.title": "Light or dark",
    "theme.system": "as the system",
    "theme.light": "light",
    "theme.dark": "dark",
}

PROOF: dict[str, str] = {**_MENU}
"""Key to words; ``{name}`` is filled in by ``say``."""
