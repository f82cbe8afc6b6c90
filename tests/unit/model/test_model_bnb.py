"""Layers of bitsandbytes, wrapped by peft or not, are read as NF4 or give their weight."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from peft import LoraConfig, get_peft_model
from torch import nn

from core.kernels.weights.forms import PLAIN
from core.model.layers import peft_bnb


def layer(quant_type: str = "nf4", nested: bool = True) -> Any:
    """A 4-bit layer, quantised by its way to the device."""
    made = Linear4bit(
        128, 48, bias=False, compute_dtype=torch.float32, compress_statistics=nested, quant_type=quant_type
    )
    return made.to("cpu")


def adapted(base: nn.Module) -> Any:
    """The wrapped projection under peft."""
    holder = nn.Sequential()
    holder.add_module("q_proj", base)
    model: Any = get_peft_model(holder, LoraConfig(r=4, target_modules=["q_proj"]))
    return model.base_model.model.q_proj


@pytest.mark.parametrize("nested", [True, False])
def test_a_wrapped_projection_reads_as_nf4_once(nested: bool) -> None:
    base = layer(nested=nested)
    for module in (adapted(base), base):
        first, again = peft_bnb.read_projection(module), peft_bnb.read_projection(module)
        assert first is not None
        assert again is not None
        assert first is again
        wanted = peft_bnb.dequantize_4bit(base.weight.data, base.weight.quant_state)
        assert wanted.norm() > 0
        assert torch.equal(first.weight(), wanted)
        assert first.shape == first.held.shape == (48, 128)


def test_a_weight_that_was_loaded_anew_is_read_anew() -> None:
    base, other = layer(), layer()
    before = peft_bnb.read_projection(base)
    base.weight = other.weight
    after = peft_bnb.read_projection(base)
    assert before is not None
    assert after is not None
    assert torch.equal(after.weight(), peft_bnb.dequantize_4bit(other.weight.data, other.weight.quant_state))
    assert not torch.equal(before.weight(), after.weight())


def test_what_is_not_nf4_gives_its_weight() -> None:
    other = layer("fp4")
    read = peft_bnb.read_projection(other)
    assert read is not None
    assert read.form is PLAIN
    assert torch.equal(read.weight(), peft_bnb.dequantize_4bit(other.weight.data, other.weight.quant_state))
    plain = nn.Linear(8, 4)
    read = peft_bnb.read_projection(plain)
    assert read is not None
    assert read.form is PLAIN
    assert read.weight() is plain.weight
