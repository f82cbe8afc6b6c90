"""A training that nobody steers and of which nothing is kept: what a bench and a rehearsal hand to the loop."""

from __future__ import annotations

from typing import Any

__all__ = ["NoMailbox", "NoSaver"]


class NoMailbox:
    """No command ever comes."""

    def poll(self) -> list[Any]:
        """Nothing."""
        return []


class NoSaver:
    """Held-out losses may be measured; no checkpoint is kept."""

    def is_best(self, _loss: float) -> bool:
        """Never: what is best is not kept either."""
        return False

    def measured(self, _step: int, _loss: float) -> None:
        """No checkpoint stands that could be told."""
