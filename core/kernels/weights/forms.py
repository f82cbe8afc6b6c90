"""How weights of each form are loaded, held and dequantised; names and sizes are in ``core.contract.weight_forms``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from core.kernels.weights import nf4, nf4_stack


@dataclass(frozen=True)
class HeldForm:
    """A form of frozen weights."""

    widen: Callable[[Any, torch.Tensor | None], torch.Tensor]
    """Returns W ``[O, D]`` of a projection's ``held``, in ``out`` if given."""
    border_all: (
        Callable[[Sequence[nf4_stack.Part], torch.Tensor, list[nf4_stack.Table], torch.Tensor | None], bool] | None
    ) = None
    """Writes the bordered matrix of a whole stack in one launch, its rows times factors; False where it cannot."""
    loading: Mapping[str, Any] = field(default_factory=dict)
    """bitsandbytes' options for transformers; empty: weights are not quantised."""
    cached: bool = False
    """Whether quantised weights are cached on disk."""


def _given(held: Callable[[], torch.Tensor], out: torch.Tensor | None = None) -> torch.Tensor:
    """``held`` is a function that returns W."""
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
