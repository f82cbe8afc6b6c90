"""What a fast layer keeps from call to call: it follows whatever happens to its tensors, and keeps nothing alive."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from model_tiny import adapt, assert_close, build, gradients, packed_batch, save_tiny

from core.contract.config import ModelChoice
from core.model.adapters import trainable
from core.model.layers import surgery
from core.model.layers.loss import LossModel
from core.model.loading.load import load_base

BATCH = packed_batch([7, 12])


def swap(model: Any) -> surgery.Applied:
    return surgery.apply(model, surgery.plan(model, force=True))


def layer_of(model: Any) -> Any:
    return model.get_base_model().model.layers[0]


def load_a_norm(model: Any) -> None:
    norm = layer_of(model).post_attention_layernorm
    norm.load_state_dict({"weight": 3 * norm.weight.detach()})


def move_an_adapter(model: Any) -> None:
    for _, parameter in trainable(model):
        parameter.data = 2 * parameter.data


CHANGES: dict[str, Callable[[Any], object]] = {
    "a norm": lambda model: layer_of(model).input_layernorm.weight.data.mul_(2),
    "a norm loaded": load_a_norm,
    "an adapter moved": move_an_adapter,
    "a weight": lambda model: layer_of(model).mlp.up_proj.base_layer.weight.data.mul_(2),
    "a scale": lambda model: layer_of(model).self_attn.q_proj.scaling.update(default=0.25),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_two_passes_is_seen_by_both_ways(change: str) -> None:
    fast = adapt(build("llama"))
    plain = copy.deepcopy(fast)
    swap(fast)
    for model in (fast, plain):
        model.train()
        LossModel(model)(**BATCH).sum().backward()
        model.zero_grad()
        CHANGES[change](model)
        LossModel(model)(**BATCH).sum().backward()
    assert_close(gradients(fast), gradients(plain))


@pytest.mark.parametrize("bits", [4, 16])
def test_a_model_that_is_let_go_is_gone_and_so_is_an_adapter(bits: int, tmp_path: Path) -> None:
    choice = ModelChoice(quantization="nf4" if bits == 4 else "none", dtype="float32")
    base = load_base(save_tiny(tmp_path, "llama"), choice, torch.device("cpu")).model
    model = adapt(base)
    model.train()
    applied = swap(model)
    LossModel(model)(**BATCH).sum().backward()
    adapter = weakref.ref(trainable(model)[0][1])
    weight = weakref.ref(layer_of(model).mlp.up_proj.base_layer)
    surgery.undo(applied)
    base = model.unload()
    del model, applied
    gc.collect()
    assert adapter() is None, "the base stays, its adapter goes"
    assert weight() is not None
    del base
    gc.collect()
    assert weight() is None


def test_the_last_norm_goes_with_the_last_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody watches a norm inside the last layer: that layer is the replaced one, and so is the norm after it."""
    model = adapt(build("llama"))
    swap(model)
    base = model.get_base_model().model
    ours = []
    monkeypatch.setattr(
        "core.model.layers.decoder_layer.rms_norm", lambda x, *rest: ours.append(1) or torch.rms_norm(x, x.shape[-1:])
    )
    LossModel(model)(**BATCH).sum()
    assert ours, "the last norm is ours"
    ours.clear()
    base.layers[-1].input_layernorm.register_forward_hook(lambda *_: None)
    LossModel(model)(**BATCH).sum()
    assert not ours
