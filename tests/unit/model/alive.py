"""Bytes of all tensors that are there at once, by torch's dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Alive(TorchDispatchMode):
    """Counts each storage that an operation of its block returned, from then on until it is freed; views count whole.

    ``peak`` is the most at once; memory that ``unseen`` functions take until they return does not count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._there: dict[int, tuple[StorageWeakRef, int]] = {}
        self._hidden = 0

    def unseen(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose temporary tensors do not count: a kernel has none."""

        def quietly(*given: Any, **named: Any) -> Any:
            self._hidden += 1
            try:
                return function(*given, **named)
            finally:
                self._hidden -= 1

        return quietly

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                place = StorageWeakRef(storage)
                self._there[place.cdata] = place, storage.nbytes()
        if not self._hidden:
            self._there = {key: held for key, held in self._there.items() if not held[0].expired()}
            self.peak = max(self.peak, sum(size for _, size in self._there.values()))
        return made
