"""What is done with weights of each form, a row a form; names and bytes stand in ``core.contract.weight_forms``.

A new form is a row: what a weight is held in, how it becomes wide for a product, and how it comes from a file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from core.kernels.weights import nf4, nf4_stack


@dataclass(frozen=True)
class HeldForm:
    """One form."""

    widen: Callable[[Any, torch.Tensor | None], torch.Tensor]
    """W ``[O, D]`` of what a projection holds, into ``out`` where one is given."""
    border_all: Callable[[Sequence[nf4_stack.Part], torch.Tensor, list[nf4_stack.Table]], bool] | None = None
    """Writes the bordered matrix of a whole stack in one launch; False where it cannot."""
    loading: Mapping[str, Any] = field(default_factory=dict)
    """bitsandbytes' options, by which transformers quantises a file's tensors one by one; empty: they stay as read."""
    cached: bool = False
    """Whether the quantised weights are kept on the disk for the next load."""


def _given(held: Callable[[], torch.Tensor], out: torch.Tensor | None = None) -> torch.Tensor:
    """Held is a function that gives W: as it lies, or made by whoever else understands its form."""
    return held() if out is None else out.copy_(held())


PLAIN = HeldForm(_given)
HELD_FORMS: Mapping[str, HeldForm] = MappingProxyType(
    {
        "nf4": HeldForm(
            nf4.dequantize, nf4_stack.border_all, cached=True,
            loading={"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
        ),
        "none": PLAIN,
    }
)  # fmt: skip
