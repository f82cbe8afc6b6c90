"""Memory preflight: forward and backward of the largest step to come, tried before the first.

As much memory is held besides as the optimiser will take. Gradients are then dropped and the random state is restored,
so the run is bit for bit the same as without.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from core.train.channel.reporter import EventReporter
from core.train.safety.memory import asked_optimiser, state_bytes
from core.train.step.batches import BatchSampler

MOST_ROWS = 100_000
"""Coming rows that are considered."""


def coming(sampler: BatchSampler, step: int) -> Iterator[list[int]]:
    """The batches after ``step`` done steps."""
    last = min(sampler.total_steps, step + -(-MOST_ROWS // sampler.rows_per_step))
    return (batch for done in range(step, last) if (batch := sampler.after(done)))


def largest_batch(trainer: Any) -> list[int]:
    """Of those to come the one with the largest micro-batch, then the longest row, then the most micro-batches; empty
    where none comes."""

    def size(batch: list[int]) -> tuple[int, int, int]:
        micro_batches = trainer.cut(trainer.own(trainer.rows, batch))
        largest = max(map(trainer.computed_tokens, micro_batches), default=0)
        return largest, max(map(trainer.rows.length, batch)), len(micro_batches)

    return max(coming(trainer.sampler, trainer.step), key=size, default=[])


def preflight(
    trainer: Any, model: Any, reporter: EventReporter, until_it_fits: Callable[[Callable[[], None]], None]
) -> None:
    """Tries the largest coming batch on ``model``; ``until_it_fits`` makes micro-batches smaller.

    Raises:
        MachineError: one of its rows does not fit.
        Leave: somebody asked to pause or stop meanwhile.
    """
    if not (batch := largest_batch(trainer)):
        return
    device = trainer.args.device
    reporter.stage("first_step", "Trying the largest step", trainer.step, trainer.args.max_steps, "steps")
    on_host, on_card = torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        until_it_fits(lambda: trainer.try_out(model, batch, lambda: _moments(trainer)))
    finally:
        trainer.forget()
        torch.set_rng_state(on_host)
        if on_card is not None:
            torch.cuda.set_rng_state(on_card, device)


def _moments(trainer: Any) -> torch.Tensor | None:
    """A tensor as large as the optimiser's state will be; None where that exists."""
    if trainer.optimizer.state:
        return None
    taken = state_bytes(asked_optimiser(trainer.args), trainer.trained)
    return torch.empty(taken, dtype=torch.uint8, device=trainer.args.device)
