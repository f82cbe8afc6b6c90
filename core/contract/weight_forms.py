"""WEIGHT_FORMS: how a frozen base model's matrices are held, a row each: names, words for a person, and bytes. Their
products are in ``core.kernels.weights.forms``, under the same names."""

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
