"""The one mixin that every trainer of ours has: our windows, our cut into passes, our normalisation, our events.

transformers' Trainer keeps what it is good at: optimiser, scheduler, clipping, mixed precision, distributed wrapping.
To it one batch is one whole window and its accumulation is 1. Of a window W cut into passes p, each a sum of losses::

    gradient = Σ_p ∂ Σ_{r in p} loss(r) / Σ_{r in W} weight(r)        weight: trained tokens, or 1 for a pair

so batch 1 × accumulation 8 equals 8 × 1. Over ranks the denominator is summed, and the quotient multiplied by their
number since DDP averages. Only public hooks are used, which transformers 5.17 and 5.23 both have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from core.data.packing import cut
from core.train.passes import cut_padded

if TYPE_CHECKING:
    from core.train.loop import Loop

__all__ = ["Rows", "WindowTrainer", "split_window"]


class Rows(Protocol):
    """What is asked of data while it is trained on; see ``core.train.rows``."""

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

    def pass_loss(self, model: Any, rows: Any, chosen: Sequence[int]) -> torch.Tensor:
        """Sum of the losses of the chosen rows, a float32 scalar; the denominator is not ours to know here."""
        raise NotImplementedError

    def get_train_dataloader(self) -> Any:
        """Our windows in place of a DataLoader."""
        return self.loop.feed

    def floating_point_ops(self, inputs: Any) -> int:  # noqa: ARG002 - the Trainer's signature
        """Not counted."""
        return 0

    def training_step(self: Any, model: Any, inputs: dict[str, Any], *_counted: Any, **_options: Any) -> torch.Tensor:
        """Forward and backward of one whole window; returns its mean loss."""
        rank, ranks = self.accelerator.process_index, self.accelerator.num_processes
        window = inputs["rows"][rank::ranks]
        rows = self.loop.rows
        model.train()
        self.loop.step_begins(self.state.global_step + 1)
        weight = self.sum_over_ranks(float(sum(rows.weight(row) for row in window)))
        passes = split_window(rows, window, self.tokens_per_pass, self.packed)
        total = torch.zeros((), dtype=torch.float64, device=self.args.device)
        for number, chosen in enumerate(passes, start=1):
            self.loop.seam()
            last = number == len(passes)
            with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
                loss = self.pass_loss(model, rows, chosen)
                self.accelerator.backward(loss * (ranks / weight))
            total += loss.detach()
        mean = (self.accelerator.reduce(total, reduction="sum") if ranks > 1 else total) / weight
        self.loop.window_done(window, self._judge(mean))
        return mean

    def _judge(self: Any, mean: torch.Tensor) -> float:
        """Mean loss of the window, read with its gradient norm in one go; gradients of a bad one are dropped.

        With a gradient scaler (float16) the scaler itself skips what overflowed, and only the loss is judged.
        """
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        scaled = self.accelerator.scaler is not None
        norm = torch.zeros_like(mean) if scaled else torch.nn.utils.get_total_norm(gradients).to(mean)
        loss, grad_norm = torch.stack([mean, norm]).tolist()
        if not self.loop.guard.judge(self.state.global_step + 1, loss, grad_norm) and not scaled:
            self.model.zero_grad(set_to_none=True)
        return float(loss)

    def sum_over_ranks(self: Any, value: float) -> float:
        """The sum of one number over all ranks."""
        if self.accelerator.num_processes == 1:
            return value
        return float(self.accelerator.reduce(torch.tensor(value, device=self.args.device), reduction="sum"))

    def log(self: Any, logs: dict[str, float], *_started: Any) -> None:
        """The Trainer calls this after every step, with the gradient norm before clipping: our step's end."""
        if "loss" in logs:
            self.loop.step_done(logs)
