"""Recomputing changes memory, never the gradients."""

from __future__ import annotations

import torch
from model_tiny import adapt, assert_close, build, gradients, packed_batch

from core.model.checkpointing import checkpointing_layers, set_checkpointing
from core.model.loss import LossModel


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
    assert set_checkpointing(model, "recompute") == 2
    loss_model(**batch).backward()
    assert passes["count"] == 3
    assert_close(gradients(model), wanted, 1e-6)
    assert set_checkpointing(model, "none") == 0
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
