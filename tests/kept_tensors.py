"""What autograd keeps: the terms of the memory are compared with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def kept_of(made: Any) -> Iterator[dict[int, Any]]:
    """The storages that autograd keeps in a forward pass, without parameters, by their place."""
    import torch

    own = {parameter.untyped_storage().data_ptr() for parameter in made.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept
