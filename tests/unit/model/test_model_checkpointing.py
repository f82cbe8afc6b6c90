"""Recomputing changes memory, never the gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from model_tiny import adapt, assert_close, build, gradients, packed_batch

from core.estimate.inputs.layer import FastLayer, ModelEnd, longest_kept, recomputed_bytes
from core.estimate.terms import gaps_bytes
from core.kernels import lora
from core.model.layers import surgery
from core.model.layers.checkpointing import Budget, Chooser, checkpointing_layers, set_checkpointing
from core.model.layers.loss import LossModel
from core.model.layers.recompute import ActivationStore


def fast_model(family: str = "llama") -> Any:
    model = adapt(build(family))
    model.train()
    surgery.apply(model, surgery.plan(model, force=True))
    return model


def test_recomputed_gradients_are_the_same_and_layers_run_twice() -> None:
    model = adapt(build("llama"))
    model.train()
    passes = {"count": 0}
    layer = checkpointing_layers(model)[0]  # counted on entry: the second pass ends where nothing more is needed
    layer.mlp.register_forward_pre_hook(lambda *_: passes.update(count=passes["count"] + 1))
    loss_model, batch = LossModel(model), packed_batch([7, 12])

    loss_model(**batch).sum().backward()
    wanted = gradients(model)
    assert passes["count"] == 1
    assert set_checkpointing(model, "recompute") == ("activations: recomputed in 2 plain layers",)
    loss_model(**batch).sum().backward()
    assert passes["count"] == 3
    assert_close(gradients(model), wanted, 1e-6)
    assert set_checkpointing(model, "none") == ("activations: kept",)
    loss_model(**batch).sum().backward()
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
        loss_model(**batch).sum().backward()
        results.append(gradients(model))
    assert_close(results[1], results[0], 1e-6)


@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen3"])
def test_a_fast_layer_gives_the_same_bits_whether_it_is_kept_or_recomputed(family: str) -> None:
    model = fast_model(family)
    loss_model, batch = LossModel(model), packed_batch([7, 12])
    loss_model(**batch).sum().backward()
    wanted = gradients(model)
    fast = [layer for layer in checkpointing_layers(model) if hasattr(layer, "replaced")]
    assert set_checkpointing(model, "recompute") == ("activations: recomputed in 2 layers",)
    for choice in (fast[0].choice[0], Chooser([ActivationStore(), ActivationStore()], _room_for(1, 19))):
        for index, layer in enumerate(fast):
            layer.choice = (choice, index)
        loss_model(**batch).sum().backward()
        assert_close(gradients(model), wanted, 0)


def test_matrices_are_made_once_for_a_recomputation_and_its_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fast_model()
    loss_model, batch = LossModel(model), packed_batch([7, 12])
    made: list[int] = []
    write = lora.Stack.write_by_parts
    monkeypatch.setattr(lora.Stack, "write_by_parts", lambda *args: (made.append(1), write(*args)))
    counts, by_policy = [], []
    enough = recomputed_bytes(LAYER, 19) + LAYER.matrices
    for room in (enough - 1, enough):
        chooser = Chooser([ActivationStore(), ActivationStore()], replace(_room_for(0, 19), bytes=GAPS + room))
        monkeypatch.setattr(chooser, "store", lambda *_: ActivationStore())
        for index, layer in enumerate(checkpointing_layers(model)):
            layer.choice = (chooser, index)
        loss_model(**batch).sum().backward()
        counts.append(len(made))
        made.clear()
        by_policy.append(gradients(model))
    assert_close(by_policy[1], by_policy[0], 0)
    # A layer has 4 stacks; the down projection's matrix is not made for the recomputation.
    assert counts == [2 * (4 + 3 + 4), 2 * (4 + 3 + 1)]


def test_weights_are_asked_for_before_a_layer_computes_and_before_it_goes_backward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = adapt(build("llama"))
    model.train()
    asked: list[tuple[int, bool]] = []
    plan = surgery.plan(model, force=True)
    monkeypatch.setattr(
        surgery, "ready_of", lambda layer: lambda back, _alone: asked.append((layer.self_attn.layer_idx, back))
    )
    surgery.apply(model, plan)
    for policy in ("recompute", "none"):
        set_checkpointing(model, policy)
        loss = LossModel(model)(**packed_batch([7, 12])).sum()
        assert asked == [(0, False), (1, False)]
        loss.backward()
        assert asked == [(0, False), (1, False), (1, True), (0, True)]
        asked.clear()


LAYER = FastLayer(
    hidden=64, queries=64, keys=32, inner=160, head_dim=32, ranks=(48, 16, 32, 16), itemsize=2
)  # fmt: skip
END = ModelEnd(hidden=64, vocabulary=100, itemsize=2)
LIMIT = 2**30
GAPS = gaps_bytes(LIMIT, 0, 0)


def _room_for(layers: int, tokens: int) -> Budget:
    """Just enough to keep so many layers of a pass of so many tokens, where others are recomputed."""
    work = max(sum(LAYER.work(tokens)), END.work(tokens))
    return Budget(GAPS + work + tokens * (layers * LAYER.kept + 2 * LAYER.input), LAYER, END, LIMIT, 0)


def test_a_budget_keeps_the_last_layers_and_more_of_them_in_a_short_pass() -> None:
    stores = [ActivationStore() for _ in range(4)]
    chooser = Chooser(stores, _room_for(3, 1000))

    def recomputed(tokens: int) -> list[int]:
        return [index for index in range(4) if chooser.store(index, tokens) is not None]

    assert recomputed(1) == recomputed(700) == []
    assert recomputed(1000) == [0]
    assert recomputed(1001) == [0, 1], "not a byte more"
    assert recomputed(4000) == [0, 1, 2, 3]
    assert recomputed(1000) == [0], "the tokens alone decide"


def test_all_layers_are_kept_where_nothing_need_leave() -> None:
    """Four layers fit before three do together with inputs on their way."""
    exact = max(sum(LAYER.work(1000)), END.work(1000)) + 4 * 1000 * LAYER.kept
    for room, kept, longest in ((exact, 4, 1000), (exact - 1, 3, 999)):
        assert Budget(GAPS + room, LAYER, END, LIMIT, 0).kept(1000, 4) == kept
        assert longest_kept(LAYER, END, 4, room) == longest


def test_without_a_card_a_budget_keeps_everything() -> None:
    model = fast_model()
    assert set_checkpointing(model, "auto", 1) == ("activations: kept",)
    assert set_checkpointing(model, "offload") == ("activations: recomputed in 2 layers, their inputs in host memory",)
