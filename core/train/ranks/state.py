"""What rank 0 restored, given to the others: so only rank 0 reads checkpoints, and all begin with the same numbers."""

from typing import Any

import torch

from core.train.keep.state import flatten, unflatten
from core.train.step.optimizer import restore_state


def hand_on(trainer: Any, step: int) -> int:
    """Gives every rank what learns, the optimiser's and the schedule's state and the step of rank 0; returns that step.

    What learns is drawn at random where a run begins, and cards of two kinds may draw differently.
    """
    ranks, device = trainer.ranks, trainer.args.device
    if ranks.count == 1:
        return step
    scaler = trainer.accelerator.scaler
    mine = {
        "optimizer": trainer.optimizer.state_dict(),
        "scheduler": trainer.lr_scheduler.state_dict(),
        "scaler": scaler.state_dict() if scaler else None,
        "step": step,
    }
    plain, tensors = flatten(mine) if ranks.first else ({}, {})
    shapes = {name: (list(one.shape), str(one.dtype).removeprefix("torch.")) for name, one in tensors.items()}
    plain, shapes = ranks.told([plain, shapes])
    given: dict[str, torch.Tensor] = {}
    for name, (shape, dtype) in shapes.items():
        sent = (
            tensors[name].to(device) if ranks.first else torch.empty(shape, dtype=getattr(torch, dtype), device=device)
        )
        ranks.from_first([sent])
        given[name] = sent.cpu()
    ranks.from_first(tensor.data for tensor in trainer.flat.tensors)
    trainer.flat.settle()
    if ranks.first:
        return step
    told = unflatten(plain, given)
    restore_state(trainer.optimizer, told["optimizer"])
    trainer.lr_scheduler.load_state_dict(told["scheduler"])
    if scaler:
        scaler.load_state_dict(told["scaler"])
    return int(told["step"])
