"""How quickly each rank computes, as all of them know it, and so how much of each step it is to have.

Where all cards are alike, shares are even: a step's cut follows from the settings alone, and with it every bit of its
sums. Where they are not, a rank times its own passes (not the sums, in which it waits for others), says so in the sums
of the next step, and after every few steps all take the medians of the same numbers::

    steps    1 to 8: even        9 to 15: by the medians of 1 to 7, which steps 2 to 8 said        16 to 22: of 8 to 14

Held-out rows are always shared evenly, so that a measure means the same from first to last.
A card so slow that it is given no row is not timed, and counts as it did, until the run goes on from a checkpoint.
"""

from __future__ import annotations

import statistics
import time
import zlib
from collections.abc import Sequence
from typing import Any

import torch

from core.machine.hardware import alike
from core.train.ranks.group import Ranks

EVERY = 7
"""Steps whose medians count: the first of a run compiles, and one may hold a sample."""
PARTS = 64
"""A pace is so many parts of the quickest one's: what varies less is noise."""


class Paces:
    """Those of all ranks, the quickest 1; equal until they are found to be unlike."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks, self._unlike = ranks, False
        self.values: tuple[float, ...] = (1.0,) * ranks.count
        self._coming = self.values
        self._heard: list[list[float]] = []
        self._usual: Sequence[float] = [0.0] * ranks.count
        self._begun: Any = None
        self._spells: tuple[tuple[Any, Any, int] | None, ...] = (None, None)
        """Of the last step and the one before it: beginning, end, tokens."""

    def meet(self, kind: tuple[str, int]) -> None:
        """Says what this rank computes on, name and bytes, and hears it of the others. All ranks call it at once."""
        if self._ranks.count > 1:
            name, size = kind
            (first, its), *others = self._ranks.heard([zlib.crc32(name.encode()), size])
            self._unlike = not all(alike((first, its), (other, more)) for other, more in others)

    def begin(self, device: torch.device) -> None:
        """A step's passes begin, or begin anew."""
        if self._unlike:
            self._begun = _now(device)

    def end(self, device: torch.device, tokens: int) -> None:
        """They are done, or enqueued on the card."""
        if self._unlike:
            self._spells = ((self._begun, _now(device), tokens), self._spells[0])

    @property
    def mine(self) -> int:
        """Tokens a second of this rank in the step before, which is over on the card too; 0: unknown."""
        if (spell := self._spells[1]) is None:
            return 0
        begun, ended, tokens = spell
        seconds = begun.elapsed_time(ended) / 1e3 if isinstance(begun, torch.cuda.Event) else ended - begun
        return round(tokens / seconds) if seconds > 0 else 0

    def hear(self, paces: Sequence[int]) -> None:
        """What all ranks said of themselves in this step's sums."""
        told = [now or known for now, known in zip(paces, self._usual, strict=True)] if self._unlike else []
        if not all(told) or not told:
            return
        self._heard.append(told)
        if len(self._heard) == EVERY:
            self._usual = [statistics.median(of_rank) for of_rank in zip(*self._heard, strict=True)]
            self._coming = tuple(max(1, round(PARTS * one / max(self._usual))) / PARTS for one in self._usual)
            self._heard.clear()

    def turn(self) -> bool:
        """From here on shares are by what was heard until now; whether they were even before and are not now."""
        even, self.values = len(set(self.values)) == 1, self._coming
        return even and len(set(self.values)) > 1

    @property
    def words(self) -> str:
        """Each rank's share, for people."""
        parts = [f"{value / sum(self.values):.0%}" for value in self.values]
        return f"{', '.join(parts[:-1])} and {parts[-1]}"


def kind_of(device: torch.device) -> tuple[str, int]:
    """What a rank computes on: its name and bytes."""
    if device.type != "cuda":
        return device.type, 0
    return torch.cuda.get_device_name(device), torch.cuda.mem_get_info(device)[1]


def _now(device: torch.device) -> Any:
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
