"""PiSSA: peft's start and peft's training, over a base that stays as it came."""

from pathlib import Path
from typing import Any

import pytest
import torch
from model_tiny import SIZES, build, gradients, packed_batch, save_tiny
from peft import LoraConfig, PeftModel, get_peft_model

from core.contract.config import LoraChoice, ModelChoice
from core.model.adapters import Trained, add_adapter, load_adapter, trainable
from core.model.layers import surgery
from core.model.layers.loss import LossModel
from core.model.layers.peft_bnb import adapted_layers, dense_weight, starts_of
from core.model.loading.load import load_base
from core.models.families import FAMILIES

PISSA = LoraChoice(r=8, lora_alpha=12, init_lora_weights="pissa_niter_16")
IDS = torch.tensor([[3, 14, 15, 9, 26, 5]])
OWN = ("gemma2", "phi3", "qwen2", "qwen3")
"""Each has parts that no other family has: norms behind both halves, joined matrices, biases, norms of heads."""
EACH = [
    pytest.param(name, marks=() if name in OWN else pytest.mark.slow)
    for name, family in FAMILIES.items() if family.fast
]  # fmt: skip


def moved(model: Any, seed: int = 3) -> Any:
    """As after some training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in trainable(model):
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)
    return model


def test_it_learns_as_peft_s_own() -> None:
    """Gradients at a moved adapter; peft's own has its base rewritten."""
    theirs = get_peft_model(
        build("llama"),
        LoraConfig(
            r=8, lora_alpha=12, target_modules=list(LoraChoice().target_modules), init_lora_weights="pissa_niter_16",
            task_type="CAUSAL_LM",
        ),
    )  # fmt: skip
    ours = add_adapter(build("llama"), PISSA, seed=0)
    # Found by random projections: both go on from one start.
    for name, (a, b) in starts_of(ours).items():
        their = theirs.get_submodule(name)
        their.lora_A["default"].weight.data.copy_(a)
        their.lora_B["default"].weight.data.copy_(b)
        whole = dense_weight(ours.get_submodule(name))
        their.get_base_layer().weight.data.copy_(whole - 1.5 * b @ a)
    found = []
    for model in (theirs, ours):
        LossModel(moved(model).train())(**packed_batch([7, 12])).sum().backward()
        found.append(gradients(model))
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        assert (found[1][name] - gradient).norm() <= 1e-5 * gradient.norm(), name


@pytest.mark.parametrize("family", EACH)
def test_fast_layers_have_the_same_gradients_and_the_base_stays(family: str) -> None:
    base = build(family)
    came = base(IDS).logits
    model = add_adapter(base, PISSA, seed=0)
    torch.testing.assert_close(model(IDS).logits, came, rtol=1e-4, atol=1e-5)
    with model.disable_adapter():
        assert torch.equal(model(IDS).logits, came)
    loss_model, batch = LossModel(moved(model).train()), packed_batch([7, 12])
    loss_model(**batch).sum().backward()
    wanted = gradients(model)
    assert surgery.apply(model, surgery.plan(model, force=True)).swapped
    loss_model(**batch).sum().backward()
    for name, gradient in gradients(model).items():
        assert gradient.any()
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-5 * float(wanted[name].abs().max()))
    model.eval()
    with model.disable_adapter():
        assert torch.equal(model(IDS).logits, came)
    assert not torch.equal(model(IDS).logits, came)


@pytest.mark.parametrize("form", ["none", "nf4"])
def test_what_is_saved_is_a_plain_adapter_for_the_model_that_came(form: str, tmp_path: Path) -> None:
    """And what is restored goes on bit for bit, whatever the decomposition gives at the second time."""

    def base() -> Any:
        choice = ModelChoice(quantization=form, dtype="float32")
        return load_base(tmp_path / "base", choice, torch.device("cpu")).model

    save_tiny(tmp_path / "base")
    model = moved(add_adapter(base(), PISSA, seed=0)).eval()
    Trained(model).save(tmp_path / "adapter")
    plain = PeftModel.from_pretrained(base(), str(tmp_path / "adapter"))
    assert (plain.peft_config["default"].r, plain.peft_config["default"].init_lora_weights) == (16, True)
    torch.testing.assert_close(plain(IDS).logits, model(IDS).logits, rtol=1e-4, atol=1e-5)
    load_adapter(base(), tmp_path / "adapter", trainable=False)  # passes the checks of foreign adapters
    other = add_adapter(base(), PISSA, seed=1)
    assert Trained(other).restore(tmp_path / "adapter") == ""
    assert all(torch.equal(one[1], two[1]) for one, two in zip(trainable(model), trainable(other), strict=True))
    for one, two in zip(starts_of(model).values(), starts_of(other).values(), strict=True):
        assert torch.equal(one[0], two[0])
        assert torch.equal(one[1], two[1])
    assert torch.equal(other.eval()(IDS).logits, model(IDS).logits)


def test_the_start_is_the_best_of_its_rank_and_a_larger_rank_than_a_matrix_has_is_no_fault() -> None:
    model = add_adapter(build("llama"), PISSA, seed=0)
    for name, module in adapted_layers(model).items():
        weight, (a, b) = dense_weight(module), starts_of(model)[name]  # random: singular values lie close together
        left = torch.linalg.svdvals(weight)[8:].norm()
        assert float((weight - 1.5 * b @ a).norm()) == pytest.approx(float(left), rel=5e-3)
    many = add_adapter(build("llama"), PISSA.model_copy(update={"r": 2 * SIZES["head_dim"] + 8}), seed=0)
    torch.testing.assert_close(many(IDS).logits, build("llama")(IDS).logits, rtol=1e-3, atol=1e-4)
