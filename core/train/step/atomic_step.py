"""An optimiser whose step happens whole or not at all, though memory may run out in it.

The first step makes the moments, and that is where memory may be missing. Until they stand, the weights are kept in
host memory, and what was begun is undone: weights put back, moments forgotten. Later steps need only passing room,
which is asked for before the first number is changed. Should memory still run out between two tensors, then no weight
can be trusted, and a fresh process goes back to the last checkpoint.
"""

from collections.abc import Callable
from typing import Any

import torch

from core.model.faults import is_out_of_memory
from core.train.channel.command_queue import Afresh
from core.train.safety.memory import let_go_of


class AtomicOptimizer(torch.optim.Optimizer):
    """Stands before an optimiser class in the order of bases; see ``atomic``."""

    when_full: Callable[[int], None] | None = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """As the optimiser's own.

        Raises:
            Afresh: memory ran out when the step was half done.
        """
        if self.when_full is None:
            return super().step(closure)
        before, tries = _Before(self), 0
        while True:
            try:
                before.take_room()
                return super().step(closure)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                let_go_of(error)
            before.put_back()
            tries += 1
            self.when_full(tries)


class _Before:
    """An optimiser as it is before a step."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._tensors = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self._fresh = not optimizer.state
        self._weights = [p.detach().to("cpu", copy=True) for p in self._tensors] if self._fresh else []
        self._steps = self._count()

    def take_room(self) -> None:
        """What a step in float32 takes in passing is asked for and given back, so that it lies ready."""
        if not self._fresh:
            room = [
                torch.empty_like(p) for p in self._tensors if p.is_cuda and "state1" not in self._optimizer.state[p]
            ]
            del room

    def put_back(self) -> None:
        """Undoes what was begun."""
        if self._fresh:
            for tensor, weights in zip(self._tensors, self._weights, strict=True):
                tensor.data.copy_(weights)
            self._optimizer.state.clear()
        elif self._count() != self._steps:
            raise Afresh("The memory ran out in the middle of an optimiser's step: back to the last checkpoint.")

    def _count(self) -> list[float]:
        return [float(self._optimizer.state[p].get("step", 0)) for p in self._tensors if p in self._optimizer.state]


def atomic(
    optimizer_class: type[torch.optim.Optimizer], when_full: Callable[[int], None] | None
) -> type[AtomicOptimizer]:
    """``optimizer_class`` with whole steps only.

    Args:
        when_full: called when memory ran out and the step is to be done again, with how often; it raises to give up.
            None leaves the error as it is.
    """
    bases = (AtomicOptimizer, optimizer_class)
    return type(
        f"Atomic{optimizer_class.__name__}", bases, {"when_full": staticmethod(when_full) if when_full else None}
    )
