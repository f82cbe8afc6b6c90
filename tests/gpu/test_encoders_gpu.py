"""On a card: encoders on packed rows beside transformers' own on padded ones, and no word to the host.

pytest -m gpu tests/gpu/test_encoders_gpu.py
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parents[1] / "unit" / "model")]

from encoder_cases import CASES, build, config_of, gradients, packed_batch, padded_batch, rows_of  # noqa: E402

from core.model.encoders import surgery  # noqa: E402
from core.model.encoders.forward import classify_logits  # noqa: E402
from core.models.encoders import ENCODERS  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA card")]
CUDA = torch.device("cuda", 0)
AMPERE = torch.cuda.is_available() and torch.cuda.get_device_capability(CUDA) >= (8, 0)
HALF = torch.bfloat16 if AMPERE else torch.float16
SIZES = {"hidden_size": 128, "intermediate_size": 256}
FAMILIES = pytest.mark.parametrize(("family", "changes"), CASES, ids=lambda part: str(part))


def pair(family: str, changes: dict[str, Any], std: float = 0.1) -> tuple[Any, Any]:
    """transformers' model and ours, swapped, with the same weights on the card, without dropout."""
    sizes = {"dim": 128, "hidden_dim": 256} if family == "distilbert" else SIZES
    config = config_of(family, **sizes, **changes)
    plain = build(config, "eager" if ENCODERS[family].relative else "sdpa", CUDA, std)
    ours = build(copy.deepcopy(config), device=CUDA, std=std)
    plan = surgery.plan(ours)
    assert plan.fused
    surgery.apply(ours, plan)
    return plain.train(), ours.train()


def errors(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> torch.Tensor:
    """By norm, of every gradient that is more than rounding (those of keys' biases are not)."""
    names = [name for name in wanted if not name.endswith(("key.bias", "k_lin.bias"))]
    return torch.stack([
        (found[name].double() - wanted[name].double()).norm() / wanted[name].double().norm() for name in names
    ])  # fmt: skip


@FAMILIES
def test_packed_rows_give_what_transformers_gives_padded(family: str, changes: dict[str, Any]) -> None:
    plain, ours = pair(family, changes)
    rows = rows_of()
    wanted, found = plain(**padded_batch(rows, CUDA)).logits, classify_logits(ours, packed_batch(rows, CUDA))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert errors(gradients(ours, found), gradients(plain, wanted)).max() <= 1e-3


@FAMILIES
def test_half_precision_is_as_exact_as_transformers_own(family: str, changes: dict[str, Any]) -> None:
    """Ours under autocast beside a model of transformers whose weights are halved, against float64."""
    plain, ours = pair(family, changes, std=0.05)
    rows = rows_of()
    exact = copy.deepcopy(plain).double()
    truth = gradients(exact, exact(**padded_batch(rows, CUDA)).logits)
    found = gradients(ours, classify_logits(ours, packed_batch(rows, CUDA), HALF))
    halved = plain.to(HALF)
    usual = gradients(halved, halved(**padded_batch(rows, CUDA)).logits)
    assert errors(found, truth).mean() <= 1.5 * errors(usual, truth).mean()


@pytest.mark.parametrize("family", ["bert", "distilbert", *(["modernbert"] if AMPERE else [])])
def test_the_host_is_not_asked(family: str) -> None:
    _, ours = pair(family, {})
    batch = packed_batch(rows_of(), CUDA)
    for again in range(2):  # the first pass compiles
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error" if again else "default")
        try:
            classify_logits(ours, batch, HALF).sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_dropout_is_drawn_by_the_seed() -> None:
    model = build(config_of("bert", dropout=True), device=CUDA).train()
    surgery.apply(model, surgery.plan(model))
    batch, drawn = packed_batch(rows_of(), CUDA), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(classify_logits(model, batch, HALF))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
