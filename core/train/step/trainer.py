"""What every trainer of ours has before transformers': our batches, our cut, our normalisation, our events.

transformers' Trainer keeps what it is good at: optimiser, scheduler, mixed precision, distributed wrapping. To it one
batch is one whole optimizer batch and its accumulation is 1. Of a batch B cut into micro-batches m, each a sum of
losses::

    gradient = Σ_m ∂ Σ_{r in m} loss(r) / Σ_{r in B} weight(r)        weight: trained tokens, or 1 for a pair

so batch 1 × accumulation 8 equals 8 × 1. Over ranks the denominator is summed, and the quotient multiplied by their
number since DDP averages.

A card works while Python prepares what comes next, and waits once in a step, for its loss and gradient norm::

    micro-batches ─► gradients joined, their norm ─► (next batch's first one made) ─► read ─► judge, clip ─► optimiser

What the Trainer does beside that walks thousands of modules (modes, clipping, zeroing) or waits for the card (logging);
so those are ours, on flat parameters (``core.train.step.optimizer``).
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from accelerate.utils import AutocastKwargs
from torch import nn
from transformers import PrinterCallback, TrainerCallback

from core.model.adapters import Trained
from core.model.faults import is_out_of_memory
from core.train.safety.memory import pass_tokens
from core.train.step.batches import BatchLoader, Sampler, split_batch
from core.train.step.optimizer import flat_optimizer, total_norm
from core.train.step.rows import Rows

OURS: dict[str, Any] = {"max_grad_norm": 0.0, "logging_strategy": "no"}
"""Settings of the Trainer's for what is done here: clipping over flat parameters, and the word on each step."""
Joined = tuple[list[nn.Parameter], torch.Tensor]
"""Tensors with their gradients, and the norm over all of these."""


@dataclass(frozen=True)
class Batches:
    """The rows that are trained on, in which order, and how a batch is cut at first."""

    rows: Rows
    sampler: Sampler
    tokens_per_pass: int
    packed: bool = True


class StepTrainer:
    """Stands before a Trainer in the order of bases."""

    measures: tuple[str, ...] = ()
    """What is measured beside the loss, as ``core.contract.methods`` has it."""

    def __init__(self, trained: Trained, batches: Batches, clip_norm: float, **options: Any) -> None:
        self.trained = trained
        """What the steps change."""
        self.rows, self.sampler = batches.rows, batches.sampler
        self.packed, self.tokens_per_pass = batches.packed, batches.tokens_per_pass
        self.clip_norm = clip_norm
        """Gradients are scaled down to this norm; 0 leaves them. The Trainer's own clipping is off."""
        self.grad_norm = 0.0
        """Of the last batch, before clipping."""
        self.sums: Sequence[Any] = [0.0] * len(self.measures)
        """Of ``measures``, over the rows since ``measure_anew``: numbers, or scalars that the card still computes."""
        self.measured: dict[str, float] = {}
        """Their means over the last batch."""
        self.in_pass: Sequence[int] = ()
        """Rows of the micro-batch that is computed; after a batch, of its largest."""
        self._recovery: Any = None
        self._in_training_mode = False
        self._cut: tuple[list[int], list[list[int]]] | None = None
        super().__init__(**options)
        trainer: Any = self
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_StepEnd(self))
        if trainer.accelerator.scaler is not None:
            # The model computes in float16 as it is; of accelerate's mixed precision only the scaler is wanted.
            trainer.accelerator.autocast_handler = AutocastKwargs(enabled=False)

    def train_under(self: Any, steps: Any, recovery: Any = None) -> None:
        """Trains to the end and tells a ``Loop`` of its steps; without an ``OomRecovery`` full memory ends it."""
        self._steps, self._recovery = steps, recovery
        self.train()

    @property
    def step(self: Any) -> int:
        """Whole steps done."""
        return int(self.state.global_step)

    def pass_loss(self, model: Any, rows: Any, chosen: Sequence[int]) -> torch.Tensor:
        """Sum of the losses of the chosen rows, a float32 scalar; the denominator is not ours to know here."""
        raise NotImplementedError

    def measure_anew(self) -> None:
        """What was measured so far is left out of what follows."""
        self.sums, self.measured = [0.0] * len(self.measures), {}

    def measure(self, more: Sequence[Any]) -> None:
        """Adds a micro-batch's sums of ``measures``."""
        self.sums = [value + one for value, one in zip(self.sums, more, strict=True)]

    def look_ahead(self, rows: Any, chosen: Sequence[int]) -> None:
        """Called while the card works: ``chosen`` will be the next batch's first micro-batch."""

    def forget_ahead(self) -> None:
        """What was made ahead is let go."""

    def get_train_dataloader(self) -> Any:
        """Our batches in place of a DataLoader."""
        return BatchLoader(self.sampler, lambda: self.step)

    def floating_point_ops(self, inputs: Any) -> int:  # noqa: ARG002 - the Trainer's signature
        """Not counted."""
        return 0

    def create_optimizer(self: Any, _model: Any = None) -> Any:
        """The Trainer's optimiser over flat parameters."""
        if self.optimizer is None:
            when_full = self._recovery.optimiser_full if self._recovery else None
            self.optimizer, self.flat = flat_optimizer(self, self.trained, when_full)
        return self.optimizer

    def training_step(self: Any, model: Any, inputs: dict[str, Any], *_counted: Any, **_options: Any) -> torch.Tensor:
        """Forward and backward of one whole batch; returns its mean loss."""
        if not self._in_training_mode:  # evaluations and samples put it back themselves
            model.train()
            self._in_training_mode = True
        work = partial(self._batch, model, inputs["rows"])
        if self._recovery is None:
            mean, joined = work()
        else:
            self._recovery.before_the_first_step(model)
            mean, joined = self._recovery.until_it_fits(work)
        loss = self._judged(mean, joined)
        self._steps.batch_done(self._own(inputs["rows"]), loss)
        return mean

    def _own(self: Any, dealt: list[int]) -> list[int]:
        """This process's rows of a batch."""
        return dealt[self.accelerator.process_index :: self.accelerator.num_processes]

    def _batch(self: Any, model: Any, dealt: list[int]) -> tuple[torch.Tensor, Joined]:
        """The batch's mean loss and its gradients, joined. What it does it can do again: see
        ``core.train.safety.oom_recovery``.
        """
        self._steps.step_begins(self.step + 1)
        self.measure_anew()
        batch = self._own(dealt)
        weight = self.sum_over_ranks(float(sum(self.rows.weight(row) for row in batch)))
        self._steps.guard.require_weight(self.step + 1, weight)
        # A rank without a row in a last, partial batch goes along with one that counts nothing: others wait for it.
        total = self.gradients(model, self._passes(batch or dealt[:1]), weight, bool(batch))
        sums = [torch.as_tensor(value, dtype=total.dtype, device=total.device) for value in self.sums]
        own = [total, *(value * bool(batch) for value in sums)]
        if self.accelerator.num_processes > 1:
            own = [self.accelerator.reduce(value, reduction="sum") for value in own]
        mean, *self.sums = (value / weight for value in own)
        return mean, self.joined()

    def gradients(self: Any, model: Any, passes: list[list[int]], weight: float, counts: bool = True) -> torch.Tensor:
        """Backward of the micro-batches' losses over ``weight``; returns their sum, a float64 scalar."""
        ranks, self.in_pass = self.accelerator.num_processes, passes[0]
        total = torch.zeros((), dtype=torch.float64, device=self.args.device)
        for number, chosen in enumerate(passes, start=1):
            self._steps.safe_point()
            self.in_pass, last = chosen, number == len(passes)
            with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
                loss = self.pass_loss(model, self.rows, chosen) * (1.0 if counts else 0.0)
                self.accelerator.backward(loss * (ranks / weight))
            total += loss.detach()
        self.in_pass = max(passes, key=lambda chosen: self.computed_tokens(chosen))
        return total

    def try_out(self: Any, model: Any, batch: Sequence[int], besides: Callable[[], object]) -> None:
        """Forward and backward of a batch while ``besides()`` is held, its largest micro-batch last, so that this one
        meets gradients that stand already."""
        passes = sorted(self.cut(batch), key=lambda chosen: sum(self.rows.length(row) for row in chosen))
        self.in_pass = passes[-1]
        held = besides()
        self.gradients(model, passes, float(sum(self.rows.weight(row) for row in batch)))
        self.joined()
        del held

    def joined(self: Any) -> Joined:
        """The tensors that the optimiser sees, with the batch's gradients, and the norm over all."""
        tensors = self.flat.gather()
        return tensors, total_norm([tensor.grad for tensor in tensors])

    def cut(self, batch: Sequence[int]) -> list[list[int]]:
        """The batch's micro-batches."""
        return split_batch(self.rows, batch, self.tokens_per_pass, self.packed)

    def cut_to(self, tokens_per_pass: int) -> int:
        """Cuts batches into micro-batches of so many tokens from here on; returns what it was."""
        old, self.tokens_per_pass, self._cut = self.tokens_per_pass, tokens_per_pass, None
        return old

    def computed_tokens(self, chosen: Sequence[int]) -> int:
        """What a micro-batch of these rows computes."""
        return pass_tokens([self.rows.length(row) for row in chosen], self.packed)

    def forget(self: Any) -> None:
        """No gradient is left, nor anything that was made ahead."""
        self.flat.drop()
        for parameter in self.flat.parameters:
            parameter.grad = None
        self._cut = None
        self.forget_ahead()

    def _passes(self, batch: list[int]) -> list[list[int]]:
        """The batch's micro-batches, remembered: they are asked for when it is seen ahead and when it is there."""
        if self._cut is None or self._cut[0] != batch:
            self._cut = (batch, self.cut(batch))
        return self._cut[1]

    def _judged(self: Any, mean: torch.Tensor, joined: Joined) -> float:
        """Mean loss of the batch, read with its gradient norm in one go; gradients of a bad one are dropped.

        With a gradient scaler (float16) the scaler itself skips what overflowed; what it would not see in them (an
        infinite loss may have finite gradients) is shown to it as infinite ones, for it insists on some.
        """
        trained, norm = joined[0], joined[1].to(mean.device)
        self._see_ahead()
        scale = self.accelerator.scaler.get_scale() if self.accelerator.scaler else None
        if scale:
            norm = norm / scale  # the scaler divides only at its own step
        loss, self.grad_norm, *means = torch.stack([mean, norm.to(mean.dtype), *self.sums]).tolist()
        self.measured = dict(zip(self.measures, means, strict=True))
        good = self._steps.guard.judge(self.step + 1, loss, self.grad_norm, scale)
        if not good and scale is None:
            self.flat.drop()
        elif not good:
            for tensor in trained:
                assert tensor.grad is not None
                tensor.grad.fill_(float("inf"))
        elif 0 < self.clip_norm < self.grad_norm < float("inf"):
            nn.utils.clip_grads_with_norm_(trained, self.clip_norm, norm)
        return float(loss)

    def _see_ahead(self: Any) -> None:
        """Makes the first micro-batch of the step after this one, where there is memory for it."""
        following = self._own(self.sampler.after(self.step + 1) or [])
        try:
            if following:
                self.look_ahead(self.rows, self._passes(following)[0])
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self.forget_ahead()  # it is made when it is needed

    def step_ended(self: Any) -> None:
        """After the optimiser's step."""
        self.flat.drop()
        self._steps.step_done(self.grad_norm)
        if self._recovery is not None:
            self._recovery.step_done()

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


class _StepEnd(TrainerCallback):
    """Tells a ``StepTrainer`` of its step's end."""

    def __init__(self, trainer: StepTrainer) -> None:
        self._trainer = trainer

    def on_step_end(self, *_arguments: Any, **_objects: Any) -> None:
        """After optimiser and scheduler."""
        self._trainer.step_ended()
