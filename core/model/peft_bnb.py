"""The one file that knows how peft and bitsandbytes name their parts.

What others need of a wrapped projection is read here into plain tensors and callables (``Projection``), and peft's
state (disabled, merged, which adapter, dropout) is asked here at every call: it may change between two forward passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import bitsandbytes
import torch
from bitsandbytes.functional import dequantize_4bit
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from peft.utils import ModulesToSaveWrapper
from torch import nn

__all__ = [
    "Projection",
    "base_causal_model",
    "forbid_cpu_repacking",
    "is_adapted",
    "is_frozen_linear",
    "read_projection",
    "why_not_static",
]


@dataclass(frozen=True)
class Projection:
    """``y = x W' + bias + scale · (x A') B'``; A and B are None where no adapter sits.

    ``weight()`` gives W in ``[out, in]``, dequantised anew where it is held in 4 bits.
    """

    weight: Callable[[], torch.Tensor]
    bias: torch.Tensor | None
    a: torch.Tensor | None
    b: torch.Tensor | None
    scale: float


def base_causal_model(model: nn.Module) -> Any:
    """The transformers model under peft's wrapper (itself where there is none)."""
    return model.get_base_model() if isinstance(model, PeftModel) else model


def forbid_cpu_repacking(model: nn.Module) -> None:
    """Keeps 4-bit weights as they are on CPUs with avx512_bf16.

    There one pass without gradients repacks the weights in place, and every later gradient is wrong.
    """
    module: Any
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def is_adapted(module: nn.Module) -> bool:
    """Whether peft wraps this module, as an adapter or as a trained copy."""
    return isinstance(module, (LoraLayer, ModulesToSaveWrapper))


def is_frozen_linear(module: nn.Module) -> bool:
    """Whether this is a plain frozen linear layer in floating point, neither wrapped nor quantised."""
    return type(module) is nn.Linear and not any(p.requires_grad for p in module.parameters())


def why_not_static(module: nn.Module) -> str:
    """Why this projection can never be computed by our op, in a few words; empty when it can.

    What may change between calls (disabled, merged, active adapters) is left to ``read_projection``.
    """
    if isinstance(module, LoraLayer):
        return _why_not_lora(module)
    if is_adapted(module):
        return "a trained copy"
    return _why_not_base(module)


def _why_not_lora(module: Any) -> str:
    if getattr(module, "lora_variant", None):
        return "DoRA or another variant"
    if any(not isinstance(dropout, nn.Identity) for dropout in module.lora_dropout.values()):
        return "adapter dropout"
    if any(linear.bias is not None for linear in module.lora_B.values()):
        return "adapter bias"
    if len(module.lora_A) != 1:
        return f"{len(module.lora_A)} adapters"
    if module.lora_embedding_A:
        return "an adapted embedding"
    return _why_not_base(module.get_base_layer())


def _why_not_base(base: nn.Module) -> str:
    if type(base) is not nn.Linear and not isinstance(base, bitsandbytes.nn.Linear4bit):
        return f"layer class {type(base).__name__}"
    if any(p.requires_grad for p in base.parameters()):
        return "trained base weights"
    return ""


def read_projection(module: Any) -> Projection | None:
    """The projection as it stands now, or None where peft must be left to compute it.

    None means: adapters disabled, merged, or anything but one active adapter. A module without an adapter (it was not
    among the targets) reads with A and B None.
    """
    if not isinstance(module, LoraLayer):
        return Projection(_weight(module), module.bias, None, None, 0.0)
    if module.disable_adapters or module.merged or len(module.active_adapters) != 1:
        return None
    name = module.active_adapters[0]
    if name not in module.lora_A:
        return None
    base = module.get_base_layer()
    a, b = module.lora_A[name].weight, module.lora_B[name].weight
    return Projection(_weight(base), base.bias, a, b, float(module.scaling[name]))


def _weight(base: Any) -> Callable[[], torch.Tensor]:
    weight = base.weight
    if isinstance(base, bitsandbytes.nn.Linear4bit):
        return lambda: dequantize_4bit(weight.data, weight.quant_state)
    return lambda: weight
