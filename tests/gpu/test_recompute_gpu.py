"""On a card: layer inputs in host memory, in whatever order passes come and go."""

from __future__ import annotations

import pytest
import torch

from core.model.layers.recompute import ActivationStore, HostActivationStore, recomputed

pytestmark = pytest.mark.gpu

LAYERS, WIDTH = 6, 1024


def trained(stores: list[ActivationStore], order: str) -> list[torch.Tensor]:
    """Gradients of two passes over a stack of small layers; ``order`` says which pass goes back first."""
    g = torch.Generator("cuda").manual_seed(0)
    weights = [torch.randn(WIDTH, WIDTH, device="cuda", generator=g, requires_grad=True) for _ in range(LAYERS)]

    def forward(tokens: int) -> torch.Tensor:
        x = torch.randn(tokens, WIDTH, device="cuda", generator=g)
        for weight, store in zip(weights, stores, strict=True):

            def run(rows: torch.Tensor, wanted: bool = True, weight: torch.Tensor = weight) -> torch.Tensor:
                return rows + torch.tanh(rows @ weight * 0.01)

            x = recomputed(run, x, [weight], store)
        return x.square().mean()

    for tokens in (3000, 500, 4001):
        if order == "one by one":
            forward(tokens).backward()
            forward(77).backward()
        else:
            first, second = forward(tokens), forward(77)
            abandoned = forward(2000)
            del abandoned
            for loss in (first, second) if order == "first first" else (second, first):
                loss.backward()
    return [weight.grad for weight in weights if weight.grad is not None]


@pytest.mark.parametrize("order", ["one by one", "first first", "last first"])
def test_inputs_come_back_as_they_went(order: str) -> None:
    found = trained(list(HostActivationStore.row(LAYERS, torch.device("cuda"))), order)
    wanted = trained([ActivationStore() for _ in range(LAYERS)], order)
    assert len(found) == LAYERS
    for ours, theirs in zip(found, wanted, strict=True):
        assert theirs.norm() > 0
        assert torch.equal(ours, theirs)
