"""WEIGHT_FORMS: how a frozen base model's matrices are held, a row each: names, words for a person, and bytes. Their
products are in ``core.kernels.weights.forms``, under the same names.

ARITHMETICS: in what their products are computed in training; in ``core.kernels.eightbit.arithmetics``."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

WeightFormName = Literal["nf4", "none"]
"""As ``model.quantization`` has it in a config."""
DEFAULT_WEIGHT_FORM: WeightFormName = "nf4"
NF4_BLOCK, NF4_NESTED_BLOCK = 64, 256
NF4_TABLES_BYTES = 16 * 4 + 256 * 4 + 4
"""The 16 levels, the 256 levels of the scales, and the scales' offset, in float32."""


@dataclass(frozen=True)
class WeightForm:
    """One form of the decoder layers' projections; embedding, head and norms are never quantised."""

    name: WeightFormName
    title: str
    """What a person chooses."""
    words: str
    """In a line of the log."""
    detail: str
    """With the method's particulars; empty: the arithmetic's dtype says it all."""
    bits: int
    """Of one value, without its share of the scales; 16 stands for the arithmetic's own (32 on the CPU)."""
    quantised: bool
    """Whether the matrix has to be made whole for every product."""
    matrix_bytes: Callable[[int, int, int], int]
    """Bytes of one matrix: of its inputs, its outputs, and the arithmetic's bytes a value."""


def _nf4_bytes(inputs: int, outputs: int, _itemsize: int) -> int:
    """Half a byte a weight, an 8-bit scale a block, a float32 a block of scales, and the tables."""
    weights = inputs * outputs
    scales = math.ceil(weights / NF4_BLOCK)
    return math.ceil(weights / 2) + scales + 4 * math.ceil(scales / NF4_NESTED_BLOCK) + NF4_TABLES_BYTES


WEIGHT_FORMS: Mapping[str, WeightForm] = MappingProxyType(
    {
        "nf4": WeightForm(
            name="nf4", title="4 bits (NF4)", words="4-bit NF4", detail="4-bit NF4 with double quantisation",
            bits=4, quantised=True, matrix_bytes=_nf4_bytes,
        ),
        "none": WeightForm(
            name="none", title="16 bits", words="full weights", detail="",
            bits=16, quantised=False, matrix_bytes=lambda inputs, outputs, itemsize: inputs * outputs * itemsize,
        ),
    }
)  # fmt: skip

SMALLEST_WEIGHT_FORM = min(WEIGHT_FORMS.values(), key=lambda form: form.bits)

ArithmeticName = Literal["16-bit", "fp8", "int8"]
AskedArithmetic = Literal["16-bit", "fp8", "int8", "auto"]
"""``auto``: the fastest that is proven (``core.estimate.eight_bits``)."""
DEFAULT_ARITHMETIC: ArithmeticName = "16-bit"
HELD_OUT_SHARE = 0.005
"""How far the held-out loss may lie from that of 16 bits."""


@dataclass(frozen=True)
class Evidence:
    """The held-out loss after training in an arithmetic beside that after training in 16 bits: shares of the latter.

    ``share`` is of the means over several seeds, with its sign; ``worst`` the largest distance in one seed; ``spread``
    how far 16 bits' own seeds lie apart; ``where`` says what was trained.
    """

    share: float
    worst: float
    spread: float
    where: str

    @property
    def allows(self) -> bool:
        """Whether "auto" may take it: the mean within ``HELD_OUT_SHARE``, and no seed further out than 16 bits' own
        lie apart."""
        return abs(self.share) <= HELD_OUT_SHARE and self.worst <= max(HELD_OUT_SHARE, self.spread)

    @property
    def words(self) -> str:
        """For a line of the plan."""
        apart = f"{self.share:+.2%}".replace("-", "−")
        alone = "" if self.worst <= max(HELD_OUT_SHARE, self.spread) else f" and {self.worst:.1%} apart in one seed"
        return f"held-out loss {apart}{alone} {self.where}"


@dataclass(frozen=True)
class Arithmetic:
    """In what products with frozen weights are computed; adapters, norms, attention, head and loss keep their own."""

    name: ArithmeticName
    words: str
    """In a line of the log."""
    capability: tuple[int, int]
    """Of the oldest card whose matrix units do it."""
    bits: int
    evidence: Evidence | None = None
    """What was measured of it before it was shipped (``core/bench/NOTES.md``): what "auto" goes by on a card on which
    nothing was proven yet. None for what all others are measured against."""


_REAL_TASK = "on a real task of the built-in model"
ARITHMETICS: Mapping[str, Arithmetic] = MappingProxyType(
    {
        "16-bit": Arithmetic("16-bit", "16 bits", (0, 0), 16),
        "fp8": Arithmetic(
            "fp8", "8-bit floating point (e4m3), a scale a row", (8, 9), 8,
            Evidence(share=0.0040, worst=0.0170, spread=0.0090, where=_REAL_TASK),
        ),
        "int8": Arithmetic(
            "int8", "8-bit integers, a scale a row", (7, 5), 8,
            Evidence(share=-0.0001, worst=0.0033, spread=0.0090, where=_REAL_TASK),
        ),
    }
)  # fmt: skip
EIGHT_BIT: tuple[ArithmeticName, ...] = tuple(row.name for row in ARITHMETICS.values() if row.bits == 8)
