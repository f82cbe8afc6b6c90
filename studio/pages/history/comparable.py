"""Which runs may be ranked against each other: those whose losses are the same quantity over the same held-out rows.

method        another one has another loss
its settings  what a method's loss depends on beside the rows (``core.contract.methods``)
rows          the held-out tokens, by the draw that each run keeps; without one, all that decides them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.contract.config import RunConfig
from core.contract.knobs import knobs
from core.runs.folder.held_out_rows import Draw
from core.runs.folder.repeat import flat
from studio.pages.history.words import say

_KNOBS = knobs(RunConfig)


@dataclass(frozen=True)
class Basis:
    """What a run's losses are measured by; ``config`` is None where it cannot be read."""

    config: RunConfig | None
    draw: Draw | None

    def differs(self, other: Basis) -> str:
        """Why the two cannot be ranked: ``method``, ``rows``, or the key of a setting; empty where they can."""
        if self.config is None or other.config is None:
            return "unknown"
        if (learning := self.config.learning) != other.config.learning:
            return "method"
        mine, theirs = flat(self.config), flat(other.config)
        if changed := next((key for key in learning.loss_of if mine.get(key) != theirs.get(key)), ""):
            return str(changed)
        if self.draw and other.draw:
            return "" if self.draw.measures_alike(other.draw) else "rows"
        return "" if _rows_of(self.config) == _rows_of(other.config) else "rows"


def _rows_of(config: RunConfig) -> list[Any]:
    """All settings that decide which tokens are held out; the content of the file, where it is known, not its place."""
    data = config.data.model_dump(exclude={"path"} if config.data.sha256 else {"sha256"})
    return [data, config.train.seed, config.train.max_length, config.model.name, config.model.revision]


def groups(runs: Sequence[Basis]) -> list[list[int]]:
    """The runs by their places, together where they can be ranked, in the order of the first of each group."""
    found: list[list[int]] = []
    for place, run in enumerate(runs):
        home = next((group for group in found if not runs[group[0]].differs(run)), None)
        if home is None:
            found.append([place])
        else:
            home.append(place)
    return found


def apart_words(runs: Sequence[Basis], found: Sequence[Sequence[int]]) -> str:
    """One sentence on why the groups are drawn apart; empty where there is but one."""
    firsts = [runs[group[0]] for group in found]
    pairs = [(one, other) for place, one in enumerate(firsts) for other in firsts[place + 1 :]]
    reasons = list(dict.fromkeys(_reason(one.differs(other)) for one, other in pairs))
    return say("compare.apart", why=", ".join(reasons)) if reasons else ""


def _reason(key: str) -> str:
    if words := say.get(f"compare.apart.{key}"):
        return words
    label = _KNOBS[key].label if key in _KNOBS else say.get(f"compare.key.{key}") or key
    return say("compare.apart.setting", setting=label)
