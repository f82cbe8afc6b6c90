"""The step of every method's trainer: batches, micro-batches, normalisation and events.

transformers' Trainer has optimiser, scheduler, mixed precision and distributed wrapping. To it one batch is one whole
optimizer batch and its accumulation is 1. Of a batch B cut into micro-batches m::

    gradient = Σ_m ∂ Σ_{r in m} loss(r) / Σ_{r in B} weight(r)        weight: trained tokens, or 1 for a pair

Over ranks the denominator is summed, and the quotient multiplied by their number since DDP averages.

The host waits for the card once per step, to read loss and gradient norm::

    micro-batches ─► gradients joined, their norm ─► (next batch's first one made) ─► read ─► judge, clip ─► optimiser

The Trainer's own modes, clipping, zeroing and logging are replaced: they walk thousands of modules or wait for the
card.
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
"""Trainer settings: clipping and logging are done here."""
Joined = tuple[list[nn.Parameter], torch.Tensor]
"""Tensors with their gradients, and the norm over all of these."""


@dataclass(frozen=True)
class Batches:
    """The rows to train on, their order, and the cut at first."""

    rows: Rows
    sampler: Sampler
    tokens_per_pass: int
    packed: bool = True


class StepTrainer:
    """Mixin before a transformers Trainer."""

    measures: tuple[str, ...] = ()
    """Names of what is measured beside the loss (``core.contract.methods``)."""

    def __init__(self, trained: Trained, batches: Batches, clip_norm: float, **options: Any) -> None:
        self.trained = trained
        self.rows, self.sampler = batches.rows, batches.sampler
        self.packed, self.tokens_per_pass = batches.packed, batches.tokens_per_pass
        self.clip_norm = clip_norm
        """Gradients are scaled down to this norm; 0: not at all."""
        self.grad_norm = 0.0
        """Of the last batch, before clipping."""
        self.sums: Sequence[Any] = [0.0] * len(self.measures)
        """Of ``measures`` since ``measure_anew``: numbers, or scalars on the card."""
        self.measured: dict[str, float] = {}
        """Their means over the last batch."""
        self.in_pass: Sequence[int] = ()
        """Rows of the micro-batch that is computed; after a batch, of its largest."""
        self._steps: Any = None
        self._recovery: Any = None
        self._in_training_mode = False
        self._cut: tuple[list[int], list[list[int]]] | None = None
        super().__init__(**options)
        trainer: Any = self
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_StepEnd(self))
        if trainer.accelerator.scaler is not None:
            # The model is in float16; of accelerate's mixed precision only the scaler is used.
            trainer.accelerator.autocast_handler = AutocastKwargs(enabled=False)

    def train_under(self: Any, steps: Any, recovery: Any = None) -> None:
        """Trains to the last step; ``steps`` is a ``Loop``, ``recovery`` an ``OomRecovery``. Both need this trainer."""
        self._steps, self._recovery = steps, recovery
        self.train()

    @property
    def step(self: Any) -> int:
        """Whole steps done."""
        return int(self.state.global_step)

    def pass_loss(self, model: Any, rows: Any, chosen: Sequence[int]) -> torch.Tensor:
        """Sum of the losses of the chosen rows, a float32 scalar."""
        raise NotImplementedError

    def prelude(self, model: Any, rows: Any, batch: Sequence[int], tokens: int) -> None:
        """Makes what the rows of an optimizer batch share, before it is cut; ``tokens`` a micro-batch at most."""

    def extra_state(self) -> dict[str, Any]:
        """What a checkpoint keeps of the method, tensors and plain values."""
        return {}

    def restore_extra_state(self, state: dict[str, Any]) -> None:
        """Takes what ``extra_state`` gave."""

    def measure_anew(self) -> None:
        """Begins new sums."""
        self.sums, self.measured = [0.0] * len(self.measures), {}

    def held_out_measures(self) -> dict[str, Any]:
        """What an evaluation says beside ``measures`` of the rows since ``measure_anew``."""
        return {}

    def measure(self, more: Sequence[Any]) -> None:
        """Adds a micro-batch's sums of ``measures``."""
        self.sums = [value + one for value, one in zip(self.sums, more, strict=True)]

    def look_ahead(self, rows: Any, chosen: Sequence[int]) -> None:
        """Called while the card works: ``chosen`` will be the next batch's first micro-batch."""

    def forget_ahead(self) -> None:
        """Frees what was made ahead."""

    def get_train_dataloader(self) -> Any:
        """A ``BatchLoader``."""
        return BatchLoader(self.sampler, lambda: self.step)

    def floating_point_ops(self, inputs: Any) -> int:  # noqa: ARG002 - the Trainer's signature
        """Not counted."""
        return 0

    def create_optimizer(self: Any, _model: Any = None) -> Any:
        """The Trainer's optimiser over flat tensors."""
        if self.optimizer is None:
            when_full = self._recovery.optimiser_full if self._recovery else None
            self.optimizer, self.flat = flat_optimizer(self, self.trained, when_full)
        return self.optimizer

    def training_step(self: Any, model: Any, inputs: dict[str, Any], *_counted: Any, **_options: Any) -> torch.Tensor:
        """Forward and backward of one whole batch; returns its mean loss."""
        if not self._in_training_mode:  # evaluations and samples restore it
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
        """The batch's mean loss and its gradients, joined; repeatable (``core.train.safety.oom_recovery``)."""
        self._steps.step_begins(self.step + 1)
        self.measure_anew()
        batch = self._own(dealt)
        weight = self.sum_over_ranks(float(sum(self.rows.weight(row) for row in batch)))
        self._steps.guard.require_weight(self.step + 1, weight)
        # A rank without a row in a last, partial batch computes one of weight 0: the others wait for it.
        computed = batch or dealt[:1]
        micro_batches = self._passes(computed)
        self.in_pass = micro_batches[0]  # what is made smaller where memory runs out before it
        self.prelude(model, self.rows, computed, self.tokens_per_pass)
        total = self.gradients(model, micro_batches, weight, bool(batch))
        sums = [torch.as_tensor(value, dtype=total.dtype, device=total.device) for value in self.sums]
        own = [total, *(value * bool(batch) for value in sums)]
        if self.accelerator.num_processes > 1:
            own = [self.accelerator.reduce(value, reduction="sum") for value in own]
        mean, *self.sums = (value / weight for value in own)
        return mean, self.joined()

    def gradients(
        self: Any, model: Any, micro_batches: list[list[int]], weight: float, counts: bool = True
    ) -> torch.Tensor:
        """Backward of the losses over ``weight``; returns the losses' sum, a float64 scalar."""
        ranks, self.in_pass = self.accelerator.num_processes, micro_batches[0]
        total = torch.zeros((), dtype=torch.float64, device=self.args.device)
        for number, chosen in enumerate(micro_batches, start=1):
            self._steps.safe_point()
            self.in_pass, last = chosen, number == len(micro_batches)
            with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
                loss = self.pass_loss(model, self.rows, chosen) * (1.0 if counts else 0.0)
                self.accelerator.backward(loss * (ranks / weight))
            total += loss.detach()
        self.in_pass = max(micro_batches, key=lambda chosen: self.computed_tokens(chosen))
        return total

    def try_out(self: Any, model: Any, batch: Sequence[int], besides: Callable[[], object]) -> None:
        """Forward and backward of a batch while ``besides()`` is held; the largest micro-batch comes last, when there
        are gradients already."""
        micro_batches = sorted(self.cut(batch), key=lambda chosen: sum(self.rows.length(row) for row in chosen))
        self.in_pass = micro_batches[-1]
        self.prelude(model, self.rows, batch, self.tokens_per_pass)
        held = besides()
        self.gradients(model, micro_batches, float(sum(self.rows.weight(row) for row in batch)))
        self.joined()
        del held

    def joined(self: Any) -> Joined:
        """The flat tensors with the batch's gradients, and the norm over all."""
        tensors = self.flat.gather()
        if self.accelerator.num_processes > 1:
            for tensor in self.flat.wide:  # taken from the parameters before DDP could join them
                tensor.grad = self.accelerator.reduce(tensor.grad, reduction="mean")
        return tensors, total_norm([tensor.grad for tensor in tensors])

    def cut(self, batch: Sequence[int]) -> list[list[int]]:
        """The batch's micro-batches."""
        return split_batch(self.rows, batch, self.tokens_per_pass, self.packed)

    def cut_to(self, tokens_per_pass: int) -> int:
        """Sets the tokens per micro-batch; returns the old number."""
        old, self.tokens_per_pass, self._cut = self.tokens_per_pass, tokens_per_pass, None
        return old

    def computed_tokens(self, chosen: Sequence[int]) -> int:
        """Tokens that a micro-batch of these rows computes."""
        return pass_tokens([self.rows.length(row, self.packed) for row in chosen], self.packed)

    def forget(self: Any) -> None:
        """Drops all gradients and what was made ahead."""
        self.flat.drop()
        for parameter in self.flat.parameters:
            parameter.grad = None
        self._cut = None
        self.forget_ahead()

    def _passes(self, batch: list[int]) -> list[list[int]]:
        """The batch's micro-batches; those of the last one asked for are remembered."""
        if self._cut is None or self._cut[0] != batch:
            self._cut = (batch, self.cut(batch))
        return self._cut[1]

    def _judged(self: Any, mean: torch.Tensor, joined: Joined) -> float:
        """Reads mean loss and gradient norm at once, judges and clips; gradients of a bad step are dropped.

        A float16 scaler needs gradients to skip a step by itself: those of a bad one are made infinite.
        """
        trained, norm = joined[0], joined[1].to(mean.device)
        self._see_ahead()
        scale = self.accelerator.scaler.get_scale() if self.accelerator.scaler else None
        if scale:
            norm = norm / scale  # the scaler unscales only at its own step
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
        """Makes the next step's first micro-batch, where there is memory for it."""
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
        """Known already; the Trainer's own would see no gradients."""
        return self.grad_norm

    def sum_over_ranks(self: Any, value: float) -> float:
        """A number's sum over all ranks."""
        if self.accelerator.num_processes == 1:
            return value
        return float(self.accelerator.reduce(torch.tensor(value, device=self.args.device), reduction="sum"))

    def log(self: Any, logs: dict[str, float], *_started: Any) -> None:
        """Nothing: the Trainer's logging would wait for the card once more."""


class _StepEnd(TrainerCallback):
    """Calls ``StepTrainer.step_ended``."""

    def __init__(self, trainer: StepTrainer) -> None:
        self._trainer = trainer

    def on_step_end(self, *_arguments: Any, **_objects: Any) -> None:
        """After optimiser and scheduler."""
        self._trainer.step_ended()
