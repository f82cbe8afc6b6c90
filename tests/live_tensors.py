"""What torch holds at once, counted by its storages: moments of the memory are compared with it."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Live(TorchDispatchMode):
    """The most bytes that storages made under it had at once, as one of ``operators`` ended."""

    def __init__(self, *operators: str) -> None:
        super().__init__()
        self.most, self._operators = 0, operators
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {one.untyped_storage()._cdata for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)}
        result = operator(*args, **(kwargs or {}))
        for one in tree_leaves(result):
            if isinstance(one, torch.Tensor) and (storage := one.untyped_storage())._cdata not in given:
                self._live[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self._live = {place: held for place, held in self._live.items() if not held[0].expired()}
        if str(operator) in self._operators:
            self.most = max(self.most, sum(size for _, size in self._live.values()))
        return result
