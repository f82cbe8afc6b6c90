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
    """One or several cards by their CUDA names (UUID, or number on the PCI bus), rank 0's first; none is the CPU."""

    ids: tuple[str, ...] = ()
    processes: int = 1
    """Of a job on the CPU; on cards there is one a card."""

    @classmethod
    def parse(cls, text: str) -> "CardSet":
        """The inverse of ``str``, as queue.json keeps it."""
        names = text.split(",")
        ids = tuple(name.removeprefix("gpu-") for name in names if name != "cpu")
        return cls(ids, 1 if ids else len(names))

    def __str__(self) -> str:
        return ",".join(f"gpu-{name}" for name in self.ids) or ",".join(["cpu"] * self.processes)

    @property
    def ranks(self) -> int:
        """Processes of a training on these: one a card."""
        return len(self.ids) or self.processes

    @property
    def locks(self) -> tuple[str, ...]:
        """The names of its locks in a fixed order, so that two sets cannot deadlock."""
        return tuple(f"gpu-{name}" for name in sorted(self.ids)) or ("cpu",)

    @property
    def word(self) -> str:
        """What people call it."""
        return ("cards" if self.ids[1:] else "card") if self.ids else "CPU"

    def meets(self, other: "CardSet") -> bool:
        """Whether a job on one has to wait for a job on the other."""
        return not set(self.locks).isdisjoint(other.locks)

    def environment(self, base: Mapping[str, str], rank: int = 0) -> dict[str, str]:
        """Variables beside ``base`` for the process that computes on one of these, set before it imports torch.

        It sees no other card: since CUDA 10.1 NCCL copies between cards that are not visible to each other.
        """
        if not self.ids:
            return without_card(base)
        # By default CUDA orders cards by speed, the driver by their place on the bus.
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": self.ids[rank]}


class CardLock:
    """The locks of a set of cards, as one."""

    def __init__(self, locations: Locations, cards: CardSet) -> None:
        self._locks = [FileLock(locations.locks / name) for name in cards.locks]

    def acquire(self, holder: str) -> bool:
        """Takes all cards now, or none; ``held_by`` tells others the ``holder``."""
        for lock in self._locks:
            lock.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not lock.acquire():
                self.release()
                return False
            os.ftruncate(lock.fileno(), 0)
            os.pwrite(lock.fileno(), holder.encode(), 0)
        return True

    def filenos(self) -> list[int]:
        """The descriptors that a worker inherits: the cards are held while either lives."""
        return [lock.fileno() for lock in self._locks]

    def release(self) -> None:
        """Closes our descriptors; the cards are free once no child holds them either."""
        for lock in self._locks:
            lock.release()


def held_by(locations: Locations, cards: CardSet) -> str | None:
    """Who holds one of these cards: a run id or another name; None when all are free."""
    for path in (locations.locks / name for name in cards.locks):
        if is_held(path):
            try:
                return read_plain(path, _HOLDER_BYTES).decode(errors="replace") or "another program"
            except OSError:
                return "another program"
    return None
