"""The states of a run in words for people: one table, which tab title, page, history and command line all read.

It stands on the light floor, since the command line does not know the window.
"""

from __future__ import annotations

from core.runs.record import State

__all__ = ["STATE_WORDS"]

STATE_WORDS: dict[State, str] = {
    "queued": "Waiting",
    "starting": "Starting",
    "training": "Training",
    "paused": "Paused",
    "finished": "Finished",
    "stopped": "Stopped",
    "failed": "Failed",
    "lost": "Interrupted",
}
