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
DEFAULT_ARITHMETIC: ArithmeticName = "16-bit"


@dataclass(frozen=True)
class Arithmetic:
    """In what products with frozen weights are computed; adapters, norms, attention, head and loss keep their own."""

    name: ArithmeticName
    words: str
    """In a line of the log."""
    capability: tuple[int, int]
    """Of the oldest card whose matrix units do it."""
    bits: int


ARITHMETICS: Mapping[str, Arithmetic] = MappingProxyType(
    {
        "16-bit": Arithmetic("16-bit", "16 bits", (0, 0), 16),
        "fp8": Arithmetic("fp8", "8-bit floating point (e4m3), a scale a row", (8, 9), 8),
        "int8": Arithmetic("int8", "8-bit integers, a scale a row", (7, 5), 8),
    }
)
