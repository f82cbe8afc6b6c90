"""The step of every method's trainer: batches, micro-batches, normalisation and events.

transformers' Trainer has optimiser, scheduler, mixed precision and distributed wrapping. To it one batch is one whole
optimizer batch and its accumulation is 1. Of a batch B cut into micro-batches m::

    gradient = Σ_m ∂ Σ_{r in m} loss(r) / Σ_{r in B} weight(r)        weight: trained tokens, or 1 for a pair

Over several ranks (``core.train.ranks``) B is the whole batch, of which each computes its share: between what the batch
shares (``prelude``) and its gradients' sum none waits for another, so one whose memory runs out does its share again.
All then have the same numbers, judge and clip alike, and step alike.

The host waits for the card once per step, to read loss and gradient norm::

    micro-batches ─► gradients joined ─► summed over ranks, their norm ─► (next batch's first one made)
      ─► read ─► judge, clip ─► optimiser

The Trainer's own modes, clipping, zeroing and logging are replaced: they walk thousands of modules or wait for the
card.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import torch
from accelerate.utils import AutocastKwargs
from torch import nn
from transformers import PrinterCallback, TrainerCallback

from core.model.adapters import Trained
from core.model.faults import is_out_of_memory
from core.train.channel.meter import peak_bytes
from core.train.ranks.group import Ranks
from core.train.ranks.pace import Paces
from core.train.ranks.share import shares
from core.train.safety.memory import pass_tokens
from core.train.step.batches import BatchLoader, Sampler, split_batch
from core.train.step.optimizer import flat_optimizer, total_norm
from core.train.step.rows import Rows

OURS: dict[str, Any] = {"max_grad_norm": 0.0, "logging_strategy": "no"}
"""Trainer settings: clipping and logging are done here."""
T = TypeVar("T")
Joined = tuple[list[nn.Parameter], torch.Tensor]
"""Tensors with their gradients, and the norm over all of these."""


@dataclass(frozen=True)
class AtRank:
    """What each rank says of itself in a step's sums."""

    memory_bytes: int
    """Peaks, as ``core.train.channel.meter.peak_bytes`` has them; reserved 0 on the CPU."""
    reserved_bytes: int
    tokens_per_pass: int
    kept_less: int
    """How often its layers were made to keep less (``OomRecovery.kept_less``)."""
    pace: int = 0
    """``core.train.ranks.pace``."""


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
        self.clip_norm, self.ranks = clip_norm, Ranks.present()
        """Gradients are scaled down to this norm; 0: not at all."""
        self.paces = Paces(self.ranks)
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
        self.at_ranks: list[AtRank] = []
        """Of the last batch, where there are several."""
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
        self.settle(self.ranks.sum(self.prelude_sums(model, rows, batch, tokens)))

    def prelude_sums(self, model: Any, rows: Any, batch: Sequence[int], tokens: int) -> torch.Tensor | None:
        """This rank's part of a batch's prelude: what is to be summed over ranks, of its own rows."""

    def settle(self, sums: torch.Tensor | None) -> None:
        """Takes the preludes' sums over all ranks."""

    def to_share(self, batch: Sequence[int]) -> torch.Tensor | None:
        """What this rank learned of its rows of a batch that others may use later, zeros for theirs: it is summed."""

    def take_shared(self, batch: Sequence[int], told: torch.Tensor) -> None:
        """Takes what all ranks learned of a batch's rows."""

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
        batch: list[int] = inputs["rows"]
        weight = float(sum(self.rows.weight(row) for row in batch))
        if self._recovery is not None:
            self._recovery.before_the_first_step(model)
        fits = self._recovery.until_it_fits if self._recovery else _once
        self.settle(self.ranks.sum(fits(partial(self._prelude, model, batch, weight))))
        mean, joined, at_ranks = self._summed(fits(partial(self._share, model, batch, weight)), batch, weight)
        loss = self._judged(mean, joined, at_ranks)
        if self._recovery is not None:
            self._recovery.agree(self.at_ranks)
        self._steps.batch_done(batch, loss)
        return mean

    def own(self, rows: Rows, batch: Sequence[int]) -> list[int]:
        """This rank's share of a batch: what it computes in about the time of each other's. Of held-out rows it stays
        the same: their measures are compared, and what is cut otherwise rounds otherwise."""
        if self.ranks.count == 1:
            return list(batch)
        paces = self.paces.values if rows is self.rows else (1.0,) * self.ranks.count
        places = shares([rows.length(row, self.packed) for row in batch], paces)[self.ranks.rank]
        return [batch[place] for place in places]

    def _prelude(self: Any, model: Any, batch: list[int], weight: float) -> torch.Tensor | None:
        """Before the passes; repeatable (``core.train.safety.oom_recovery``)."""
        self._begin(batch)
        self._steps.guard.require_weight(self.step + 1, weight)
        sums: torch.Tensor | None = self.prelude_sums(model, self.rows, batch, self.tokens_per_pass)
        return sums

    def _share(self: Any, model: Any, batch: list[int], weight: float) -> tuple[torch.Tensor, list[nn.Parameter]]:
        """The sums of loss and measures over this rank's rows, and their gradients, joined; repeatable."""
        micro_batches = self._begin(batch)
        self.paces.begin(self.args.device)
        total = self.gradients(model, micro_batches, weight)
        sums = [torch.as_tensor(value, dtype=total.dtype, device=total.device) for value in self.sums]
        joined = torch.stack([total, *sums]), self.flat.gather()
        self.paces.end(self.args.device, sum(self.rows.length(row, self.packed) for row in chain(*micro_batches)))
        return joined

    def _begin(self: Any, batch: list[int]) -> list[list[int]]:
        self._steps.step_begins(self.step + 1)
        self.measure_anew()
        micro_batches: list[list[int]] = self._passes(self.own(self.rows, batch))
        self.in_pass = micro_batches[0] if micro_batches else ()  # what is made smaller where memory runs out before it
        return micro_batches

    def _summed(
        self: Any, share: tuple[torch.Tensor, list[nn.Parameter]], batch: list[int], weight: float
    ) -> tuple[torch.Tensor, Joined, torch.Tensor]:
        """The batch's mean loss and its gradients over all ranks, of this one's; and what ranks say of themselves."""
        (told, tensors), count = share, 1 + len(self.measures)
        gradients = [tensor.grad for tensor in tensors if tensor.grad is not None]
        at_ranks = told[count:]
        if self.ranks.count > 1:
            at_ranks, shared = self._at_rank(told), self.to_share(batch)
            parts = [told, at_ranks] if shared is None else [told, at_ranks, shared.flatten().to(told.dtype)]
            told, at_ranks, *rest = self.ranks.sum(torch.cat(parts)).split([len(part) for part in parts])
            for gradient in gradients:
                self.ranks.sum(gradient)
            for found in rest:
                self.take_shared(batch, found)
        mean, *self.sums = told / weight
        return mean, (tensors, total_norm(gradients)), at_ranks

    def _at_rank(self: Any, like: torch.Tensor) -> torch.Tensor:
        """``AtRank`` of this rank in its place, zeros in the others'."""
        memory, reserved = peak_bytes(self.args.device)
        kept_less = self._recovery.kept_less if self._recovery else 0
        said = torch.zeros(self.ranks.count, len(fields(AtRank)), dtype=like.dtype)
        mine = [memory, reserved or 0, self.tokens_per_pass, kept_less, self.paces.mine]
        said[self.ranks.rank] = torch.tensor(mine, dtype=like.dtype)
        return said.flatten().to(like.device)

    def gradients(self: Any, model: Any, micro_batches: list[list[int]], weight: float) -> torch.Tensor:
        """Backward of the losses over ``weight``; returns the losses' sum, a float64 scalar."""
        total = torch.zeros((), dtype=torch.float64, device=self.args.device)
        for chosen in micro_batches:
            self._steps.safe_point()
            self.in_pass = chosen
            loss = self.pass_loss(model, self.rows, chosen)
            self.accelerator.backward(loss * (1.0 / weight))
            total += loss.detach()
        self.in_pass = max(micro_batches, key=lambda chosen: self.computed_tokens(chosen), default=())
        return total

    def try_out(self: Any, model: Any, batch: Sequence[int], besides: Callable[[], object]) -> None:
        """Forward and backward of a batch while ``besides()`` is held; the largest micro-batch comes last, when there
        are gradients already."""
        own = self.own(self.rows, batch)
        micro_batches = sorted(self.cut(own), key=lambda chosen: sum(self.rows.length(row) for row in chosen))
        self.in_pass = micro_batches[-1] if micro_batches else ()
        self.settle(self.prelude_sums(model, self.rows, batch, self.tokens_per_pass))  # of this rank alone
        held = besides()
        self.gradients(model, micro_batches, float(sum(self.rows.weight(row) for row in batch)))
        self.joined()
        del held

    def joined(self: Any) -> Joined:
        """The flat tensors with this rank's gradients, and the norm over all."""
        tensors = self.flat.gather()
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

    def _judged(self: Any, mean: torch.Tensor, joined: Joined, at_ranks: Sequence[torch.Tensor] = ()) -> float:
        """Reads mean loss, gradient norm and what ranks said at once, judges and clips; gradients of a bad step are
        dropped.

        A float16 scaler needs gradients to skip a step by itself: those of a bad one are made infinite.
        """
        trained, norm = joined[0], joined[1].to(mean.device)
        if self.paces.turn():  # before the next step is looked at
            self._steps.shares_changed(self.paces.words)
        self._see_ahead()
        scale = self.accelerator.scaler.get_scale() if self.accelerator.scaler else None
        if scale:
            norm = norm / scale  # the scaler unscales only at its own step
        loss, self.grad_norm, *means = torch.stack([mean, norm.to(mean.dtype), *self.sums, *at_ranks]).tolist()
        count, width = len(self.measures), len(fields(AtRank))
        self.measured = dict(zip(self.measures, means[:count], strict=True))
        self.at_ranks = [AtRank(*map(int, means[at : at + width])) for at in range(count, len(means), width)]
        self.paces.hear([at.pace for at in self.at_ranks])
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
        batch = self.sampler.after(self.step + 1)
        following = self.own(self.rows, batch) if batch else []
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

    def log(self: Any, logs: dict[str, float], *_started: Any) -> None:
        """Nothing: the Trainer's logging would wait for the card once more."""


def _once(work: Callable[[], T]) -> T:
    return work()


class _StepEnd(TrainerCallback):
    """Calls ``StepTrainer.step_ended``."""

    def __init__(self, trainer: StepTrainer) -> None:
        self._trainer = trainer

    def on_step_end(self, *_arguments: Any, **_objects: Any) -> None:
        """After optimiser and scheduler."""
        self._trainer.step_ended()
