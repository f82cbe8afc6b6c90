"""Recomputing changes memory, never the gradients."""

from __future__ import annotations

import pytest
import torch
from model_tiny import adapt, assert_close, build, gradients, packed_batch

from core.model import surgery
from core.model.checkpointing import Budget, Chooser, checkpointing_layers, set_checkpointing
from core.model.loss import LossModel
from core.model.recompute import Shelf


def test_recomputed_gradients_are_the_same_and_layers_run_twice() -> None:
    model = adapt(build("llama"))
    model.train()
    passes = {"count": 0}
    layer = checkpointing_layers(model)[0]  # counted on entry: the second pass ends where nothing more is needed
    layer.mlp.register_forward_pre_hook(lambda *_: passes.update(count=passes["count"] + 1))
    loss_model, batch = LossModel(model), packed_batch([7, 12])

    loss_model(**batch).backward()
    wanted = gradients(model)
    assert passes["count"] == 1
    assert set_checkpointing(model, "recompute") == ("activations: recomputed in 2 plain layers",)
    loss_model(**batch).backward()
    assert passes["count"] == 3
    assert_close(gradients(model), wanted, 1e-6)
    assert set_checkpointing(model, "none") == ("activations: kept",)
    loss_model(**batch).backward()
    assert passes["count"] == 4
    assert_close(gradients(model), wanted, 0)


def test_dropout_draws_the_same_mask_twice() -> None:
    model = adapt(build("llama"), lora_dropout=0.5)
    model.train()
    loss_model, batch = LossModel(model), packed_batch([7, 12])
    results = []
    for policy in ("none", "recompute"):
        set_checkpointing(model, policy)
        torch.manual_seed(0)
        loss_model(**batch).backward()
        results.append(gradients(model))
    assert_close(results[1], results[0], 1e-6)


@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen3"])
def test_a_fast_layer_gives_the_same_bits_whether_it_is_kept_or_recomputed(family: str) -> None:
    model = adapt(build(family))
    model.train()
    surgery.apply(model, surgery.plan(model, force=True))
    loss_model, batch = LossModel(model), packed_batch([7, 12])
    loss_model(**batch).backward()
    wanted = gradients(model)
    fast = [layer for layer in checkpointing_layers(model) if hasattr(layer, "replaced")]
    assert set_checkpointing(model, "recompute") == ("activations: recomputed in 2 layers",)
    for choice in (fast[0].choice[0], Chooser([Shelf(), Shelf()], Budget(19 * 40 * 4, 30, 10, 4))):
        for index, layer in enumerate(fast):
            layer.choice = (choice, index)
        loss_model(**batch).backward()
        assert_close(gradients(model), wanted, 0)


def test_a_budget_keeps_the_last_layers_and_more_of_them_in_a_short_pass() -> None:
    shelves = [Shelf() for _ in range(4)]
    chooser = Chooser(shelves, Budget(bytes=1_000, columns=10, work=20, itemsize=2))

    def recomputed(tokens: int) -> list[int]:
        return [index for index in range(4) if chooser.shelf(index, tokens) is not None]

    assert recomputed(1) == recomputed(8) == []
    assert recomputed(10) == [0]  # 600 bytes are left: three layers of 200
    assert recomputed(20) == [0, 1, 2, 3]  # 200 bytes are left: not one of 400
    assert recomputed(100) == [0, 1, 2, 3]
