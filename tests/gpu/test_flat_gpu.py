"""On a card: parameters that were joined leave no memory behind which nothing else could use."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from core.train.step.optimizer import FlatParameters, restore_state

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here")]

MIB = 2**20
COUNT, VALUES = 256, 16 * 4096
"""An adapter's small tensors: a quarter of a mebibyte each, 64 MiB in all."""


def test_joined_parameters_hand_their_places_back() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    draw = torch.Generator("cuda").manual_seed(1)
    drawn = [torch.randn(VALUES, device="cuda", generator=draw) for _ in range(COUNT)]
    ours = [nn.Parameter(value.clone()) for value in drawn]
    kept = [value.cpu() for value in drawn]
    del drawn
    flat = FlatParameters([ours])
    size = COUNT * VALUES * 4
    assert torch.cuda.memory_reserved() - before < size + 24 * MIB, "one flat tensor, and a page of rounding"
    for parameter, value in zip(ours, kept, strict=True):
        assert torch.equal(parameter.detach().cpu(), value)
    assert flat.parameters == ours


def test_paged_state_is_paged_again_after_a_resume() -> None:
    """bitsandbytes loads it onto the card, where it would stay."""
    from bitsandbytes.optim import AdamW

    steps = []
    for resumed in (False, True):
        weight = nn.Parameter(torch.linspace(-1, 1, 2**18, device="cuda"))

        def stepped(optimizer: torch.optim.Optimizer, weight: nn.Parameter = weight) -> torch.Tensor:
            weight.grad = weight.detach().sin()
            optimizer.step()
            return weight.detach().clone()

        optimizer = AdamW([weight], lr=1e-2, optim_bits=8, is_paged=True)
        stepped(optimizer)
        assert optimizer.state[weight]["state1"].is_paged
        if resumed:
            state, optimizer = optimizer.state_dict(), AdamW([weight], lr=1e-2, optim_bits=8, is_paged=True)
            restore_state(optimizer, state)
            assert optimizer.state[weight]["state1"].is_paged
            assert optimizer.state[weight]["state2"].is_paged
        steps.append(stepped(optimizer))
    assert torch.equal(*steps)
