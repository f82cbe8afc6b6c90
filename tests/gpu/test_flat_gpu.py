"""On a card: parameters that were joined leave no memory behind which nothing else could use."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from core.train.step.optimizer import FlatParameters

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
