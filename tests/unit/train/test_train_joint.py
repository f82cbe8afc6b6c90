"""Muon and AdamW as one optimiser: torch's own steps of each, and exact after a state was loaded."""

from typing import Any

import pytest
import torch
from torch import nn

from core.train.step.joint import MuonWithAdamW

SHAPES = [(16, 24), (24, 16), (16,), (40, 16)]
"""Two matrices, a norm, and an embedding, which AdamW steps."""


def drawn() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def joint(ours: list[nn.Parameter]) -> MuonWithAdamW:
    groups: list[dict[str, Any]] = [
        {"params": ours[2:3], "weight_decay": 0.0, "matrices": False},
        {"params": ours[:2], "weight_decay": 0.1, "matrices": True},
        {"params": ours[3:], "weight_decay": 0.1, "matrices": False},
    ]
    return MuonWithAdamW(groups, lr=1e-2, betas=(0.9, 0.999), eps=1e-8)


@pytest.mark.parametrize("loaded", [False, True])
def test_each_part_steps_as_by_itself(loaded: bool, one_thread: None) -> None:
    plain, ours, generator = drawn(), drawn(), torch.Generator().manual_seed(1)
    muon = torch.optim.Muon(plain[:2], lr=1e-2, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(
        [{"params": plain[2:3], "weight_decay": 0.0}, {"params": plain[3:]}], lr=1e-2, weight_decay=0.1
    )
    one = joint(ours)
    schedule = torch.optim.lr_scheduler.LambdaLR(one, lambda step: 1 / (step + 1))
    for step in range(4):
        if loaded and step == 2:
            state, one = one.state_dict(), joint(ours)
            one.load_state_dict(state)
        for group in (*muon.param_groups, *adamw.param_groups):
            group["lr"] = 1e-2 / (min(step, 2 if loaded else 9) + 1)
        for a, b in zip(plain, ours, strict=True):
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        muon.step()
        adamw.step()
        one.step()
        schedule.step()
        for a, b in zip(plain, ours, strict=True):
            assert torch.equal(a, b), (step, a.shape)
    assert len(one.state) == 4
