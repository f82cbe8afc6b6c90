"""What NVIDIA publishes of its cards, by the name that the driver says.

Dense tensor rates in 10¹² operations a second (16-bit products summed in 32 bits), memory bandwidth in 10⁹ bytes a
second, board power in watts, and multiprocessors: NVIDIA's architecture white papers (Turing, GA102, Ada, Blackwell)
and data sheets. Laptop cards share names with other chips and are left out.
"""

from dataclasses import dataclass

from core.machine.hardware import Machine


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
    """What is published of the machine's card; None where there is none."""
    return published(machine.gpu.name) if machine.gpu else None
