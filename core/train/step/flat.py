"""All trained parameters of one kind as one tensor: a few launches in a step where there were hundreds.

The places of one flat tensor, each beginning at a multiple of 256, with zeros between them::

    | A of q, layer 0 |0| B of q, layer 0 | A of k, layer 0 |0| ...        p.data is a view of its place; p stays p

AdamW treats every value by itself, and its 8-bit form every block of 256 values (Dettmers et al. 2022,
arXiv:2110.02861), so the optimiser, given the flat tensors alone, steps bit for bit as with each tensor by itself. What
lies between places has no gradient; its moments stay zero (in 8 bits: at most the code next to zero, so never a block's
largest), and nobody reads it. bitsandbytes keeps tensors of fewer than 4,096 values in 32 bits: those lie in flat
tensors that are themselves as small.

Gradients are left where autograd puts them (written into a buffer they would cost one addition each), joined once
when the last pass is launched, and are gone after the step. A parameter that no pass reached has a gradient of zero.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from core.model.adapters import trainable
from core.train.step.atomic_step import AtomicOptimizer, atomic

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
    trainer: Any, model: nn.Module, when_full: Callable[[int], None] | None
) -> tuple[AtomicOptimizer, FlatParameters]:
    """The Trainer's optimiser for ``model``, of whole steps (``atomic``), over flat tensors; weight decay as it was."""
    decayed = set(trainer.get_decay_parameter_names(model))
    named = trainable(model)
    groups = [[p for name, p in named if name in decayed], [p for name, p in named if name not in decayed]]
    optimizer_class, options = trainer.get_optimizer_cls_and_kwargs(trainer.args, model)
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
