"""The optimiser of a run: over flat tensors, in steps that happen whole or not at all.

All trained parameters of one kind are views of one flat tensor, which takes a few launches per step instead of
hundreds. Each begins at a multiple of 256, with zeros between them::

    | A of q, layer 0 |0| B of q, layer 0 | A of k, layer 0 |0| ...

AdamW treats every value by itself, and 8-bit forms every block of 256 values (Dettmers et al. 2022,
arXiv:2110.02861), so a step is bit for bit that over separate tensors. Optimisers of which this does not hold
(``core.contract.optimisers``) get the parameters as they are. Values between parameters have no gradient;
their moments stay zero (in 8 bits at most the code next to zero, never a block's largest). bitsandbytes keeps tensors
of fewer than 4,096 values in 32 bits: these lie in flat tensors as small.

Gradients are joined once, after the last micro-batch; accumulated in a flat buffer they would cost an addition each.

Parameters of 16 bits (whole finetuning, embeddings, biases) are too coarse for a step: a flat tensor then holds their
float32 numbers (mixed precision: Micikevicius et al. 2018, arXiv:1710.03740), into which each gradient is added, in
float32, as soon as backward has made it, and of which the parameters are rounded copies::

    16-bit parameter ─ backward ─► 16-bit gradient ─► added to the flat gradient ─► step ─► rounded into the parameter

Such flat tensors are small, so that their gradients come as activations go.

Memory may run out in a step. The first one makes the moments: the weights are kept in host memory meanwhile, so that it
can be undone. Later steps need temporary memory only, which is asked for before the first value is changed. Where it
still runs out between two tensors, a fresh process goes back to the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any
from weakref import ref

import torch
from torch import nn

from core.contract.optimisers import (
    EIGHT_BIT_BLOCK,
    EIGHT_BIT_FROM,
    FLAT_MOST,
    FLAT_MOST_HALVES,
    OPTIMISERS,
    Optimiser,
    OptimiserName,
    part_of,
)
from core.model.adapters import Group, Trained, of_layer
from core.model.faults import is_out_of_memory
from core.train.channel.command_queue import Afresh
from core.train.safety.memory import asked_optimiser, let_go_of
from core.train.step.joint import MuonWithAdamW

BLOCK = EIGHT_BIT_BLOCK
"""Parameters begin at multiples of it."""
JOINT: dict[OptimiserName, type[torch.optim.Optimizer]] = {"muon": MuonWithAdamW}
"""Optimisers that transformers does not know."""
HALVES = (torch.float16, torch.bfloat16)


class Flat:
    """One flat tensor and the parameters that are views of it; those of 16 bits (``wide``) are copies.

    ``shaped``: it has the one parameter's shape.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], shaped: bool = False) -> None:
        self.parameters = tuple(parameters)
        self.starts, self.length = _places([p.numel() for p in parameters])
        first = parameters[0]
        self.wide = first.dtype in HALVES
        dtype = torch.float32 if self.wide else first.dtype
        size = first.shape if shaped else (self.length,)
        self.tensor = nn.Parameter(torch.zeros(size, dtype=dtype, device=first.device))
        self._zeros = torch.zeros(BLOCK, dtype=dtype, device=first.device)
        if not self.wide:
            self._tie()
            return
        for start, parameter in zip(self.starts, parameters, strict=True):
            _place(self.tensor.data, start, parameter).copy_(parameter.data)
            parameter.register_post_accumulate_grad_hook(_adding(ref(self), start))

    def _tie(self) -> None:
        """Makes views of those parameters that are none: at first all, later those that were moved (DDP may)."""
        data = self.tensor.data
        begin, size = data.data_ptr(), data.element_size()
        for parameter, start in zip(self.parameters, self.starts, strict=True):
            if parameter.data_ptr() != begin + start * size:
                place = _place(data, start, parameter)
                place.copy_(parameter.data)
                parameter.data = place

    def _add(self, start: int, parameter: torch.Tensor) -> None:
        """Moves a parameter's new gradient to the flat tensor's."""
        if self.tensor.grad is None:
            self.tensor.grad = torch.zeros_like(self.tensor)
        if parameter.grad is not None:
            _place(self.tensor.grad, start, parameter).add_(parameter.grad)
            parameter.grad = None

    def exact(self) -> dict[nn.Parameter, torch.Tensor]:
        """What the optimiser holds of each parameter, in its shape."""
        return {p: _place(self.tensor.data, start, p) for p, start in zip(self.parameters, self.starts, strict=True)}

    def gather(self) -> None:
        """Moves the parameters' gradients into the flat tensor's; a missing one counts as zero."""
        if self.wide:
            self.tensor.grad = torch.zeros_like(self.tensor) if self.tensor.grad is None else self.tensor.grad
            return
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


def _adding(flat: ref[Flat], start: int) -> Callable[[torch.Tensor], None]:
    """What a parameter does with a new gradient; it does not keep the flat tensor alive, which keeps the parameter."""

    def add(parameter: torch.Tensor) -> None:
        if (there := flat()) is not None:
            there._add(start, parameter)

    return add


class _Stepped:
    """Groups of tensors that an optimiser steps."""

    groups: Sequence[Sequence[nn.Parameter]]
    wide: Sequence[nn.Parameter]
    """Those of which parameters of 16 bits are rounded copies."""

    @property
    def tensors(self) -> list[nn.Parameter]:
        """Every one of them."""
        return [tensor for group in self.groups for tensor in group]

    def drop(self) -> None:
        """Drops their gradients; an optimiser skips tensors without one."""
        for tensor in self.tensors:
            tensor.grad = None


class FlatParameters(_Stepped):
    """The flat tensors of some groups of parameters. ``groups`` has the same groups, flat."""

    def __init__(self, groups: Sequence[Sequence[nn.Parameter]], eight_bit: bool = False) -> None:
        self._flats = [[Flat(part) for part in _parts(group, eight_bit)] for group in groups]
        self.groups = [[flat.tensor for flat in flats] for flats in self._flats]
        self.wide = [flat.tensor for flats in self._flats for flat in flats if flat.wide]
        if torch.cuda.is_initialized():
            # Most parameters were under a mebibyte, and torch's allocator keeps blocks of that size in pools of their
            # own, which no activation ever gets (c10/cuda/CUDACachingAllocator, kSmallSize).
            torch.cuda.empty_cache()

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Every parameter that is a view."""
        return [parameter for flats in self._flats for flat in flats for parameter in flat.parameters]

    @property
    def exact(self) -> dict[nn.Parameter, torch.Tensor]:
        """What the optimiser holds of each parameter: itself, or its float32 numbers."""
        return {parameter: held for flats in self._flats for flat in flats for parameter, held in flat.exact().items()}

    def settle(self) -> None:
        """Rounds the optimiser's float32 numbers into parameters of 16 bits."""
        for flat in (flat for flats in self._flats for flat in flats if flat.wide):
            for parameter, held in flat.exact().items():
                parameter.data.copy_(held)

    def gather(self) -> list[nn.Parameter]:
        """Joins the gradients; returns the flat tensors with them."""
        for flats in self._flats:
            for flat in flats:
                flat.gather()
        return self.tensors


class ApartParameters(_Stepped):
    """Some groups of parameters, each in its own shape, as ``FlatParameters`` has them flat."""

    def __init__(self, groups: Sequence[Sequence[nn.Parameter]]) -> None:
        self.parameters = [parameter for group in groups for parameter in group]
        self._wide = {p: Flat([p], shaped=True) for p in self.parameters if p.dtype in HALVES}
        self.groups = [[self._wide[p].tensor if p in self._wide else p for p in group] for group in groups]
        self.wide = [flat.tensor for flat in self._wide.values()]

    @property
    def exact(self) -> dict[nn.Parameter, torch.Tensor]:
        """What the optimiser holds of each parameter: itself, or its float32 numbers."""
        tensors = zip(self.parameters, self.tensors, strict=True)
        return {parameter: tensor.data for parameter, tensor in tensors}

    def settle(self) -> None:
        """Rounds the optimiser's float32 numbers into parameters of 16 bits."""
        for parameter, flat in self._wide.items():
            parameter.data.copy_(flat.tensor.data)

    def gather(self) -> list[nn.Parameter]:
        """The tensors with their gradients; a missing one counts as zero."""
        for tensor in self.tensors:
            if tensor.grad is None:
                tensor.grad = torch.zeros_like(tensor)
        return self.tensors


def flat_optimizer(
    trainer: Any, trained: Trained, when_full: Callable[[int], None] | None
) -> tuple[torch.optim.Optimizer, FlatParameters | ApartParameters]:
    """The Trainer's optimiser, ``atomic``, over the parameters of ``trained``, flat where its row says so."""
    name = asked_optimiser(trainer.args)
    row = OPTIMISERS[name]
    groups = trained.groups(set(trainer.get_decay_parameter_names(trained.model)), trainer.args.learning_rate)
    optimizer_class, options = trainer.get_optimizer_cls_and_kwargs(trainer.args, trained.model)
    if row.others:
        optimizer_class, groups = JOINT[name], _apart(groups, trained)
    lists = [group.parameters for group in groups]
    made = FlatParameters(lists, options.get("optim_bits") == 8) if row.flat else ApartParameters(lists)
    settings = [
        {
            "params": tensors,
            "weight_decay": trainer.args.weight_decay if group.decays else 0.0,
            "lr": trainer.args.learning_rate * group.times,
            "times": group.times,
            **({"matrices": group.matrices} if row.others else {}),
        }
        for tensors, group in zip(made.groups, groups, strict=True)
    ]
    optimizer = atomic(optimizer_class, when_full, row)(settings, **options)
    optimizer.register_step_post_hook(lambda *_step: made.settle())
    return optimizer, made


def _apart(groups: Sequence[Group], trained: Trained) -> list[Group]:
    """The groups, matrices of layers apart from all else."""
    matrices = {parameter for key, parameter in trained.named if of_layer(key, parameter)}
    halves = [
        replace(group, parameters=[p for p in group.parameters if (p in matrices) is of], matrices=of)
        for group in groups
        for of in (True, False)
    ]
    return [half for half in halves if half.parameters]


def restore_state(optimizer: Any, state: dict[str, Any]) -> None:
    """Gives ``state`` back to an optimiser, paged where it was: bitsandbytes loads it onto the card.

    Raises:
        ValueError: it is of other groups or numbers of parameters.
    """
    optimizer.load_state_dict(state)
    inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
    if not getattr(inner, "is_paged", False):
        return
    for parameter, held in inner.state.items():
        for name in held.keys() & {"state1", "state2"}:
            held[name] = inner.get_state_buffer(parameter, held[name].dtype).copy_(held[name])


def total_norm(gradients: Iterable[torch.Tensor]) -> torch.Tensor:
    """The 2-norm over all gradients, a scalar of their device.

    Block by block first: over millions of values at once, torch on the CPU is wrong in the third digit.
    """
    norms, norm = [], torch.linalg.vector_norm
    for gradient in gradients:
        whole = gradient.numel() % BLOCK == 0 and gradient.is_contiguous()
        norms.append(norm(gradient.view(-1, BLOCK), dim=1) if whole else norm(gradient).view(1))
    return norm(torch.cat(norms)) if norms else torch.zeros(())


def _places(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where each begins, and the whole length: a multiple of 256, unless that reached ``EIGHT_BIT_FROM``."""
    starts, end = [], 0
    for size in sizes:
        starts.append(_aligned(end))
        end = starts[-1] + size
    grows = end < EIGHT_BIT_FROM <= _aligned(end)
    return starts, end if grows else _aligned(end)


def _place(flat: torch.Tensor, start: int, parameter: torch.Tensor) -> torch.Tensor:
    """The part of a flat tensor that is a parameter's, in its shape."""
    return flat.view(-1)[start : start + parameter.numel()].view(parameter.shape)


def _aligned(length: int) -> int:
    return -(-length // BLOCK) * BLOCK


def _parts(group: Sequence[nn.Parameter], eight_bit: bool) -> list[list[nn.Parameter]]:
    """Parameters per flat tensor, at most ``FLAT_MOST`` values together (of 16 bits ``FLAT_MOST_HALVES``); in 8 bits
    small ones apart, fewer than 4,096."""
    parts: dict[tuple[Any, ...], list[nn.Parameter]] = {}
    bins: dict[tuple[Any, ...], int] = {}
    for parameter in group:
        small = eight_bit and parameter.numel() < EIGHT_BIT_FROM
        kind: tuple[Any, ...] = (parameter.dtype, parameter.device, small)
        most = FLAT_MOST_HALVES if parameter.dtype in HALVES else FLAT_MOST
        key, most = (*kind, bins.get(kind, 0)), EIGHT_BIT_FROM - 1 if small else most
        if key in parts and _places([p.numel() for p in (*parts[key], parameter)])[1] > most:
            bins[kind] = bins.get(kind, 0) + 1
            key = (*kind, bins[kind])
        parts.setdefault(key, []).append(parameter)
    return list(parts.values())


def atomic(
    optimizer_class: type[torch.optim.Optimizer],
    when_full: Callable[[int], None] | None,
    row: Optimiser = OPTIMISERS["adamw_torch"],
) -> type[torch.optim.Optimizer]:
    """``optimizer_class`` with whole steps only; raises ``Afresh`` where a half one cannot be undone.

    Args:
        when_full: called before a step is tried again, with the number of failures; it raises to give up. None: out of
            memory is not caught.
        row: its own, which says what a step takes for a moment.
    """
    if when_full is None:
        return optimizer_class
    before_retry = when_full

    class Atomic(optimizer_class):  # type: ignore[misc, valid-type]
        @torch.no_grad()
        def step(self, closure: Any = None) -> Any:
            before, tries = _Before(self), 0
            while True:
                try:
                    before.take_room(row)
                    return super().step(closure)
                except Exception as error:
                    if not is_out_of_memory(error):
                        raise
                    let_go_of(error)
                before.put_back()
                tries += 1
                before_retry(tries)

    return Atomic


class _Before:
    """An optimiser's state before a step."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._tensors = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self._fresh = not optimizer.state
        self._weights = [p.detach().to("cpu", copy=True) for p in self._tensors] if self._fresh else []
        self._steps = self._count()

    def take_room(self, row: Optimiser) -> None:
        """Allocates and frees a step's temporary memory, so that the allocator has it ready."""
        if self._fresh:
            return
        for matrices in (True, False):
            groups = (group for group in self._optimizer.param_groups if group.get("matrices", False) is matrices)
            stepped = [p for group in groups for p in group["params"] if p.grad is not None and p.is_cuda]
            sizes = part_of(row, matrices).passing([p.numel() for p in stepped])
            room = [torch.empty(size, dtype=torch.float32, device=stepped[0].device) for size in sizes]
            del room

    def put_back(self) -> None:
        """Undoes a half step.

        Raises:
            Afresh: some tensors were stepped already.
        """
        if self._fresh:
            for tensor, weights in zip(self._tensors, self._weights, strict=True):
                tensor.data.copy_(weights)
            self._optimizer.state.clear()
        elif self._count() != self._steps:
            raise Afresh("The memory ran out in the middle of an optimiser's step: back to the last checkpoint.")

    def _count(self) -> list[float]:
        """What a step counts up in each tensor: its own counter, or torch's of changes to it and its state."""
        state, counts = self._optimizer.state, []
        for parameter in (tensor for tensor in self._tensors if tensor in state):
            held = state[parameter]
            changes = (part._version for part in (parameter, *held.values()) if isinstance(part, torch.Tensor))
            counts.append(float(held["step"] if "step" in held else sum(changes)))
        return counts
