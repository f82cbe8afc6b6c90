"""The swap: the same gradients, the same keys, exact undo, and the base model whenever peft is asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from model_tiny import adapt, assert_close, build, gradients, packed_batch, save_tiny

from core.contract.config import LoraChoice, ModelChoice
from core.kernels.dispatch import reference_only
from core.model.adapters import Trained, add_adapter, trainable
from core.model.layers import decoder_layer, projections, surgery
from core.model.layers.checkpointing import set_checkpointing
from core.model.layers.loss import LossModel
from core.model.loading.load import load_base
from core.models.families import FAMILIES

FAST = sorted(name for name, family in FAMILIES.items() if family.fast)
OWN = ("gemma2", "phi3", "qwen2", "qwen3")
"""Each has parts that no other family has: norms behind both halves, joined matrices, biases, norms of heads."""
SOME: Any = [pytest.param(one, marks=() if one in OWN else pytest.mark.slow) for one in FAST]
WAYS = [
    pytest.param(one, way, marks=() if way == "packed" or one in OWN else pytest.mark.slow)
    for one in FAST for way in ("packed", "single", "dora")
]  # fmt: skip
OVER_FOUR_BITS = [pytest.param(one, False, marks=() if one in OWN else pytest.mark.slow) for one in FAST]
IDS = torch.tensor([[3, 14, 15, 9, 26, 5]])


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often the fast path ran: a test that compares the plain path with itself proves nothing."""
    seen = {"fast": 0}
    inner = decoder_layer.lora_mlp

    def counted(*arguments: Any) -> torch.Tensor:
        seen["fast"] += 1
        return inner(*arguments)

    monkeypatch.setattr(decoder_layer, "lora_mlp", counted)
    return seen


def swap(model: Any) -> surgery.Applied:
    return surgery.apply(model, surgery.plan(model, force=True))


@pytest.mark.parametrize(("family", "way"), WAYS)
def test_gradients_equal_plain_peft(family: str, way: str, count: dict[str, int]) -> None:
    model = adapt(build(family), use_dora=way == "dora", use_rslora=way == "dora")
    model.train()
    batch = {"input_ids": IDS[:, :4], "labels": IDS[:, :4]} if way == "single" else packed_batch([7, 1, 12, 3])
    loss_model = LossModel(model)
    wanted_loss = loss_model(**batch).sum()
    wanted_loss.backward()
    wanted = gradients(model)
    assert count["fast"] == 0

    plan = surgery.plan(model, force=True)
    assert plan.lines() == ("2 of 2 layers fast",)
    surgery.apply(model, plan)
    loss = loss_model(**batch).sum()
    loss.backward()
    assert count["fast"] == 2
    torch.testing.assert_close(loss, wanted_loss, rtol=1e-6, atol=0)
    assert_close(gradients(model), wanted)


@pytest.mark.parametrize(("family", "dora"), [*OVER_FOUR_BITS, ("qwen2", True), ("phi3", True)])
def test_gradients_equal_plain_peft_over_four_bits(
    family: str, dora: bool, tmp_path: Path, count: dict[str, int]
) -> None:
    folder = save_tiny(tmp_path, family)
    base = load_base(folder, ModelChoice(quantization="nf4", dtype="float32"), torch.device("cpu")).model
    model = adapt(base, use_dora=dora)
    model.train()
    loss_model, batch = LossModel(model), packed_batch([7, 12])
    loss_model(**batch).sum().backward()
    wanted = gradients(model)
    swap(model)
    loss_model(**batch).sum().backward()
    assert count["fast"] == 2
    assert_close(gradients(model), wanted)


@pytest.mark.parametrize("family", SOME)
def test_disabled_adapters_give_the_base_model_bit_for_bit(family: str, count: dict[str, int]) -> None:
    base, ids = build(family), IDS[:, :4]
    wanted = base(ids).logits
    model = adapt(base)
    swap(model)
    with model.disable_adapter():
        assert torch.equal(model(ids).logits, wanted)
    assert count["fast"] == 0
    assert not torch.equal(model(ids).logits, wanted)
    assert count["fast"] == 2


def test_partial_adapters_are_told_too(count: dict[str, int]) -> None:
    base = build("llama")
    wanted = base(IDS).logits
    model = adapt(base, target_modules=["q_proj", "v_proj"], layers_to_transform=[1])
    plan = surgery.plan(model, force=True)
    assert plan.lines() == ("1 of 2 layers fast", "1 layer plain: no adapter in it")
    expected = model(IDS).logits
    surgery.apply(model, plan)
    torch.testing.assert_close(model(IDS).logits, expected, rtol=1e-5, atol=1e-6)
    assert count["fast"] == 1
    with model.disable_adapter():
        assert torch.equal(model(IDS).logits, wanted)


def test_merged_several_padded_cached_and_watched_take_the_replaced_layer(count: dict[str, int]) -> None:
    model = adapt(build("llama")).eval()
    swap(model)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    model(IDS, attention_mask=mask)
    model(IDS, use_cache=True)
    assert count["fast"] == 0
    model.add_adapter("second", model.peft_config["default"])
    model.base_model.set_adapter(["default", "second"])
    model(IDS)
    model.set_adapter("default")
    model.merge_adapter()
    model(IDS)
    assert count["fast"] == 0
    model.unmerge_adapter()
    model(IDS)
    assert count["fast"] == 2


def test_whoever_records_hidden_states_gets_them_all() -> None:
    model = adapt(build("llama")).eval()
    wanted = model(IDS, output_hidden_states=True).hidden_states
    surgery.undo(swap(model))
    swap(model)
    states = model(IDS, output_hidden_states=True).hidden_states
    assert len(states) == len(wanted) == 3
    torch.testing.assert_close(states, wanted)


def test_a_hook_on_a_child_is_called(count: dict[str, int]) -> None:
    model = adapt(build("llama")).eval()
    swap(model)
    called = []
    model.get_base_model().model.layers[0].mlp.register_forward_hook(lambda *_: called.append(1))
    model(IDS)
    assert called == [1]
    assert count["fast"] == 1


@pytest.mark.parametrize("family", SOME)
def test_undo_is_exact_and_keys_never_change(family: str) -> None:
    model = adapt(build(family))
    keys, before = list(model.state_dict()), list(model.get_base_model().model.layers)
    names = [name for name, _ in trainable(model)]
    expected = model(IDS).logits
    applied = swap(model)
    assert list(model.state_dict()) == keys
    assert [name for name, _ in trainable(model)] == names
    assert all(isinstance(new, type(old)) for _, _, old, new in applied.swapped)
    model.train()
    surgery.undo(applied)
    after = list(model.get_base_model().model.layers)
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert all(layer.training for layer in after)
    assert list(model.state_dict()) == keys
    assert torch.equal(model.eval()(IDS).logits, expected)


@pytest.mark.parametrize(("order", "dora"), [("before", False), ("after", False), ("after", True)])
def test_recomputing_works_set_before_or_after_the_swap(order: str, dora: bool, count: dict[str, int]) -> None:
    model = adapt(build("llama"), use_dora=dora)
    model.train()
    loss_model, batch = LossModel(model), packed_batch([7, 12])
    loss_model(**batch).sum().backward()
    wanted = gradients(model)
    if order == "before":
        set_checkpointing(model, "recompute")
    applied = swap(model)
    set_checkpointing(model, "recompute")
    loss_model(**batch).sum().backward()
    assert count["fast"] == 4
    assert_close(gradients(model), wanted)
    surgery.undo(applied)
    assert all(layer.gradient_checkpointing for layer in model.get_base_model().model.layers)


@pytest.mark.parametrize(
    ("model", "adapter", "words"),
    [
        ({}, {"lora_dropout": 0.1}, "adapter dropout"),
        ({}, {"use_dora": True, "lora_dropout": 0.1}, "adapter dropout"),
        ({}, {"lora_bias": True}, "adapter bias"),
        ({"attention_dropout": 0.1}, {}, "dropout on attention weights"),
        ({"family": "granite"}, {}, "model type granite"),
        ({"family": "olmo2"}, {}, "model type olmo2"),
    ],
)
def test_what_cannot_be_swapped_is_said(model: dict[str, Any], adapter: dict[str, Any], words: str) -> None:
    plan = surgery.plan(adapt(build(**{"family": "llama", **model}), **adapter), force=True)
    assert not plan.fast
    assert words in " ".join(plan.lines())


@pytest.mark.parametrize(("family", "dora"), [("granite", False), ("olmo2", True)])
def test_an_unknown_family_gets_fast_projections(family: str, dora: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    inner = projections.lora_linears
    monkeypatch.setattr(projections, "lora_linears", lambda x, parts: seen.append(1) or inner(x, parts))
    base = build(family)
    untouched = base(IDS).logits
    model = adapt(base, use_dora=dora)
    model.train()
    loss_model, batch = LossModel(model), {"input_ids": IDS, "labels": IDS}
    loss_model(**batch).sum().backward()
    wanted, keys, classes = gradients(model), list(model.state_dict()), [type(m) for m in model.modules()]
    plan = surgery.plan(model, force=True)
    assert (plan.fast, plan.projections) == (False, 14)
    applied = surgery.apply(model, plan)
    assert list(model.state_dict()) == keys
    loss_model(**batch).sum().backward()
    assert len(seen) == 14
    assert_close(gradients(model), wanted)
    with model.disable_adapter():
        assert torch.equal(model(IDS).logits, untouched)
    assert len(seen) == 14
    surgery.undo(applied)
    assert [type(m) for m in model.modules()] == classes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_fresh_dora_changes_nothing_and_its_reference_is_the_base(dtype: torch.dtype, count: dict[str, int]) -> None:
    """On plain layers and on ours, fresh and trained, against peft's own ``disable_adapter``."""
    base = build("qwen2").to(dtype)
    wanted = base(IDS).logits
    model = add_adapter(base, LoraChoice(use_dora=True), seed=0)
    trained = Trained(model)
    swap(model)
    fresh = model(IDS).logits
    assert count["fast"] == 2
    with torch.no_grad():
        for name, parameter in trainable(model):
            parameter.mul_(1.5) if "magnitude" in name else parameter.normal_(0, 0.05)
    tuned = model(IDS).logits
    with trained.reference():
        reference = model(IDS).logits
    assert count["fast"] == 6, "on the same layers"
    assert torch.equal(fresh, reference), "not a bit: DPO's first loss is ln 2"
    with model.disable_adapter():
        assert torch.equal(model(IDS).logits, wanted)
    torch.testing.assert_close(reference, wanted, rtol=1e-5 if dtype == torch.float32 else 0.02, atol=1e-2)
    assert torch.equal(model(IDS).logits, tuned)
    assert not torch.allclose(tuned, reference, rtol=1e-2)
    surgery.undo(swap(model))
    with trained.reference():
        assert torch.equal(model(IDS).logits, reference)


def test_rslora_and_trained_biases_are_right(count: dict[str, int]) -> None:
    for lora in (LoraChoice(use_rslora=True), LoraChoice(bias="lora_only")):
        model = add_adapter(build("qwen2"), lora, seed=0)
        with torch.no_grad():
            for _, parameter in trainable(model):
                parameter.normal_(0, 0.05)
        loss_model, batch = LossModel(model), packed_batch([7, 12])
        loss_model(**batch).sum().backward()
        wanted = gradients(model)
        plan = surgery.plan(model, force=True)
        assert plan.fast == lora.use_rslora
        surgery.apply(model, plan)
        loss_model(**batch).sum().backward()
        assert_close(gradients(model), wanted)
    assert count["fast"] == 2


def test_the_cpu_and_padded_batches_stay_plain_and_it_is_said() -> None:
    model = adapt(build("llama"))
    padded = surgery.plan(model, force=True, packed=False)
    assert padded.lines() == ("0 of 2 layers fast", "2 layers plain: batches are padded")
    assert not surgery.apply(model, padded).swapped
    assert surgery.plan(model).lines() == ("plain layers: no GPU",)
    assert "switched off" in surgery.plan(model, mode="plain", force=True).lines()[0]
    with reference_only():
        assert "no kernel could be built" in surgery.plan(model, force=True).lines()[0]
    applied = surgery.apply(model, surgery.plan(model))
    assert applied.swapped == ()
    surgery.undo(applied)


def test_the_replaced_layer_trains_and_evaluates_with_the_fast_one() -> None:
    """Surgery comes while the model is still in evaluation; a padded batch then takes the replaced layer."""
    model = adapt(build("llama")).eval()
    swap(model)
    set_checkpointing(model, "recompute")
    model.train()
    seen: list[int] = []
    mlp = model.get_base_model().model.layers[0].mlp
    inner = mlp.forward
    mlp.forward = lambda *arguments: seen.append(1) or inner(*arguments)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    LossModel(model)(input_ids=IDS, labels=IDS, attention_mask=mask).sum().backward()
    assert len(seen) == 2, "recomputed: called again in the backward pass"
    model.eval()
    wanted = adapt(build("llama")).eval().generate(input_ids=IDS, max_new_tokens=12, do_sample=False)
    assert torch.equal(model.generate(input_ids=IDS, max_new_tokens=12, do_sample=False), wanted)


def test_recomputing_asked_of_transformers_reaches_the_replaced_layer_only() -> None:
    model = adapt(build("llama"))
    swap(model)
    model.get_base_model().gradient_checkpointing_enable()
    fast = model.get_base_model().model.layers[0]
    assert not fast.gradient_checkpointing
    assert fast.replaced[0].gradient_checkpointing


def test_a_backward_pass_under_autocast_gives_the_same_gradients() -> None:
    model = adapt(build("llama"))
    model.train()
    swap(model)
    loss_model, batch = LossModel(model), packed_batch([7, 12])
    loss_model(**batch).sum().backward()
    wanted = gradients(model)
    for policy in ("none", "recompute"):
        set_checkpointing(model, policy)
        loss = loss_model(**batch).sum()
        with torch.autocast("cpu", torch.bfloat16):
            loss.backward()
        assert_close(gradients(model), wanted, 1e-6)
