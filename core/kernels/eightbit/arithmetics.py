"""ARITHMETICS: in what the products of frozen matrices are computed, by the names of ``core.contract.weight_forms``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from core.kernels.eightbit.formats import FORMATS, Format
from core.kernels.eightbit.matrix import EightBit
from core.kernels.weights.bordered import Matrix

STEP = 16
"""What widths and heights are multiples of: matrix units and descriptors read 16 bytes."""


@dataclass(frozen=True)
class Arithmetic:
    """``matrix`` makes a stack's matrices for one pass, and tells DoRA's factors; ``serves`` says for which stacks;
    ``form``: of rows, where products are in eight bits; a kept layer's gate and up are then kept in eight, too."""

    name: str
    matrix: Callable[[Any, torch.Tensor, torch.Tensor | None], tuple[Matrix, torch.Tensor | None]]
    serves: Callable[[Any], bool] = lambda _stack: True
    form: Format | None = None


def _eight(
    form: Format, stack: Any, like: torch.Tensor, _g: torch.Tensor | None
) -> tuple[EightBit, torch.Tensor | None]:
    return EightBit.of(stack.parts, form, stack.thin, like, stack.tables), None


def _plain_lora(stack: Any) -> bool:
    """Whether rows of W are as they are held: without DoRA's factors, and nothing taken from them (PiSSA)."""
    whole = all(size % STEP == 0 for part in stack.parts for size in part.shape)
    return whole and not stack.scaled and all(part.start is None for part in stack.parts)


ARITHMETICS: Mapping[str, Arithmetic] = MappingProxyType(
    {
        "16-bit": Arithmetic("16-bit", lambda stack, like, g: stack.bordering(like, g)),
        **{name: Arithmetic(name, partial(_eight, form), _plain_lora, form) for name, form in FORMATS.items()},
    }
)
SIXTEEN = ARITHMETICS["16-bit"]
