"""The largest step that is to come, tried before the first one: what does not fit is found in a minute, not in an hour.

Forward and backward of the whole window, with as much memory taken besides as the optimiser will keep; then gradients
are thrown away and the random state is put back. Weights, optimiser, scaler, scheduler and the order of rows are not
touched: the run is the same, bit for bit, as without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from core.train.methods.sft import state_bytes
from core.train.safety.memory import pass_tokens
from core.train.step.batch_sampler import BatchSampler

__all__ = ["largest_window", "rehearse"]

MOST_ROWS = 100_000
"""So many rows that are to come are looked at; later ones hold no surprise."""


def largest_window(windows: Iterator[list[int]], height: Callable[[list[int]], tuple[int, ...]]) -> list[int]:
    """The first of the highest windows; an empty list where none comes."""
    return max(windows, key=height, default=[])


def coming(feed: BatchSampler, step: int) -> Iterator[list[int]]:
    """The windows after ``step`` done steps, in their order."""
    last = min(feed.total_steps, step + -(-MOST_ROWS // feed.rows_per_step))
    for done in range(step, last):
        if window := feed.after(done):
            yield window


def rehearse(trainer: Any, model: Any, until_it_fits: Callable[[Callable[[], None]], None]) -> None:
    """Tries the largest coming window on ``model``; ``until_it_fits`` makes passes smaller where it does not fit.

    Raises:
        MachineError: one of its rows does not fit however little is kept.
        Leave: somebody asked to pause or stop meanwhile.
    """
    loop, device = trainer.loop, trainer.args.device

    def height(window: list[int]) -> tuple[int, ...]:
        passes = [[loop.rows.length(row) for row in chosen] for chosen in trainer.cut(window)]
        return max(pass_tokens(lengths, trainer.packed) for lengths in passes), max(map(max, passes)), len(passes)

    window = largest_window(coming(loop.feed, loop.step), height)
    if not window:
        return
    loop.tell.stage("first_step", "Trying the largest step", loop.step, loop.total_steps, "steps")
    on_host, on_card = torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        until_it_fits(lambda: _try(trainer, model, window))
    finally:
        trainer.forget()
        torch.set_rng_state(on_host)
        if on_card is not None:
            torch.cuda.set_rng_state(on_card, device)


def _try(trainer: Any, model: Any, window: Sequence[int]) -> None:
    """The window's smallest pass first, so that its largest meets gradients that stand already."""
    passes = trainer.cut(window)
    passes.sort(key=lambda chosen: sum(trainer.loop.rows.length(row) for row in chosen))
    trainer.in_pass = passes[-1]
    taken = _moments(trainer)
    trainer.gradients(model, passes, float(sum(trainer.loop.rows.weight(row) for row in window)))
    trainer.joined()
    del taken


def _moments(trainer: Any) -> torch.Tensor | None:
    """As many bytes as the optimiser has yet to take."""
    if trainer.optimizer.state:
        return None
    trained = sum(parameter.numel() for parameter in trainer.model.parameters() if parameter.requires_grad)
    each = state_bytes(trainer.loop.config.train.optim)
    return torch.empty(trained * each, dtype=torch.uint8, device=trainer.args.device)
