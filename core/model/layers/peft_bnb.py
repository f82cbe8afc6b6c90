"""Reads peft's and bitsandbytes' modules into plain tensors and callables (``Projection``).

peft's state (disabled, merged, active adapter) may change between forward passes, so it is read at every call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any
from weakref import WeakKeyDictionary

import bitsandbytes
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from peft.tuners.lora.layer import LoraVariant
from peft.tuners.lora.variants import DoraLinearVariant
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import ModulesToSaveWrapper
from torch import nn

from core.kernels.dispatch import use_triton
from core.kernels.lora import Projection
from core.kernels.weights.forms import HELD_FORMS, PLAIN
from core.kernels.weights.magnitudes import row_squares
from core.kernels.weights.nf4_reference import Nf4
from core.model.streaming.layers import bring
from core.model.streaming.rows import table_of

ADAPTER = "default"
"""peft's name of a model's only adapter."""


def base_causal_model(model: nn.Module) -> Any:
    """The transformers model inside peft's wrapper; without a wrapper ``model`` itself."""
    return model.get_base_model() if isinstance(model, PeftModel) else model


def forbid_cpu_repacking(model: nn.Module) -> None:
    """Keeps bitsandbytes from repacking 4-bit weights on CPUs with avx512_bf16.

    A forward without gradients repacks them in place there, and every later gradient is wrong.
    """
    module: Any
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def is_adapted(module: nn.Module) -> bool:
    """Whether peft wraps this module, as an adapter or as a trained copy."""
    return isinstance(module, (LoraLayer, ModulesToSaveWrapper))


def is_plain_linear(module: Any) -> bool:
    """Whether this is an ``nn.Linear``, neither adapted nor quantised: frozen, trained, or with a trained copy."""
    if isinstance(module, ModulesToSaveWrapper):
        return all(type(copy) is nn.Linear for copy in (module.original_module, *module.modules_to_save.values()))
    return type(module) is nn.Linear


class FromStart(LoraVariant):
    """peft's seam for ``W x + s (B A - B0 A0) x``; A0 and B0 are buffers of the layer, in its arithmetic's dtype."""

    @staticmethod
    def forward(module: Any, active_adapter: str, x: torch.Tensor, result: torch.Tensor, **_: Any) -> torch.Tensor:
        """The product with the adapter's part added."""
        a, b = (tensor.to(x.dtype) for tensor in _start_of(module) or ())
        low = module.lora_A[active_adapter](module.lora_dropout[active_adapter](x))
        change = module.lora_B[active_adapter](low) - nn.functional.linear(nn.functional.linear(x, a), b)
        return result + (change * module.scaling[active_adapter]).to(result.dtype)


def adapted_layers(model: nn.Module) -> dict[str, Any]:
    """Every linear layer with a LoRA adapter, by its name."""
    found = {key: module for key, module in model.named_modules() if isinstance(module, LoraLayer)}
    return {key: module for key, module in found.items() if ADAPTER in module.lora_A}


def dense_weight(module: Any) -> torch.Tensor:
    """A layer's frozen weight ``[O, D]`` in float32."""
    base = module.get_base_layer()
    bring(base)
    weight = _weight(base)().detach().float()
    return weight.T if getattr(module, "fan_in_fan_out", False) else weight


def is_quantised(module: Any) -> bool:
    """Whether an adapted layer's base holds its weight in 4 bits."""
    return isinstance(module.get_base_layer(), bitsandbytes.nn.Linear4bit)


def keep_start(module: Any, a: torch.Tensor, b: torch.Tensor) -> None:
    """Keeps where a layer's adapter begins, A ``[R, D]`` and B ``[O, R]``, rounded to the layer's dtype."""
    base = module.get_base_layer()
    dtype = base.weight.quant_state.dtype if is_quantised(module) else base.weight.dtype
    for key, start in (("start_a", a), ("start_b", b)):
        module.register_buffer(key, start.detach().to(dtype, copy=True), persistent=False)


def begin_at(module: Any, a: torch.Tensor, b: torch.Tensor, taken_off: bool = True) -> None:
    """Lets an adapter begin at A ``[R, D]`` and B ``[O, R]``.

    ``taken_off``: their product is taken from the weight, so that nothing changes; exactly, since both are rounded.
    """
    keep_start(module, a, b)
    for key, weight in zip(("start_a", "start_b"), adapter_of(module), strict=True):
        weight.data.copy_(module.get_buffer(key))
    if taken_off:
        module.lora_variant[ADAPTER] = FromStart()


def halve(module: Any) -> None:
    """Of an adapter ``[A; A0]``, ``[B, -B0]`` A and B stay, at the same scale; A0 and B0 are kept as its start."""
    down, up = module.lora_A[ADAPTER], module.lora_B[ADAPTER]
    (a, start_a), (b, start_b) = down.weight.chunk(2), up.weight.chunk(2, dim=1)
    keep_start(module, start_a, -start_b)
    for linear, part in ((down, a), (up, b)):
        held = linear.weight.requires_grad
        linear.weight = nn.Parameter(part.detach().clone(memory_format=torch.contiguous_format), held)
    module.r[ADAPTER] = down.out_features = up.in_features = len(a)
    module.lora_alpha[ADAPTER] /= 2


def begin_at_length(model: nn.Module) -> None:
    """Sets DoRA's magnitudes of a fresh adapter to the rows' norms in float32, so that it changes nothing; peft rounds
    them to the base's dtype, which changes every row by up to 0.4 % in bfloat16."""
    for module in adapted_layers(model).values():
        if isinstance(module.lora_variant.get(ADAPTER), DoraLinearVariant):
            bring(module.get_base_layer())
            weight = _weight(module.get_base_layer())().detach()
            norms = row_squares(weight.T if getattr(module, "fan_in_fan_out", False) else weight).sqrt()
            module.lora_magnitude_vector[ADAPTER].weight.data = norms


def without_magnitudes(module: Any) -> dict[str, LoraVariant]:
    """A layer's variants but for DoRA: with these and at scale 0 it is the base's."""
    return {name: of for name, of in module.lora_variant.items() if not isinstance(of, DoraLinearVariant)}


def _taken_off(module: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    return _start_of(module) if any(isinstance(of, FromStart) for of in module.lora_variant.values()) else None


def _start_of(module: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    held = module._buffers
    return (held["start_a"], held["start_b"]) if "start_a" in held else None


def adapter_of(module: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A ``[R, D]`` and B ``[O, R]`` of a layer."""
    return module.lora_A[ADAPTER].weight, module.lora_B[ADAPTER].weight


def starts_of(model: nn.Module) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """A0 and B0 of every layer whose adapter has them, by its name."""
    found = {name: _start_of(module) for name, module in adapted_layers(model).items()}
    return {name: start for name, start in found.items() if start is not None}


def starts_taken_off(model: nn.Module) -> bool:
    """Whether starts are taken from the base's product."""
    return any(_taken_off(module) is not None for module in adapted_layers(model).values())


def why_not_static(module: nn.Module) -> str:
    """Why our op can never compute this projection, for people; empty where it can.

    State that may change between calls is left to ``read_projection``.
    """
    base: Any = module
    if isinstance(module, LoraLayer):
        if any(not isinstance(variant, (FromStart, DoraLinearVariant)) for variant in module.lora_variant.values()):
            return "another variant of LoRA"
        if any(not isinstance(dropout, nn.Identity) for dropout in module.lora_dropout.values()):
            return "adapter dropout"  # which peft draws, with DoRA in its own way
        if any(linear.bias is not None for linear in module.lora_B.values()):
            return "adapter bias"
        if len(module.lora_A) != 1:
            return f"{len(module.lora_A)} adapters"
        if module.lora_embedding_A:
            return "an adapted embedding"
        base = module.get_base_layer()
    elif is_adapted(module):
        return "a trained copy"
    if type(base) is not nn.Linear and not isinstance(base, bitsandbytes.nn.Linear4bit):
        return f"layer class {type(base).__name__}"
    return "trained base weights" if any(p.requires_grad for p in base.parameters()) else ""


def read_projection(module: Any) -> Projection | None:
    """The projection now; None where adapters are disabled, merged, or not exactly one is active.

    A module without an adapter has A and B None.
    """
    if not isinstance(module, LoraLayer):
        return _projection(module, module, _NO_ADAPTER, 0.0)
    if module.disable_adapters or module.merged:
        return None
    # From the modules' dicts: called seven times a layer and micro-batch, where attribute access is slow (__getattr__).
    active, children = module.active_adapters, module._modules
    every_a, every_b, base = children["lora_A"]._modules, children["lora_B"]._modules, children["base_layer"]
    if len(active) != 1 or active[0] not in every_a:
        return None
    name = active[0]
    m = None
    if isinstance(module.lora_variant.get(name), DoraLinearVariant):
        m = children["lora_magnitude_vector"]._modules[name]._parameters["weight"]
    adapter = every_a[name]._parameters["weight"], every_b[name]._parameters["weight"], m
    base = module.get_base_layer() if isinstance(base, BaseTunerLayer) else base
    return _projection(module, base, adapter, float(module.scaling[name]))


@dataclass(frozen=True)
class _Known:
    """A projection and the objects it was read from, which change when a weight is reloaded or moved.

    It must not refer to its module, as a 4-bit parameter does: the weak dictionary would never drop either.
    """

    read_from: tuple[Any, ...]
    address: int
    scale: float
    projection: Projection


_KNOWN: WeakKeyDictionary[nn.Module, dict[bool, _Known]] = WeakKeyDictionary()
"""With the adapter's scale at 0, and otherwise: a loss that compares with the base takes turns."""


_Adapter = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]
_NO_ADAPTER: _Adapter = (None, None, None)
"""A, B and DoRA's magnitudes."""


def _projection(module: nn.Module, base: Any, adapter: _Adapter, scale: float) -> Projection:
    """The cached projection of ``module`` (peft's wrapper or the base itself) while all that it was read from is the
    same, else a new one."""
    weight, bias = base._parameters["weight"], base._parameters["bias"]
    state: Any = weight.quant_state if isinstance(base, bitsandbytes.nn.Linear4bit) else None
    read_from = (weight if state is None else state, state and state.absmax, _is_ours(state), bias, *adapter)
    address, both = weight.data_ptr(), _KNOWN.setdefault(module, {})
    known = both.get(scale == 0.0)
    same = known is not None and known.address == address and known.scale == scale
    if known is None or not same or not all(map(is_, known.read_from, read_from)):
        if known is not None:
            both.clear()  # the weights of the other one are no longer there either
        ours = _is_ours(state) and state.quant_type in _READERS and len(state.shape) == 2
        held = _READERS[state.quant_type](weight.data, state) if ours else _weight(base)
        form = HELD_FORMS[state.quant_type] if ours else PLAIN
        a, b, magnitude = adapter
        start = None if a is None else _taken_off(module)
        shape = (base.out_features, base.in_features)
        apart = isinstance(module, LoraLayer) and len(module.lora_magnitude_vector) > 0
        projection = Projection(held, bias, a, b, scale, shape, form, start, magnitude, apart)
        if state is not None and not ours:
            return projection
        known = both[scale == 0.0] = _Known(read_from, address, scale, projection)
    return known.projection


def _is_ours(state: Any) -> bool:
    """Whether a 4-bit weight is read as tensors for our ops.

    On a card without our kernels bitsandbytes dequantises: the same bits, much faster than plain torch.
    """
    return state is not None and (not state.code.is_cuda or use_triton(state.code))


def _weight(base: Any) -> Callable[[], torch.Tensor]:
    weight = base.weight
    if isinstance(base, bitsandbytes.nn.Linear4bit):
        return lambda: dequantize_4bit(weight.data, weight.quant_state)
    return lambda: weight


def _brought(base: Any) -> Callable[[], torch.Tensor]:
    """The weight of one that may be streamed, for a single reader."""

    def read() -> torch.Tensor:
        bring(base)
        return _weight(base)()

    return read


def matrices_of(layer: nn.Module) -> dict[str, Any]:
    """The linear layers within a decoder layer that has no adapter, by name."""
    kinds = (nn.Linear, bitsandbytes.nn.Linear4bit)
    return {name: module for name, module in layer.named_modules() if type(module) in kinds}


def held_tensors(matrix: Any) -> tuple[torch.Tensor, ...]:
    """What of a frozen weight grows with it: its values, and the scales of their blocks."""
    state = getattr(matrix.weight, "quant_state", None)
    if state is None:
        return (matrix.weight.data,)
    return (matrix.weight.data, state.absmax, *((state.state2.absmax,) if state.nested else ()))


def hold_at(matrix: Any, places: Sequence[torch.Tensor]) -> None:
    """Puts these tensors in the place of ``held_tensors``."""
    matrix.weight.data, state = places[0], getattr(matrix.weight, "quant_state", None)
    if state is not None:
        state.absmax = places[1]
        if state.nested:
            state.state2.absmax = places[2]


def stand_in() -> dict[str, torch.Tensor]:
    """What stands for any quantised weight in a checkpoint until the real one is read, by the ends of its names."""
    values, state = quantize_4bit(torch.zeros(64, 64), compress_statistics=True, quant_type="nf4")
    return {"": values, **{f".{name}": tensor for name, tensor in state.as_dict(packed=True).items()}}


def quantise_into(matrix: Any, values: torch.Tensor) -> None:
    """The weight of a matrix becomes ``values [O, D]``, quantised as its own is where that is, on their device."""
    old = matrix.weight
    if not isinstance(matrix, bitsandbytes.nn.Linear4bit):
        matrix.weight = nn.Parameter(values, requires_grad=False)
        return
    how = {"compress_statistics": old.compress_statistics, "quant_type": old.quant_type, "module": matrix}
    matrix.weight = bitsandbytes.nn.Params4bit(values, requires_grad=False, **how).to(values.device)


def read_quantised(matrix: Any, values: torch.Tensor, stored: dict[str, torch.Tensor]) -> None:
    """The same from what a checkpoint holds of a quantised weight, ``stored`` by the ends of its names."""
    matrix.weight = bitsandbytes.nn.Params4bit.from_prequantized(
        data=values, quantized_stats=stored, device=values.device, module=matrix
    )


def _read_nf4(packed: torch.Tensor, state: Any) -> Nf4:
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


_READERS = {"nf4": _read_nf4}
"""By bitsandbytes' names, which are those of our forms."""


@dataclass(frozen=True)
class Update:
    """How one matrix of an adapted model differs from the base's: ΔW = left · right, or ``after`` − ``before``."""

    name: str
    left: torch.Tensor | None = None
    """``[O, K]``, the scaling in it."""
    right: torch.Tensor | None = None
    """``[K, D]``."""
    before: Callable[[], torch.Tensor] = lambda: torch.empty(0)
    """The base's matrix."""
    after: torch.Tensor | None = None


def updates_of(model: nn.Module) -> list[Update]:
    """The update of every adapted matrix and of every trained copy, in the model's order; DoRA's magnitudes are not
    in it."""
    found = []
    for key, module in model.named_modules():
        key = key.removeprefix("base_model.model.")
        if isinstance(module, ModulesToSaveWrapper):
            weight = getattr(module.modules_to_save[ADAPTER], "weight", None)
            original = table_of(module.original_module)
            if weight is not None and original is not None:
                found.append(Update(key, before=as_it_is(original), after=weight.detach()))
        elif isinstance(module, LoraLayer) and ADAPTER in module.lora_A:
            right, left = (part.detach().float() for part in adapter_of(module))
            scale = float(module.scaling[ADAPTER])
            left = left * scale
            if (start := _taken_off(module)) is not None:
                a0, b0 = (part.float() for part in start)
                left, right = torch.cat((left, -scale * b0), dim=1), torch.cat((right, a0))
            found.append(Update(key, left, right, _brought(module.get_base_layer())))
        elif isinstance(module, LoraLayer) and ADAPTER in module.lora_embedding_A:
            a, b = module.lora_embedding_A[ADAPTER].detach(), module.lora_embedding_B[ADAPTER].detach()
            if (table := table_of(module.get_base_layer())) is not None:
                found.append(Update(key, a.T.float() * module.scaling[ADAPTER], b.T.float(), as_it_is(table)))
    return found


def as_it_is(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    """For ``Update.before``: a weight that is not quantised."""
    return lambda: tensor
