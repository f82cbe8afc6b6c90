"""The fast form of a decoder layer.

A fast layer has the old layer's children under the same names, so keys, hooks and adapters stay. It computes from their
tensors with ``core.kernels``, whose ops have hand-written backward passes::

    q, k, v, x = lora_qkv(x)        a = attend(q, k, v)        y = lora_mlp(a, x)

At every call it checks that peft would compute the same. With disabled, merged or several adapters, a KV cache, a mask
(padding), or hooks on children it calls the layer that it replaced; inside ``disable_adapter()`` the model is therefore
the base model, bit for bit.
"""

from dataclasses import dataclass
from functools import lru_cache
from operator import is_
from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from core.kernels.eightbit.arithmetics import SIXTEEN, Arithmetic
from core.kernels.lora import Projection, Stack
from core.kernels.lora_mlp import Mlp, lora_mlp
from core.kernels.lora_qkv import Heads, Norm, lora_qkv
from core.kernels.rms_norm import rms_norm
from core.model.attention.backends import attend
from core.model.attention.choice import AttentionKind, Bounds
from core.model.attention.packed import NAME as PACKED
from core.model.attention.packed import says_bounds
from core.model.layers.peft_bnb import read_projection
from core.model.layers.recompute import recomputed
from core.model.layers.tiles import Halves, forward_in_tiles, tiled
from core.model.streaming.layers import Hook, Ready, awaited
from core.models.families import Family

Read = dict[str, Projection]


@dataclass(frozen=True)
class Parts:
    """What a layer computes with; rebuilt when a projection or a norm's weight is another object."""

    read_from: tuple[Any, ...]
    norm: Norm
    qkv: Stack
    heads: Heads
    mlp: Mlp
    kind: AttentionKind


Angles = tuple[torch.Tensor, torch.Tensor]


def projections_of(layer: Any, family: Family) -> dict[str, Any]:
    """The linear layers by name; None where one is missing."""
    attention, mlp = getattr(layer, "self_attn", None), getattr(layer, "mlp", None)
    linears = {name: getattr(attention, name, None) for name in (*family.qkv, "o_proj")}
    linears.update({name: getattr(mlp, name, None) for name in (*family.gate_up, "down_proj")})
    return linears


def norms_of(layer: Any, family: Family) -> dict[str, Any]:
    """The norms by name; None where one is missing."""
    norms = {name: getattr(layer, name, None) for name in family.norms}
    if family.head_norms:
        norms |= {name: getattr(layer.self_attn, name, None) for name in ("q_norm", "k_norm")}
    return norms


def fast_layer(old: nn.Module, family: Family, ready: Ready | None = None) -> nn.Module:
    """A fast layer over ``old``'s children; ``old`` is not changed. ``ready`` is called before weights are read."""
    old_class: Any = type(old)
    new_class = _class_over(old_class)
    new = new_class.__new__(new_class)
    nn.Module.__init__(new)
    for name, child in old.named_children():
        new.add_module(name, child)
    new.training = old.training
    # In a tuple: a module as an attribute would become a child and double every key.
    new.replaced = (old,)
    new.family, new.ready = family, ready
    new.choice, new.parts, new.arithmetic = None, {}, SIXTEEN
    return new


@lru_cache(maxsize=32)
def _class_over(layer_class: Any) -> Any:
    """A subclass of the replaced layer's class, so that ``isinstance`` checks still hold."""
    return type(f"Fast{layer_class.__name__}", (_FastForward, layer_class), {})


class _FastForward:
    """The forward pass, mixed into a layer class of transformers; without a ``choice`` everything is kept."""

    replaced: tuple[Any]
    family: Family
    ready: Ready | None
    choice: tuple[Any, int] | None
    parts: dict[tuple[bool, bool], Parts]
    arithmetic: Arithmetic
    """In training; elsewhere frozen products are computed in 16 bits."""
    self_attn: Any
    mlp: Any

    @property
    def gradient_checkpointing(self) -> bool:
        """False: this layer recomputes by its ``choice``. Setting it sets the replaced layer's."""
        return False

    @gradient_checkpointing.setter
    def gradient_checkpointing(self, value: bool) -> None:
        self.replaced[0].gradient_checkpointing = value

    def train(self, mode: bool = True) -> Any:
        """Also sets the mode of the replaced layer, which is no child."""
        self.replaced[0].training = mode
        return super().train(mode)  # type: ignore[misc]

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = False,
        position_embeddings: Angles | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """``[batch, T, D]`` to the same, with the arguments of transformers' decoder layers."""
        parts = None
        if says_bounds(attention_mask) and past_key_values is None and position_embeddings is not None:
            parts = _parts(self)
        if parts is None or position_embeddings is None:
            result: torch.Tensor = self.replaced[0](
                hidden_states,
                attention_mask=attention_mask,
                position_ids=position_ids,
                past_key_values=past_key_values,
                use_cache=use_cache,
                position_embeddings=position_embeddings,
                **options,
            )
            return result
        options["position_ids"] = position_ids
        return _fast(self, parts, hidden_states, position_embeddings, options)


def _read(layer: Any) -> Read | None:
    """The projections now, or None where the replaced layer must compute."""
    read: Read = {}
    for name, module in projections_of(layer, layer.family).items():
        projection = None if _hooked(module) else read_projection(module)
        if projection is None:
            return None
        read[name] = projection
    if _hooked(layer.replaced[0]) or _hooked(layer.self_attn) or _hooked(layer.mlp):
        return None
    return read if layer.self_attn.config._attn_implementation in ALL_ATTENTION_FUNCTIONS else None


def _hooked(module: Any) -> bool:
    """Whether the module has hooks (transformers records attentions by some), so that it must be called."""
    behind, before = module._forward_hooks, module._forward_pre_hooks
    if not (behind or before):
        return False
    return not all(isinstance(hook, Hook) for hook in (*behind.values(), *before.values()))


def _parts(layer: Any) -> Parts | None:
    """What to compute with now, or None where the replaced layer must compute."""
    read = _read(layer)
    if read is None:
        return None
    norms = norms_of(layer, layer.family)
    if any(map(_hooked, norms.values())):
        return None
    read_from = (*read.values(), *(module.weight for module in norms.values()))
    # With adapters and with their scales at 0: a loss that compares with the base takes turns. In training and not.
    kind = any(projection.scale for projection in read.values()), bool(layer.training)
    known: Parts | None = layer.parts.get(kind)
    if known is None or not all(map(is_, known.read_from, read_from)):
        if known is not None:
            layer.parts.clear()  # the others may hold weights that are no longer there
        known = layer.parts[kind] = _made(layer, read, norms, read_from)
    return known


def _made(layer: Any, read: Read, modules: dict[str, Any], read_from: tuple[Any, ...]) -> Parts:
    family, attention = layer.family, layer.self_attn
    config = attention.config
    norms = {name: _norm(module, family) for name, module in modules.items()}
    before, first, *between = family.norms
    arithmetic = layer.arithmetic if layer.training else SIXTEEN
    qkv, o, gate_up, down = (
        Stack(tuple(read[name] for name in names)).computed_in(arithmetic)
        for names in (family.qkv, ("o_proj",), family.gate_up, ("down_proj",))
    )
    query, key = int(config.num_attention_heads), int(config.num_key_value_heads)
    heads = Heads(query, key, int(attention.head_dim), norms.get("q_norm"), norms.get("k_norm"))
    after = (norms[first], norms[between[1]]) if between else (None, None)
    mlp = Mlp(o, gate_up, down, norms[between[0] if between else first], family.activation, *after)
    window = getattr(attention, "sliding_window", getattr(config, "sliding_window", None))
    kind = AttentionKind(float(attention.scaling), window, getattr(attention, "attn_logit_softcapping", None))
    return Parts(read_from, norms[before], qkv, heads, mlp, kind)


def _fast(layer: Any, parts: Parts, x: torch.Tensor, angles: Angles, options: dict[str, Any]) -> torch.Tensor:
    shape, flat = x.shape, x.reshape(-1, x.shape[-1])
    store, keeps, tile, ready, alone = None, False, 0, layer.ready, not torch.is_grad_enabled()
    if layer.choice is not None:
        chooser, index = layer.choice
        if layer.training and not alone:
            store = chooser.store(index, len(flat))
            keeps = store is not None and chooser.keeps_matrices(len(flat))
        tile = chooser.tile(len(flat)) if alone or store is not None else 0

    def attention(heads: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return _attend(layer, parts.kind, heads, shape, options)

    def run(rows: torch.Tensor, wanted: bool = True) -> torch.Tensor:
        qkv, mlp = parts.qkv, parts.mlp
        if ready is not None:
            ready(not wanted, alone)
        if keeps and not wanted:
            qkv, mlp = qkv.keeping(), mlp.keeping()
        # The ops choose their own precision; the trainer may have switched autocast on.
        with torch.autocast(rows.device.type, enabled=False):
            q, k, v, residual = lora_qkv(rows, parts.norm, qkv, parts.heads, angles)
            return lora_mlp(attention((q, k, v)), residual, mlp, wanted)

    def begin(back: bool) -> Halves:
        if ready is not None:
            ready(back, alone)
        each = [angle.expand(shape[0], -1, -1).reshape(1, -1, angle.shape[-1]) for angle in angles]
        together = parts.kind.softcap is not None or layer.self_attn.config._attn_implementation != PACKED
        return Halves(parts.norm, parts.qkv, parts.heads, parts.mlp, (each[0], each[1]), attention, tile, together)

    adapters = [*parts.qkv.adapters, *parts.mlp.adapters]
    if tile:
        y = forward_in_tiles(flat, begin(False)) if store is None else tiled(flat, begin, adapters, store)
        return y.view(shape)
    if store is None:
        return (run(flat) if ready is None else awaited(run(flat), ready)).view(shape)
    return recomputed(run, flat, adapters, store).view(shape)


def _norm(module: Any, family: Family) -> Norm:
    eps = module.variance_epsilon if hasattr(module, "variance_epsilon") else module.eps
    return Norm(module.weight, float(eps), family.norm_offset)


def has_eps(norm: nn.Module) -> bool:
    """Whether this is an RMSNorm: transformers has two names for its epsilon."""
    return hasattr(norm, "variance_epsilon") or hasattr(norm, "eps")


def fast_norm(old: nn.Module, family: Family, last: nn.Module) -> nn.Module:
    """The norm after the last layer as one op; it shares the attribute dictionary of ``old``.

    Where ``last``, the last fast layer, would call the layer that it replaced, this calls ``old``'s forward.
    """
    old_class: Any = type(old)

    def forward(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        if _parts(last) is None:
            plain: torch.Tensor = old_class.forward(self, hidden_states)
            return plain
        norm = _norm(self, family)
        return rms_norm(hidden_states, norm.weight, norm.eps, norm.offset)

    new: nn.Module = object.__new__(type(f"Fast{old_class.__name__}", (old_class,), {"forward": forward}))
    new.__dict__ = old.__dict__
    return new


def _attend(
    layer: Any, kind: AttentionKind, heads: tuple[torch.Tensor, ...], shape: tuple[int, ...], options: dict[str, Any]
) -> torch.Tensor:
    """Attention of ``q, k, v [T, heads, size]``: ``[T, heads · size]``."""
    module = layer.self_attn
    name = module.config._attn_implementation
    if name == PACKED:
        q, k, v = heads
        return attend(q, k, v, Bounds.of(options, len(q), shape[0], q.device), kind).flatten(1)
    if kind.softcap is not None:
        options = {**options, "softcap": kind.softcap}
    q, k, v = (part.view(*shape[:-1], *part.shape[1:]).transpose(1, 2) for part in heads)
    chosen = {"dropout": 0.0, "scaling": module.scaling, "sliding_window": kind.window}
    result, _ = ALL_ATTENTION_FUNCTIONS[name](module, q, k, v, None, **chosen, **options)
    joined: torch.Tensor = result.reshape(len(heads[0]), -1)
    return joined
