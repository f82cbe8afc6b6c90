"""The one mixin that every trainer of ours has: our windows, our cut into passes, our normalisation, our events.

transformers' Trainer keeps what it is good at: optimiser, scheduler, mixed precision, distributed wrapping. To it one
batch is one whole window and its accumulation is 1. Of a window W cut into passes p, each a sum of losses::

    gradient = Σ_p ∂ Σ_{r in p} loss(r) / Σ_{r in W} weight(r)        weight: trained tokens, or 1 for a pair

so batch 1 × accumulation 8 equals 8 × 1. Over ranks the denominator is summed, and the quotient multiplied by their
number since DDP averages.

A card works while Python prepares what comes next, and waits once in a step, for its loss and gradient norm::

    passes ─► gradients joined, their norm ─► (next window's first pass made) ─► read ─► judge, clip ─► optimiser

What the Trainer does beside that walks thousands of modules (modes, clipping, zeroing) or waits for the card (logging);
so those are ours, on flat parameters (``core.train.step.flat``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn
from transformers import TrainerCallback

from core.data.deal.packing import cut
from core.model.faults import is_out_of_memory
from core.train.safety.memory import pass_tokens
from core.train.step.flat import FlatParameters, flat_optimizer, total_norm
from core.train.step.micro_batches import cut_padded

if TYPE_CHECKING:
    from core.train.loop import Loop
    from core.train.safety.oom_recovery import OomRecovery

__all__ = ["Rows", "StepEnd", "WindowTrainer", "split_window"]


Found = tuple[list[nn.Parameter], torch.Tensor]
"""Tensors with their gradients, and the norm over all of these."""


class Rows(Protocol):
    """What is asked of data while it is trained on; see ``core.train.step.rows``."""

    def __len__(self) -> int: ...

    def length(self, row: int) -> int:
        """Tokens that a pass computes for this row."""

    def tokens(self, row: int) -> int:
        """Real tokens of this row."""

    def trained(self, row: int) -> int:
        """Its targets."""

    def weight(self, row: int) -> int:
        """Its share in the mean loss."""


def split_window(rows: Rows, window: Sequence[int], tokens_per_pass: int, packed: bool) -> list[list[int]]:
    """The passes of one window, as row numbers."""
    lengths = [rows.length(row) for row in window]
    groups = cut(lengths, tokens_per_pass) if packed else cut_padded(lengths, tokens_per_pass)
    return [[window[place] for place in group] for group in groups]


class WindowTrainer:
    """Stands before a Trainer in the order of bases. ``loop`` is set before ``train()`` is called."""

    loop: Loop
    packed = True
    tokens_per_pass = 0
    clip_norm = 0.0
    """Gradients are scaled down to this norm; 0 leaves them. The Trainer's own clipping is off."""
    flat: FlatParameters | None = None
    grad_norm = 0.0
    """Of the last window, before clipping."""
    measures: tuple[str, ...] = ()
    """What the passes measure beside the loss, as ``core.contract.methods`` has it."""
    sums: Sequence[Any] = ()
    """Of these, over the rows since ``measure_anew``: numbers, or scalars that the card may still be computing."""
    measured: dict[str, float]
    """Their means over the last window."""
    relief: OomRecovery | None = None
    """What is done when memory runs out; without it the error goes on its way."""
    in_pass: Sequence[int] = ()
    """Rows of the pass that is computed; after a window, of its largest."""
    _in_training_mode = False
    _cut: tuple[list[int], list[list[int]]] | None = None

    def pass_loss(self, model: Any, rows: Any, chosen: Sequence[int]) -> torch.Tensor:
        """Sum of the losses of the chosen rows, a float32 scalar; the denominator is not ours to know here."""
        raise NotImplementedError

    def measure_anew(self) -> None:
        """What was measured so far is left out of what follows."""
        self.sums, self.measured = [0.0] * len(self.measures), {}

    def measure(self, more: Sequence[Any]) -> None:
        """Adds a pass's sums of ``measures``."""
        before = self.sums or [0.0] * len(self.measures)
        self.sums = [value + one for value, one in zip(before, more, strict=True)]

    def look_ahead(self, rows: Any, chosen: Sequence[int]) -> None:
        """Called while the card works: ``chosen`` will be the next window's first pass."""

    def forget_ahead(self) -> None:
        """What was made ahead is let go."""

    def get_train_dataloader(self) -> Any:
        """Our windows in place of a DataLoader."""
        return self.loop.feed

    def floating_point_ops(self, inputs: Any) -> int:  # noqa: ARG002 - the Trainer's signature
        """Not counted."""
        return 0

    def create_optimizer(self: Any, model: Any = None) -> torch.optim.Optimizer:
        """The Trainer's optimiser over flat parameters; over single ones where others cut them up between cards."""
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            optimizer: torch.optim.Optimizer = super().create_optimizer(*([model] if model is not None else []))  # type: ignore[misc]
            return optimizer
        if self.optimizer is None:
            steady, self.flat = flat_optimizer(self, model or self.model)
            steady.when_full = self.relief.optimiser_full if self.relief else None
            self.optimizer = steady
        return self.optimizer

    def training_step(self: Any, model: Any, inputs: dict[str, Any], *_counted: Any, **_options: Any) -> torch.Tensor:
        """Forward and backward of one whole window; returns its mean loss."""
        if not self._in_training_mode:  # evaluations and samples put it back themselves
            model.train()
            self._in_training_mode = True
        if self.relief is None:
            mean, found = self._window(model, inputs["rows"])
        else:
            self.relief.before_the_first_step(model)
            mean, found = self.relief.until_it_fits(partial(self._window, model, inputs["rows"]))
        loss = self._judge(mean, found)
        self.loop.window_done(self._own(inputs["rows"]), loss)
        return mean

    def _own(self: Any, dealt: list[int]) -> list[int]:
        """This process's rows of a window."""
        return dealt[self.accelerator.process_index :: self.accelerator.num_processes]

    def _window(self: Any, model: Any, dealt: list[int]) -> tuple[torch.Tensor, Found]:
        """The window's mean loss and its gradients, joined. What it does it can do again: see
        ``core.train.safety.oom_recovery``.
        """
        self.loop.step_begins(self.state.global_step + 1)
        self.measure_anew()
        window = self._own(dealt)
        weight = self.sum_over_ranks(float(sum(self.loop.rows.weight(row) for row in window)))
        self.loop.guard.require_weight(self.state.global_step + 1, weight)
        # A rank without a row in a last, partial window goes along with one that counts nothing: others wait for it.
        total = self.gradients(model, self._passes(self.loop.rows, window or dealt[:1]), weight, bool(window))
        own = [total, *(_scalar(value, total) * bool(window) for value in self.sums)]
        if self.accelerator.num_processes > 1:
            own = [self.accelerator.reduce(value, reduction="sum") for value in own]
        mean, *self.sums = (value / weight for value in own)
        return mean, self.joined()

    def gradients(self: Any, model: Any, passes: list[list[int]], weight: float, counts: bool = True) -> torch.Tensor:
        """Backward of the passes' losses over ``weight``; returns their sum, a float64 scalar."""
        ranks, self.in_pass = self.accelerator.num_processes, passes[0]
        total = torch.zeros((), dtype=torch.float64, device=self.args.device)
        for number, chosen in enumerate(passes, start=1):
            self.loop.seam()
            self.in_pass, last = chosen, number == len(passes)
            with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
                loss = self.pass_loss(model, self.loop.rows, chosen) * (1.0 if counts else 0.0)
                self.accelerator.backward(loss * (ranks / weight))
            total += loss.detach()
        self.in_pass = max(passes, key=self._tokens)
        return total

    def joined(self: Any) -> Found:
        """The tensors that the optimiser sees, with the window's gradients, and the norm over all."""
        trained = self.flat.gather() if self.flat else [p for p in self.model.parameters() if p.grad is not None]
        return trained, total_norm([parameter.grad for parameter in trained])

    def cut(self, window: Sequence[int]) -> list[list[int]]:
        """The window's passes."""
        return split_window(self.loop.rows, window, self.tokens_per_pass, self.packed)

    def forget(self: Any) -> None:
        """No gradient is left, nor anything that was made ahead."""
        self._drop()
        if self.flat:
            for parameter in self.flat.parameters:
                parameter.grad = None
        self._cut = None
        self.forget_ahead()

    def _tokens(self, chosen: Sequence[int]) -> int:
        return pass_tokens([self.loop.rows.length(row) for row in chosen], self.packed)

    def _passes(self, rows: Rows, window: list[int]) -> list[list[int]]:
        """The window's passes, remembered: they are asked for when it is seen ahead and when it is there."""
        if self._cut is None or self._cut[0] != window:
            self._cut = (window, split_window(rows, window, self.tokens_per_pass, self.packed))
        return self._cut[1]

    def _judge(self: Any, mean: torch.Tensor, found: Found) -> float:
        """Mean loss of the window, read with its gradient norm in one go; gradients of a bad one are dropped.

        With a gradient scaler (float16) the scaler itself skips what overflowed; what it would not see in them (an
        infinite loss may have finite gradients) is shown to it as infinite ones, for it insists on some.
        """
        trained, norm = found[0], found[1].to(mean.device)
        self._see_ahead()
        scale = self.accelerator.scaler.get_scale() if self.accelerator.scaler else None
        if scale:
            norm = norm / scale  # the scaler divides only at its own step
        loss, self.grad_norm, *means = torch.stack([mean, norm.to(mean.dtype), *self.sums]).tolist()
        self.measured = dict(zip(self.measures, means, strict=True))
        good = self.loop.guard.judge(self.state.global_step + 1, loss, self.grad_norm, scale)
        if not good and scale is None:
            self._drop()
        elif not good:
            for parameter in trained:
                if parameter.grad is not None:
                    parameter.grad.fill_(float("inf"))
        elif 0 < self.clip_norm < self.grad_norm < float("inf"):
            nn.utils.clip_grads_with_norm_(trained, self.clip_norm, norm)
        return float(loss)

    def _see_ahead(self: Any) -> None:
        following = self._own(self.loop.next_window() or [])
        if not following:
            return
        try:
            self.look_ahead(self.loop.rows, self._passes(self.loop.rows, following)[0])
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self.forget_ahead()  # it is made when it is needed

    def _drop(self: Any) -> None:
        if self.flat:
            self.flat.drop()
        else:
            self.model.zero_grad(set_to_none=True)

    def step_ended(self) -> None:
        """After the optimiser's step."""
        if self.flat:
            self.flat.drop()
        self.loop.step_done(self.grad_norm)
        if self.relief is not None:
            self.relief.step_done()

    def _get_grad_norm(self, _model: Any, grad_norm: Any = None) -> float:  # noqa: ARG002 - the Trainer's signature
        """Known already. A Trainer without this hook counts one over no gradients."""
        return self.grad_norm

    def sum_over_ranks(self: Any, value: float) -> float:
        """The sum of one number over all ranks."""
        if self.accelerator.num_processes == 1:
            return value
        return float(self.accelerator.reduce(torch.tensor(value, device=self.args.device), reduction="sum"))

    def log(self: Any, logs: dict[str, float], *_started: Any) -> None:
        """The Trainer has nothing to say: its words on a step would wait for the card once more."""


def _scalar(value: Any, like: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(value, dtype=like.dtype, device=like.device)


class StepEnd(TrainerCallback):
    """Tells a ``WindowTrainer`` of its step's end."""

    def __init__(self, trainer: WindowTrainer) -> None:
        self._trainer = trainer

    def on_step_end(self, *_arguments: Any, **_objects: Any) -> None:
        """After optimiser and scheduler."""
        self._trainer.step_ended()
