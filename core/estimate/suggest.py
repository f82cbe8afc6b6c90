"""MAKE IT FIT, and USE THE ROOM: single changes and useful pairs of them, each estimated whole, ranked."""

from __future__ import annotations

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.estimate import Suggestion
from core.estimate.learned import Learned
from core.hardware import Machine

__all__ = ["make_it_fit", "use_the_room"]


def make_it_fit(
    config: RunConfig, spec: ModelSpec, facts: DataFacts | None, machine: Machine, learned: Learned | None = None
) -> tuple[Suggestion, ...]:
    """What makes a run fit that does not, the least costly first; empty where it fits."""
    return ()


def use_the_room(
    config: RunConfig, spec: ModelSpec, facts: DataFacts | None, machine: Machine, learned: Learned | None = None
) -> tuple[Suggestion, ...]:
    """What a run could do with room that is left, the greatest gain first; empty where there is none."""
    return ()
