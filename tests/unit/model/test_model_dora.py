"""DoRA's projections against peft's own layer: product, dx, dA, dB, dm; and its format on disk, read by plain peft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from model_tiny import adapt, build, save_tiny
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM

from core.contract.config import LoraChoice
from core.model.adapters import Trained, add_adapter, trainable
from core.model.layers import surgery
from core.model.layers.projections import fast_projection

IDS = torch.tensor([[3, 14, 15, 9, 26, 5]])


def projection(held: str, dtype: torch.dtype, **lora: Any) -> Any:
    """peft's DoRA of one projection of 192 by 128 with a bias, trained for a while."""
    torch.manual_seed(0)
    base: Any = nn.Linear(128, 192)
    if held == "nf4":
        made: Any = Linear4bit(128, 192, compute_dtype=dtype, quant_type="nf4")
        made.load_state_dict(base.state_dict())
        base = made.to("cpu")
    holder = nn.Sequential()
    holder.add_module("q_proj", base.to(dtype))
    model: Any = get_peft_model(holder, LoraConfig(target_modules=["q_proj"], use_dora=True, **lora))
    with torch.no_grad():
        for name, parameter in trainable(model):
            parameter.mul_(0.5 + torch.rand_like(parameter)) if "magnitude" in name else parameter.normal_(0, 0.1)
    return model.base_model.model.q_proj


@pytest.mark.parametrize("lora", [{}, {"use_rslora": True, "r": 16, "lora_alpha": 40}], ids=["lora", "rslora"])
@pytest.mark.parametrize("held", ["nf4", "whole"])
def test_a_projection_is_peft_s(held: str, lora: dict[str, Any]) -> None:
    plain = projection(held, torch.float32, **lora)
    fast = fast_projection(plain)
    leaves = [*(p for p in plain.parameters() if p.requires_grad), torch.randn(3, 7, 128, requires_grad=True)]
    seed = torch.randn(3, 7, 192)
    assert len(leaves) == 4
    wanted, found = plain(leaves[-1]), fast(leaves[-1])
    assert type(found.grad_fn).__name__ != type(wanted.grad_fn).__name__, "ours ran"
    pairs = [(found, wanted), *zip(*(torch.autograd.grad(y, leaves, seed) for y in (found, wanted)), strict=True)]
    for one, other in pairs:
        assert other.norm() > 0
        assert (one - other).norm() / other.norm() <= 1e-6
    plain.lora_variant = {}  # not without: the two ways are two
    assert (plain(leaves[-1]) - wanted).norm() > 0.1 * wanted.norm()


def test_what_our_layers_trained_is_plain_peft_s_on_disk_and_back(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "base")
    model = adapt(build("llama"), use_dora=True).eval()
    surgery.apply(model, surgery.plan(model, force=True))
    wanted = model(IDS).logits
    Trained(model).save(tmp_path / "adapter")
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), tmp_path / "adapter").eval()
    torch.testing.assert_close(plain(IDS).logits, wanted, rtol=1e-5, atol=1e-5)
    other = add_adapter(build("llama"), LoraChoice(use_dora=True, r=8), seed=3).eval()
    surgery.apply(other, surgery.plan(other, force=True))
    before = other(IDS).logits
    assert Trained(other).restore(tmp_path / "adapter") == ""
    torch.testing.assert_close(other(IDS).logits, wanted, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(before, wanted, rtol=1e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_fresh_one_begins_at_the_rows_lengths_not_at_rounded_ones(dtype: torch.dtype) -> None:
    model = add_adapter(build("llama").to(dtype), LoraChoice(use_dora=True), seed=0)
    q = model.get_base_model().model.layers[0].self_attn.q_proj
    m = q.lora_magnitude_vector["default"].weight
    assert m.dtype == torch.float32
    torch.testing.assert_close(m, q.get_base_layer().weight.float().norm(dim=1), rtol=1e-6, atol=0)
