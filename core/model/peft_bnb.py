"""The one file that knows how peft and bitsandbytes name their parts.

What others need of a wrapped projection is read here into plain tensors and callables (``Projection``), and peft's
state (disabled, merged, which adapter, dropout) is asked here at every call: it may change between two forward passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import bitsandbytes
import torch
from bitsandbytes.functional import dequantize_4bit
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from peft.utils import ModulesToSaveWrapper
from torch import nn

from core.kernels.dispatch import use_triton
from core.kernels.lora import Projection
from core.kernels.nf4 import Nf4, dequantize

__all__ = [
    "base_causal_model",
    "forbid_cpu_repacking",
    "is_adapted",
    "is_frozen_linear",
    "read_projection",
    "why_not_static",
]


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
        return _projection(module, None, None, 0.0)
    if module.disable_adapters or module.merged or len(module.active_adapters) != 1:
        return None
    name = module.active_adapters[0]
    if name not in module.lora_A:
        return None
    a, b = module.lora_A[name].weight, module.lora_B[name].weight
    return _projection(module.get_base_layer(), a, b, float(module.scaling[name]))


def _projection(base: Any, a: torch.Tensor | None, b: torch.Tensor | None, scale: float) -> Projection:
    held = _nf4(base)
    weight = _weight(base) if held is None else lambda: dequantize(held)
    return Projection(weight, base.bias, a, b, scale, (base.out_features, base.in_features), held)


def _weight(base: Any) -> Callable[[], torch.Tensor]:
    weight = base.weight
    if isinstance(base, bitsandbytes.nn.Linear4bit):
        return lambda: dequantize_4bit(weight.data, weight.quant_state)
    return lambda: weight


@dataclass(frozen=True)
class _Held:
    """What an ``Nf4`` was read from: a weight that was loaded anew or has moved has other tensors."""

    state: Any
    absmax: torch.Tensor
    address: int
    weight: Nf4 | None


_HELD: WeakKeyDictionary[nn.Module, _Held] = WeakKeyDictionary()


def _nf4(base: Any) -> Nf4 | None:
    """The weight of a 4-bit layer as tensors, read once; None where it is not NF4, or where our kernels cannot run.

    There bitsandbytes' own kernel, which gives the same bits, is far ahead of our plain torch.
    """
    state = base.weight.quant_state if isinstance(base, bitsandbytes.nn.Linear4bit) else None
    if state is None or (state.code.is_cuda and not use_triton(state.code)):
        return None
    held, address = _HELD.get(base), base.weight.data_ptr()
    if held is None or held.state is not state or held.absmax is not state.absmax or held.address != address:
        held = _HELD[base] = _Held(state, state.absmax, address, _read_nf4(base.weight.data, state))
    return held.weight


def _read_nf4(packed: torch.Tensor, state: Any) -> Nf4 | None:
    if state.quant_type != "nf4" or len(state.shape) != 2:
        return None
    nested = state.state2
    return Nf4(
        packed=packed.view(torch.uint8),
        absmax=state.absmax if nested else state.absmax.float(),
        code=state.code.float(),
        blocksize=state.blocksize,
        nested_absmax=nested.absmax.float() if nested else None,
        nested_code=nested.code.float() if nested else None,
        nested_blocksize=nested.blocksize if nested else 1,
        offset=state.offset.float() if nested else None,
        shape=(state.shape[0], state.shape[1]),
        dtype=state.dtype,
    )
