"""The fast twin of a decoder layer.

A fast layer holds the old layer's own children under their own names, so that every key, hook and adapter stays where
it was, and computes the same thing from their tensors with our ops::

    n = rms_norm(x)                                    q, k, v = lora_linear(n)      q, k = rope(q, k)
    n, h = add_rms_norm(lora_linear(attention), x)     y = h + lora_linear(swiglu(lora_linear(n), lora_linear(n)))

It asks at every call whether that is what peft would compute. With disabled, merged or several adapters, with a KV
cache, a mask (padding), or hooks on its children it calls the layer that it replaced, which it keeps outside of its
list of children. So inside ``disable_adapter()`` the model is the base model, bit for bit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from core.kernels.lora import lora_linear
from core.kernels.rms_norm import add_rms_norm, rms_norm
from core.kernels.rope import rope
from core.kernels.swiglu import swiglu
from core.model.families import Family
from core.model.peft_bnb import Projection, read_projection

__all__ = ["PROJECTIONS", "fast_layer"]

PROJECTIONS = (
    ("self_attn", "q_proj"),
    ("self_attn", "k_proj"),
    ("self_attn", "v_proj"),
    ("self_attn", "o_proj"),
    ("mlp", "gate_proj"),
    ("mlp", "up_proj"),
    ("mlp", "down_proj"),
)

Read = dict[str, tuple[Any, Projection]]


def fast_layer(old: nn.Module, family: Family) -> nn.Module:
    """A fast layer over ``old``'s children; ``old`` itself stays as it is."""
    old_class: Any = type(old)
    new_class = _class_over(old_class)
    new = new_class.__new__(new_class)
    nn.Module.__init__(new)
    for name, child in old.named_children():
        new.add_module(name, child)
    new.training = old.training
    # In a tuple: an attribute that is a module would become a child, and every key would be there twice.
    new.replaced = (old,)
    new.family = family
    return new


@lru_cache(maxsize=32)
def _class_over(layer_class: Any) -> Any:
    """A subclass of the replaced layer's class, so that whoever looks for its kind finds it still."""
    return type(f"Fast{layer_class.__name__}", (_FastForward, layer_class), {})


class _FastForward:
    """The forward pass, mixed into a layer class of transformers."""

    replaced: tuple[Any]
    family: Family
    self_attn: Any
    mlp: Any
    input_layernorm: Any
    post_attention_layernorm: Any

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = False,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """``[batch, T, D]`` to the same, in the convention of transformers' decoder layers."""
        read = None
        if attention_mask is None and past_key_values is None and position_embeddings is not None:
            read = _read(self)
        if read is None or position_embeddings is None:
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
        # Our ops choose their own precision, and a trainer may have switched autocast on around us.
        with torch.autocast(hidden_states.device.type, enabled=False):
            options["position_ids"] = position_ids
            return _fast(self, read, hidden_states, position_embeddings, options)


def _read(layer: Any) -> Read | None:
    """The seven projections as they stand now, or None where the replaced layer must be asked."""
    found: Read = {}
    for parent, name in PROJECTIONS:
        module = getattr(getattr(layer, parent), name)
        projection = None if _hooked(module) else read_projection(module)
        if projection is None:
            return None
        found[name] = (module, projection)
    norms = (layer.input_layernorm, layer.post_attention_layernorm)
    watched = (layer.replaced[0], layer.self_attn, layer.mlp, *norms)
    if any(_hooked(module) for module in watched):
        return None
    known = layer.self_attn.config._attn_implementation in ALL_ATTENTION_FUNCTIONS
    return found if known else None


def _hooked(module: Any) -> bool:
    """Somebody watches this module's own call (transformers does to record attentions), so it must be called."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _fast(
    layer: Any, read: Read, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], options: dict[str, Any]
) -> torch.Tensor:
    first, second = layer.input_layernorm, layer.post_attention_layernorm
    normed = rms_norm(x, first.weight, first.variance_epsilon)
    mixed = _project(read, "o_proj", _attend(layer, read, normed, angles, options))
    normed, residual = add_rms_norm(mixed, x, second.weight, second.variance_epsilon)
    gated = swiglu(_project(read, "gate_proj", normed), _project(read, "up_proj", normed))
    return residual + _project(read, "down_proj", gated)


def _attend(
    layer: Any, read: Read, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], options: dict[str, Any]
) -> torch.Tensor:
    """Attention over ``x [batch, T, D]``, heads joined again, before the output projection."""
    module = layer.self_attn
    heads = (*x.shape[:-1], -1, module.head_dim)
    q, k, v = (_project(read, name, x).view(heads) for name in ("q_proj", "k_proj", "v_proj"))
    if layer.family.head_norms:
        q = rms_norm(q, module.q_norm.weight, module.q_norm.variance_epsilon)
        k = rms_norm(k, module.k_norm.weight, module.k_norm.variance_epsilon)
    q, k = rope(q.transpose(1, 2), k.transpose(1, 2), *angles)
    attention = ALL_ATTENTION_FUNCTIONS[module.config._attn_implementation]
    window = getattr(module, "sliding_window", getattr(module.config, "sliding_window", None))
    result, _ = attention(
        module,
        q,
        k,
        v.transpose(1, 2),
        None,
        dropout=module.attention_dropout if module.training else 0.0,
        scaling=module.scaling,
        sliding_window=window,
        **options,
    )
    joined: torch.Tensor = result.reshape(*x.shape[:-1], -1)
    return joined


def _project(read: Read, name: str, x: torch.Tensor) -> torch.Tensor:
    module, p = read[name]
    if p.a is None or p.b is None:
        plain: torch.Tensor = module(x)
        return plain
    return lora_linear(x, p.weight, p.bias, p.a, p.b, p.scale)
