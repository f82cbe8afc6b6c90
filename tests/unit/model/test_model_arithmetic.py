"""Fast layers whose frozen products are computed in eight bits while they train."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_tiny import adapt, assert_close, build, gradients, packed_batch

from core.kernels.eightbit import matrix
from core.kernels.eightbit.formats import FORMATS
from core.model.adapters import Trained
from core.model.layers import surgery
from core.model.layers.checkpointing import set_checkpointing
from core.model.layers.loss import LossModel

COSINE = {"fp8": 0.99, "int8": 0.999}
"""Of the gradients of every layer's adapters with those of 32 bits: an e4m3 value is off by up to 1/16."""


def fast(family: str, arithmetic: str = "16-bit", **changes: Any) -> Any:
    model = adapt(build(family), **changes)
    model.train()
    plan = surgery.plan(model, force=True, arithmetic=arithmetic)
    surgery.apply(model, plan)
    return model


def stepped(model: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    loss = LossModel(model)(**packed_batch([7, 12, 31]))
    loss.sum().backward()
    return loss.detach(), gradients(model)


@pytest.mark.parametrize("arithmetic", FORMATS)
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma2"])
def test_gradients_of_every_layer_point_where_those_of_sixteen_bits_do(family: str, arithmetic: str) -> None:
    """With biases, head norms, norms behind each half, and without."""
    (exact, wanted), (loss, found) = stepped(fast(family)), stepped(fast(family, arithmetic))
    assert 0 < (loss.sum() - exact.sum()).abs() / exact.sum() < 0.01
    for layer in ("layers.0.", "layers.1."):
        mine, theirs = (torch.cat([v.flatten() for k, v in of.items() if layer in k]) for of in (found, wanted))
        assert torch.cosine_similarity(mine, theirs, dim=0) > COSINE[arithmetic]
        assert abs(float(mine.norm() / theirs.norm()) - 1) < 0.05


@pytest.mark.parametrize(("family", "arithmetic"), [("llama", "fp8"), ("llama", "int8"), ("gemma2", "fp8")])
def test_what_is_recomputed_has_the_same_bits(family: str, arithmetic: str) -> None:
    """Of a layer with a norm behind its MLP the last product is made again, too."""
    model = fast(family, arithmetic)
    loss, wanted = stepped(model)
    set_checkpointing(model, "recompute")
    again, found = stepped(model)
    assert torch.equal(again, loss)
    assert_close(found, wanted, 0)


@pytest.mark.parametrize("arithmetic", FORMATS)
def test_only_training_computes_in_eight_bits(arithmetic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out rows, samples and exports are those of 16 bits bit for bit; training goes on in eight."""
    made, inner = list[str](), matrix.product
    monkeypatch.setattr(matrix, "product", lambda *args, **more: (made.append("8"), inner(*args, **more))[1])
    model, other, batch = fast("llama", arithmetic), fast("llama"), packed_batch([7, 12])
    trained = LossModel(model)(**batch)
    assert len(made) == 8
    model.eval()
    other.eval()
    with torch.no_grad():
        assert torch.equal(LossModel(model)(**batch), LossModel(other)(**batch))
    assert len(made) == 8
    model.train()
    assert torch.equal(LossModel(model)(**batch), trained)
    assert len(made) == 16


def test_the_reference_is_computed_as_the_policy_is() -> None:
    """At the first step B is zero: the log-ratios of DPO and KTO must be zero too, not the rounding of eight bits."""
    model = adapt(build("llama"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.zero_()
    model.train()
    surgery.apply(model, surgery.plan(model, force=True, arithmetic="fp8"))
    batch = packed_batch([7, 12])
    with torch.no_grad():
        policy = LossModel(model)(**batch)
        with Trained(model).reference():
            assert torch.equal(LossModel(model)(**batch), policy)


def test_the_plan_says_so_in_one_line() -> None:
    model = adapt(build("llama"))
    plan = surgery.plan(model, force=True, arithmetic="int8")
    assert plan.lines() == (
        "2 of 2 layers fast",
        "products with frozen weights: 8-bit integers, a scale a row; evaluation and samples in 16 bits",
    )
    dora = adapt(build("llama"), use_dora=True)
    told = surgery.plan(dora, force=True, arithmetic="int8").lines()
    assert told == ("2 of 2 layers fast", "products with frozen weights: 16 bits (DoRA scales each weight's rows anew)")
