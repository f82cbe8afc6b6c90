"""The packed form of an encoder's layer, over transformers' own submodules.

Post-norm (BERT):                                     pre-norm (ModernBERT):
    x = norm(x + between(attention(x)))                   x = x + between(attention(norm(x)))
    x = norm(x + feed(x))                                 x = x + feed(norm(x))

A residual add and the norm after it are one op (``core.kernels.layer_norm``) where the layer is ``fused``. Given a
padded batch (no row bounds) the layer computes as its class in transformers does.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import nn

from core.kernels.layer_norm import add_norm, layer_norm
from core.model.encoders.blocks import Blocks
from core.models.encoders import EncoderFamily

BOUNDS = ("cu_seq_lens_q", "max_length_q")
"""transformers' names of what says where rows begin."""


def packed_layer(old: nn.Module, family: EncoderFamily, fused: bool) -> nn.Module:
    """The packed form of ``old``; both share one attribute dictionary, so children, keys and modes are the same."""
    old_class: Any = type(old)
    new: nn.Module = object.__new__(_class_over(old_class, family, fused))
    new.__dict__ = old.__dict__
    return new


def is_packed(layer: Any) -> bool:
    """Whether this layer is a packed form."""
    return isinstance(layer, _PackedForward)


def part(module: Any, path: str) -> Any:
    """The submodule of this path."""
    for name in path.split("."):
        module = getattr(module, name)
    return module


@lru_cache(maxsize=64)
def _class_over(layer_class: Any, family: EncoderFamily, fused: bool) -> Any:
    """A subclass of the layer's class, so that ``isinstance`` checks and recomputation still hold."""
    form = _PreNorm if family.norm_first else _PostNorm
    return type(f"Packed{layer_class.__name__}", (form, layer_class), {"family": family, "fused": fused})


class _PackedForward:
    """What both forms share, mixed into a layer class of transformers."""

    family: EncoderFamily
    fused: bool

    def forward(self, hidden_states: torch.Tensor, *rest: Any, **options: Any) -> Any:
        """``[1, T, D]`` to the same with row bounds (``BOUNDS``) or ``blocks``; else as the class does."""
        if BOUNDS[0] in options or "blocks" in options:
            return self.packed(hidden_states, options)
        return super().forward(hidden_states, *rest, **options)  # type: ignore[misc]

    def packed(self, x: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        """The formula of the module."""
        raise NotImplementedError

    def attended(self, x: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        """Attention and what follows it up to the residual add."""
        attention = part(self, self.family.attention)
        blocks: Blocks | None = options.get("blocks")
        x = attention(x, **options)[0] if blocks is None else blocks.attend(attention, x)
        return self.through(self.family.between, x)

    def through(self, names: tuple[str, ...], x: torch.Tensor) -> torch.Tensor:
        """``x`` through submodules, one after another."""
        for name in names:
            x = part(self, name)(x)
        return x

    def owns(self, norm: Any) -> bool:
        """Whether our op computes this norm."""
        return self.fused and type(norm) is nn.LayerNorm


class _PostNorm(_PackedForward):
    def packed(self, x: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        x = self._joined(self.family.norms[0], self.attended(x, options), x)
        return self._joined(self.family.norms[1], self.through(self.family.feed, x), x)

    def _joined(self, name: str, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        norm = part(self, name)
        if self.owns(norm):
            return layer_norm(x, norm.weight, norm.bias, norm.eps, residual)
        result: torch.Tensor = norm(x + residual)
        return result


class _PreNorm(_PackedForward):
    def packed(self, x: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        first, second = (part(self, name) for name in self.family.norms)
        inner = layer_norm(x, first.weight, first.bias, first.eps) if self.owns(first) else first(x)
        attended = self.attended(inner, options)
        if self.owns(second):
            inner, x = add_norm(attended, x, second.weight, second.bias, second.eps)
        else:
            x = x + attended
            inner = second(x)
        return x + self.through(self.family.feed, inner)
