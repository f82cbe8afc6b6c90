"""The optimiser of a run: over flat tensors, and a step of it happens whole or not at all.

All trained parameters of one kind lie in one tensor: a few launches in a step where there were hundreds. The places of
one flat tensor, each beginning at a multiple of 256, with zeros between them::

    | A of q, layer 0 |0| B of q, layer 0 | A of k, layer 0 |0| ...        p.data is a view of its place; p stays p

AdamW treats every value by itself, and its 8-bit form every block of 256 values (Dettmers et al. 2022,
arXiv:2110.02861), so the optimiser, given the flat tensors alone, steps bit for bit as with each tensor by itself. What
lies between places has no gradient; its moments stay zero (in 8 bits: at most the code next to zero, so never a block's
largest), and nobody reads it. bitsandbytes keeps tensors of fewer than 4,096 values in 32 bits: those lie in flat
tensors that are themselves as small.

Gradients are left where autograd puts them (written into a buffer they would cost one addition each), joined once
when the last micro-batch is launched, and are gone after the step. What none reached has a gradient of zero.

Memory may run out in a step. The first one makes the moments: until they stand, the weights are kept in host memory,
and what was begun is undone (weights put back, moments forgotten). Later steps need only passing room, which is asked
for before the first number is changed. Should memory still run out between two tensors, then no weight can be trusted,
and a fresh process goes back to the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from core.model.adapters import Trained
from core.model.faults import is_out_of_memory
from core.train.channel.command_queue import Afresh
from core.train.safety.memory import let_go_of

BLOCK = 256
"""Values that share a scale in 8-bit moments; places begin at multiples of it."""
SMALLEST_8BIT = 4096
"""bitsandbytes keeps the moments of a tensor in 8 bits from so many values on."""


class Flat:
    """One flat tensor and the parameters that are views of it."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = tuple(parameters)
        self.starts, self.length = _places([p.numel() for p in parameters])
        first = parameters[0]
        self.tensor = nn.Parameter(torch.zeros(self.length, dtype=first.dtype, device=first.device))
        self._zeros = torch.zeros(BLOCK, dtype=first.dtype, device=first.device)
        self._tie()

    def _tie(self) -> None:
        """Makes views of those parameters that are none: at first all, later those that somebody moved (DDP may)."""
        data = self.tensor.data
        begin, size = data.data_ptr(), data.element_size()
        for parameter, start in zip(self.parameters, self.starts, strict=True):
            if parameter.data_ptr() != begin + start * size:
                place = data[start : start + parameter.numel()].view(parameter.shape)
                place.copy_(parameter.data)
                parameter.data = place

    def gather(self) -> None:
        """The parameters' gradients become the flat tensor's, and are theirs no longer."""
        self._tie()
        ends = [*self.starts[1:], self.length]
        pieces: list[torch.Tensor] = []
        for parameter, start, end in zip(self.parameters, self.starts, ends, strict=True):
            gradient = parameter.grad
            pieces.append((torch.zeros_like(parameter) if gradient is None else gradient).detach().reshape(-1))
            if gap := end - start - parameter.numel():
                pieces.append(self._zeros[:gap])
            parameter.grad = None
        self.tensor.grad = torch.cat(pieces)


class FlatParameters:
    """The flat tensors of some groups of parameters. ``groups`` has the same groups, flat."""

    def __init__(self, groups: Sequence[Sequence[nn.Parameter]], eight_bit: bool = False) -> None:
        self._flats = [[Flat(part) for part in _parts(group, eight_bit)] for group in groups]
        self.groups = [[flat.tensor for flat in flats] for flats in self._flats]
        if torch.cuda.is_initialized():
            # Most places that the parameters leave are under a mebibyte, and torch's allocator keeps tensors of that
            # size in memory of their own, which no activation ever gets (c10/cuda/CUDACachingAllocator, kSmallSize).
            torch.cuda.empty_cache()

    @property
    def tensors(self) -> list[nn.Parameter]:
        """Every flat tensor."""
        return [tensor for group in self.groups for tensor in group]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Every parameter that is a view."""
        return [parameter for flats in self._flats for flat in flats for parameter in flat.parameters]

    def gather(self) -> list[nn.Parameter]:
        """Joins the gradients; returns the flat tensors, which have them now."""
        for flats in self._flats:
            for flat in flats:
                flat.gather()
        return self.tensors

    def drop(self) -> None:
        """No gradient is left: neither joined nor apart. An optimiser passes over tensors without one."""
        for tensor in self.tensors:
            tensor.grad = None


def flat_optimizer(
    trainer: Any, trained: Trained, when_full: Callable[[int], None] | None
) -> tuple[torch.optim.Optimizer, FlatParameters]:
    """The Trainer's optimiser for ``trained``, of whole steps (``atomic``), over flat tensors."""
    groups = trained.groups(set(trainer.get_decay_parameter_names(trained.model)))
    optimizer_class, options = trainer.get_optimizer_cls_and_kwargs(trainer.args, trained.model)
    flat = FlatParameters(groups, eight_bit=options.get("optim_bits") == 8)
    decays = (trainer.args.weight_decay, 0.0)
    settings = [{"params": group, "weight_decay": decay} for group, decay in zip(flat.groups, decays, strict=True)]
    return atomic(optimizer_class, when_full)(settings, **options), flat


def total_norm(gradients: Iterable[torch.Tensor]) -> torch.Tensor:
    """The 2-norm over all gradients, a scalar of their device.

    Summed block by block first: over millions of values in one go, torch on the CPU is wrong in the third digit.
    """
    norms, norm = [], torch.linalg.vector_norm
    for gradient in gradients:
        whole = gradient.numel() % BLOCK == 0 and gradient.is_contiguous()
        norms.append(norm(gradient.view(-1, BLOCK), dim=1) if whole else norm(gradient).view(1))
    return norm(torch.cat(norms)) if norms else torch.zeros(())


def _places(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where each begins, and where the whole ends: at a multiple of 256 too, unless that made a small one large."""
    starts, end = [], 0
    for size in sizes:
        starts.append(_aligned(end))
        end = starts[-1] + size
    grows = end < SMALLEST_8BIT <= _aligned(end)
    return starts, end if grows else _aligned(end)


def _aligned(length: int) -> int:
    return -(-length // BLOCK) * BLOCK


def _parts(group: Sequence[nn.Parameter], eight_bit: bool) -> list[list[nn.Parameter]]:
    """Parameters that may lie in one flat tensor; in 8 bits small ones apart, never 4,096 values together."""
    parts: dict[tuple[Any, ...], list[nn.Parameter]] = {}
    bins: dict[tuple[Any, ...], int] = {}
    for parameter in group:
        small = eight_bit and parameter.numel() < SMALLEST_8BIT
        kind: tuple[Any, ...] = (parameter.dtype, parameter.device, small)
        key = (*kind, bins.get(kind, 0))
        if small and key in parts and _places([p.numel() for p in (*parts[key], parameter)])[1] >= SMALLEST_8BIT:
            bins[kind] = bins.get(kind, 0) + 1
            key = (*kind, bins[kind])
        parts.setdefault(key, []).append(parameter)
    return list(parts.values())


def atomic(
    optimizer_class: type[torch.optim.Optimizer], when_full: Callable[[int], None] | None
) -> type[torch.optim.Optimizer]:
    """``optimizer_class`` with whole steps only; ``Afresh`` where one was half done and cannot be undone.

    Args:
        when_full: called when memory ran out and the step is to be done again, with how often; it raises to give up.
            None leaves the error as it is.
    """
    if when_full is None:
        return optimizer_class
    told = when_full

    class Atomic(optimizer_class):  # type: ignore[misc, valid-type]
        @torch.no_grad()
        def step(self, closure: Any = None) -> Any:
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
                told(tries)

    return Atomic


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
