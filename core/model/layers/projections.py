"""Fast single projections, for models whose decoder layers have no fast form.

The new object's class derives from the old one's, and both share one attribute dictionary, so parameters, hooks and
peft's state stay common. Unless exactly one adapter is active and unmerged, peft computes.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import nn

from core.kernels.lora import lora_linears
from core.model.layers.peft_bnb import is_adapted, read_projection, why_not_static


def adapted_projections(model: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    """``(parent, name, projection)`` of every adapted projection that our op can compute."""
    adapted: list[tuple[nn.Module, str, nn.Module]] = []
    for parent in model.modules():
        child: Any
        for name, child in parent.named_children():
            if is_adapted(child) and not why_not_static(child):
                bias = child.get_base_layer().bias
                if bias is None or not bias.requires_grad:
                    adapted.append((parent, name, child))
    return adapted


def fast_projection(old: nn.Module) -> nn.Module:
    """A fast projection that shares the attributes of ``old``."""
    old_class: Any = type(old)
    new: nn.Module = object.__new__(_class_over(old_class))
    new.__dict__ = old.__dict__
    return new


@lru_cache(maxsize=32)
def _class_over(projection_class: Any) -> Any:
    return type(f"Fast{projection_class.__name__}", (_FastProjection, projection_class), {})


class _FastProjection:
    """The forward pass, mixed into a projection class of peft."""

    def forward(self, x: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        """``[..., D]`` to ``[..., O]``."""
        projection = None if rest or options else read_projection(self)
        if projection is None or projection.a is None:
            result: torch.Tensor = super().forward(x, *rest, **options)  # type: ignore[misc]
            return result
        with torch.autocast(x.device.type, enabled=False):
            return lora_linears(x, [projection])
