"""Which cards a job works on, as one value: locked, queued for and handed to its worker together."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from core.machine.disk import read_plain
from core.machine.imports import without_card
from core.machine.locations import Locations
from core.machine.locks import FileLock, is_held

_HOLDER_BYTES = 4096


@dataclass(frozen=True)
class CardSet:
    """One or several cards, by what CUDA calls them (UUID, or number on the PCI bus); none is the CPU."""

    ids: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "CardSet":
        """The inverse of ``str``, as queue.json keeps it."""
        return cls(tuple(name.removeprefix("gpu-") for name in text.split(",") if name != "cpu"))

    def __str__(self) -> str:
        return ",".join(self.locks)

    @property
    def locks(self) -> tuple[str, ...]:
        """The names of its locks in the order in which all take them: two sets never hold a part each of both."""
        return tuple(f"gpu-{name}" for name in sorted(self.ids)) or ("cpu",)

    @property
    def word(self) -> str:
        """What it is called to people."""
        return "card" if self.ids else "CPU"

    def meets(self, other: "CardSet") -> bool:
        """Whether a job on one has to wait for a job on the other."""
        return not set(self.locks).isdisjoint(other.locks)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """What a process that computes on these is told beside ``base``, before it imports torch."""
        if not self.ids:
            return without_card(base)
        # CUDA counts cards its own way; those that compute must be those that are locked.
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(self.ids)}


class CardLock:
    """The locks of a set of cards, as one: whoever holds it computes there."""

    def __init__(self, locations: Locations, cards: CardSet) -> None:
        self._locks = [FileLock(locations.locks / name) for name in cards.locks]

    def acquire(self, holder: str) -> bool:
        """Takes all cards now, or none; ``holder`` is told to others by ``held_by``."""
        for lock in self._locks:
            lock.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not lock.acquire():
                self.release()
                return False
            os.ftruncate(lock.fileno(), 0)
            os.pwrite(lock.fileno(), holder.encode(), 0)
        return True

    def filenos(self) -> list[int]:
        """The descriptors that a worker inherits, so that the cards are held while either lives."""
        return [lock.fileno() for lock in self._locks]

    def release(self) -> None:
        """Lets go; the cards are free once no child holds them either."""
        for lock in self._locks:
            lock.release()


def held_by(locations: Locations, cards: CardSet) -> str | None:
    """Who holds one of these cards: a run id or what the holder calls itself; None when all are free."""
    for path in (locations.locks / name for name in cards.locks):
        if is_held(path):
            try:
                return read_plain(path, _HOLDER_BYTES).decode(errors="replace") or "another program"
            except OSError:
                return "another program"
    return None
