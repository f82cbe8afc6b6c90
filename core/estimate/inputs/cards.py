"""What NVIDIA publishes of its cards, by the name that the driver says; and which of several cards decides.

Dense tensor rates in 10¹² operations a second (16-bit products summed in 32 bits), memory bandwidth in 10⁹ bytes a
second, board power in watts, and multiprocessors: NVIDIA's architecture white papers (Turing, GA102, Ada, Blackwell)
and data sheets. Laptop cards share names with other chips and are left out.
"""

from dataclasses import dataclass, replace

from core.estimate.inputs.rows import Rows
from core.machine.hardware import Gpu, Machine


@dataclass(frozen=True)
class Published:
    """``operations`` and ``bytes`` a second, ``watts`` under load, number of multiprocessors; ``integers`` is how many
    times as fast 8-bit integers are multiplied as 16-bit numbers, ``fp8`` the same of e4m3 summed in 32 bits."""

    operations: float
    bytes: float
    watts: float
    processors: int
    integers: float = 4.0
    fp8: float = 2.0

    def faster(self, arithmetic: str) -> float:
        """How many times as fast as 16-bit products those of an arithmetic are."""
        return {"fp8": self.fp8, "int8": self.integers}.get(arithmetic, 1.0)


FULL_RATE = ("A100", "H100", "H200", "Tesla T4", "RTX A6000")
"""Cards that sum 16-bit products in 32 bits at full rate: integers are twice as fast there, elsewhere four times."""

CARDS: dict[str, Published] = {
    name: Published(tera * 1e12, giga * 1e9, watts, processors, 2.0 if name in FULL_RATE else 4.0)
    for name, tera, giga, watts, processors in (
        ("RTX 5090", 209.5, 1792, 575, 170),
        ("RTX 5080", 112.6, 960, 360, 84),
        ("RTX 5070 Ti", 87.9, 896, 300, 70),
        ("RTX 5070", 61.7, 672, 250, 48),
        ("RTX 4090", 165.2, 1008, 450, 128),
        ("RTX 4080 SUPER", 104.4, 736, 320, 80),
        ("RTX 4080", 97.5, 717, 320, 76),
        ("RTX 4070 Ti SUPER", 88.2, 672, 285, 66),
        ("RTX 4070 Ti", 80.2, 504, 285, 60),
        ("RTX 4070 SUPER", 71.0, 504, 220, 56),
        ("RTX 4070", 58.3, 504, 200, 46),
        ("RTX 4060 Ti", 44.1, 288, 160, 34),
        ("RTX 4060", 30.2, 272, 115, 24),
        ("RTX 3090 Ti", 80.0, 1008, 450, 84),
        ("RTX 3090", 71.0, 936, 350, 82),
        ("RTX 3080 Ti", 68.2, 912, 350, 80),
        ("RTX 3080", 59.5, 760, 320, 68),
        ("RTX 3070 Ti", 43.5, 608, 290, 48),
        ("RTX 3070", 40.6, 448, 220, 46),
        ("RTX 3060 Ti", 32.4, 448, 200, 38),
        ("RTX 3060", 25.5, 360, 170, 28),
        ("RTX 2080 Ti", 53.8, 616, 250, 68),
        ("RTX A6000", 154.8, 768, 300, 84),
        ("Tesla T4", 65.0, 320, 70, 40),
        ("A100", 312.0, 1555, 400, 108),
        ("H100", 989.0, 3350, 700, 132),
        ("H200", 989.0, 4800, 700, 132),
    )
}
OTHER_CHIPS = ("laptop", "mobile", "max q", "super")
"""Words that mark another chip under the same number."""
BALANCED = Published(60e12, 500e9, 200.0, 50)
"""For the factor between two settings where nothing is published of the card."""


def published(card: str) -> Published | None:
    """A card's figures by the driver's name for it, or None."""
    words = f" {card.lower()} ".replace("-", " ")
    matching = [name for name in CARDS if f" {name.lower()} " in words]
    name = max(matching, key=len, default="")
    other = [word for word in OTHER_CHIPS if word in words and word not in name.lower()]
    return CARDS[name] if name and not other else None


def published_of(machine: Machine) -> Published | None:
    """What is published of a job's card, of several of the slowest; None where one is unknown, or there is none."""
    known = [published(card.name) for card in machine.working]
    told = [one for one in known if one is not None]
    return min(told, key=lambda one: one.operations) if told and len(told) == len(known) else None


def shared_by(rows: Rows, machine: Machine) -> Rows:
    """Rows of steps that a job's cards share."""
    return replace(rows, shared=machine.cards.ranks, unlike=bool(machine.unlike))


# ── several cards ────────────────────────────────────────────────────────────────────────────────────────────────────

PCIE_BYTES = 8e9
"""Bytes a second, a direction, between cards without NVLink. An assumption, not measured: GeForce cards copy to each
other through the machine's memory, and often have eight lanes of PCIe 4.0 each: of their 16e9 half is left."""
NVLINK_BYTES = {"A100": 300e9, "H100": 450e9, "H200": 450e9}
"""The same over NVLink, as published of cards that are made for it."""
SLOWER_LINK, FASTER_LINK = 0.5, 1.25
"""What a link may reach of that."""
COPY_RATE = 20e9
"""Bytes a second from pinned memory to a card that nobody has measured: PCIe 4.0 over 16 lanes reaches 20 to 26, PCIe
5.0 49 beside an H200."""
MEMORY_RATE = 60e9
"""Bytes a second that all cards together read of the machine's memory, where no run on several has measured it: about
four fifths of two channels of DDR5-4800. An assumption; servers have four times as many channels."""


def shared_copy_rate(alone: float, cards: int, memory: float = 0.0) -> float:
    """Bytes a second to each of so many cards that copy at once; ``memory``: to all of them, as measured."""
    return min(alone or COPY_RATE, (memory or MEMORY_RATE) / cards) if cards > 1 else alone or COPY_RATE


def copy_rate(machine: Machine) -> float:
    """Bytes a second from the machine's memory to each card of a job while all copy."""
    return machine.copy_bytes_a_second or shared_copy_rate(0.0, machine.cards.ranks)


def link_bytes(machine: Machine) -> float:
    """Bytes a second, a direction, between the cards of a job: the slowest of their links."""
    return min(
        (
            next((rate for name, rate in NVLINK_BYTES.items() if name in card.name), PCIE_BYTES)
            for card in machine.working
        ),
        default=PCIE_BYTES,
    )


def deciding(machine: Machine) -> Machine:
    """The machine as a plan has to see it, which every card of a job must be able to keep: the card with least free
    memory stands first, with the oldest compute capability of all."""
    cards = sorted(machine.working, key=lambda card: -1 if card.free_bytes is None else card.free_bytes)
    if len(cards) < 2:
        return machine
    oldest = min((card.compute_capability for card in cards if card.compute_capability), default=None)
    return replace(machine, gpus=(replace(cards[0], compute_capability=oldest), *cards[1:]))


def oldest(machine: Machine) -> Gpu | None:
    """The card by whose compute capability a job computes; of several the last, since ``deciding`` gives the first one
    that of the oldest."""
    return min(reversed(machine.working), key=lambda card: card.compute_capability or (99, 0), default=None)


def by_itself(machine: Machine) -> Machine:
    """The machine for a job on the one of its cards that decides; without a card, on one process."""
    return replace(machine, gpus=deciding(machine).gpus[:1], chosen=None)
