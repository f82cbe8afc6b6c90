"""Adapters: seeded, trainable alone, and plain peft's on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from model_tiny import adapt, build, save_tiny
from peft import PeftModel
from peft.optimizers import create_loraplus_optimizer
from transformers import AutoModelForCausalLM

from core.contract.config import LoraChoice, ModelChoice
from core.contract.errors import ModelError
from core.model.adapters import Trained, adapter_targets, add_adapter, load_adapter, trainable
from core.model.loading.load import load_base

IDS = torch.tensor([[3, 14, 15, 9, 26, 5]])


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainable(model)}


def test_the_seed_alone_decides_the_adapter() -> None:
    torch.manual_seed(1)
    first = weights(add_adapter(build("llama"), LoraChoice(), seed=7))
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second = weights(add_adapter(build("llama", seed=2), LoraChoice(), seed=7))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    other = weights(add_adapter(build("llama"), LoraChoice(), seed=8))
    assert any(not torch.equal(first[name], other[name]) for name in first)
    assert before.shape == torch.get_rng_state().shape


def test_the_global_generator_is_left_alone() -> None:
    model = build("llama")
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    add_adapter(model, LoraChoice(), seed=7)
    assert torch.equal(torch.rand(3), wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_adapter_weights_are_float32_on_a_16_bit_base(dtype: torch.dtype) -> None:
    model = add_adapter(build("llama").to(dtype), LoraChoice(), seed=0)
    parameters_by_name = trainable(model)
    assert len(parameters_by_name) == 2 * 7 * 2
    assert {parameter.dtype for _, parameter in parameters_by_name} == {torch.float32}
    assert all("lora_" in name for name, _ in parameters_by_name)
    assert model(IDS).logits.dtype == dtype


def test_plain_peft_reads_what_we_save(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "base")
    base = load_base(folder, ModelChoice(quantization="none", dtype="float32"), torch.device("cpu")).model
    model = add_adapter(base, LoraChoice(r=4, lora_alpha=8), seed=0)
    with torch.no_grad():
        for _, parameter in trainable(model):
            parameter.normal_(0, 0.1)
    model.eval()
    wanted = model(IDS).logits
    Trained(model).save(tmp_path / "adapter")

    names = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= names
    assert not any(name.endswith((".bin", ".pt", ".pkl")) for name in names)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(folder)

    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa")
    reloaded = PeftModel.from_pretrained(plain, tmp_path / "adapter").eval()
    torch.testing.assert_close(reloaded(IDS).logits, wanted, rtol=1e-5, atol=1e-5)


def test_loading_for_use_and_for_training(tmp_path: Path) -> None:
    Trained(adapt(build("llama"))).save(tmp_path)
    frozen = load_adapter(build("llama"), tmp_path, trainable=False)
    assert trainable(frozen) == []
    warm = load_adapter(build("llama"), tmp_path, trainable=True)
    torch.testing.assert_close(weights(warm), weights(adapt(build("llama"))), rtol=0, atol=0)


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    Trained(adapt(build("llama", hidden_size=128))).save(tmp_path / "other")
    with pytest.raises(ModelError, match="made for this model"):
        load_adapter(build("llama"), tmp_path / "other", trainable=True)
    with pytest.raises(ModelError, match="adapter_config"):
        load_adapter(build("llama"), tmp_path / "nothing", trainable=True)


def test_fused_projections_are_found_and_said() -> None:
    targets = adapter_targets(build("phi3"), LoraChoice())
    assert targets.modules == ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
    assert "qkv_proj" in targets.note
    model = add_adapter(build("phi3"), LoraChoice(), seed=0)
    assert len(trainable(model)) == 2 * 4 * 2


def test_usual_targets_need_no_word_and_wrong_ones_are_named() -> None:
    assert adapter_targets(build("llama"), LoraChoice()).note == ""
    with pytest.raises(ModelError, match="no wqkv"):
        adapter_targets(build("llama"), LoraChoice(target_modules=("q_proj", "wqkv")))


def test_unusual_adapters_are_peft_s_own() -> None:
    dora = add_adapter(build("llama"), LoraChoice(use_dora=True), seed=0)
    assert any("magnitude" in name for name, _ in trainable(dora))
    bias = add_adapter(build("qwen2"), LoraChoice(bias="lora_only"), seed=0)
    assert any(name.endswith("bias") for name, _ in trainable(bias))


@pytest.mark.parametrize("lora", [{}, {"use_dora": True}, {"target_modules": ("q_proj", "embed_tokens")}], ids=str)
def test_the_rates_of_lora_plus_are_those_of_peft_s_own_optimiser(lora: dict[str, Any]) -> None:
    model = add_adapter(build("llama"), LoraChoice(**lora), seed=0)
    theirs = create_loraplus_optimizer(
        model, torch.optim.AdamW, lr=2e-4, loraplus_lr_ratio=16.0, loraplus_weight_decay=0.01
    )
    decayed = {name for name, _ in trainable(model) if not name.endswith("bias")}
    ours = Trained(model, 16.0).groups(decayed, 2e-4)
    names = {id(parameter): name for name, parameter in trainable(model)}
    wanted = {
        names[id(one)]: (group["lr"], group["weight_decay"]) for group in theirs.param_groups for one in group["params"]
    }
    found = {
        names[id(one)]: (pytest.approx(2e-4 * group.times), 0.01 * group.decays)
        for group in ours for one in group.parameters
    }  # fmt: skip
    assert found == wanted
    assert len({group.times for group in ours}) == len({rate for rate, _ in wanted.values()}) > 1
    assert ours[0].times == 1.0, "the rate that is shown"


def test_what_is_trained_is_saved_restored_and_told_from_the_base(tmp_path: Path) -> None:
    model = adapt(build("llama")).eval()
    trained, other = Trained(model), Trained(adapt(build("llama", hidden_size=128)))
    assert trained.bytes == 4 * trained.count == 4 * sum(parameter.numel() for parameter in trained.parameters)
    first = trained.named[0][0]
    decayed, rest = trained.groups({first}, 1e-4)
    assert decayed.parameters[0] is trained.parameters[0]
    assert [len(decayed.parameters), len(rest.parameters)] == [1, len(trained.named) - 1]
    assert (decayed.decays, rest.decays, decayed.times, rest.times) == (True, False, 1.0, 1.0)
    wanted, tuned = weights(model), model(IDS).logits
    trained.save(tmp_path)
    with torch.no_grad():
        for parameter in trained.parameters:
            parameter.zero_()
    plain = model(IDS).logits
    assert trained.restore(tmp_path) == ""
    torch.testing.assert_close(weights(model), wanted, rtol=0, atol=0)
    assert not torch.equal(plain, tuned)
    with trained.base():
        assert torch.equal(model(IDS).logits, model.get_base_model()(IDS).logits)
        torch.testing.assert_close(model(IDS).logits, plain)
    with pytest.raises(RuntimeError, match="size mismatch"):
        other.restore(tmp_path)
