"""LoftQ: an adapter that begins at the error of 4 bits, and what is saved of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from model_tiny import gradients, packed_batch, save_tiny
from peft import PeftModel
from peft.utils.loftq_utils import _low_rank_decomposition
from safetensors.torch import load_file, save_file
from test_model_pissa import moved

from core.contract.config import LoraChoice, ModelChoice
from core.contract.errors import ModelError
from core.contract.tasks import STARTS, StartName
from core.model.adapters import BEGINNINGS, Trained, add_adapter, load_adapter, trainable
from core.model.layers import surgery
from core.model.layers.loss import LossModel
from core.model.layers.peft_bnb import adapted_layers, adapter_of, dense_weight, starts_of
from core.model.loading.load import load_base
from core.model.loading.original import original_weights

CPU = torch.device("cpu")
LOFTQ = LoraChoice(r=8, lora_alpha=12, init_lora_weights="loftq")
IDS = torch.tensor([[3, 14, 15, 9, 26, 5]])


def base_of(folder: Path, form: str = "nf4") -> Any:
    return load_base(folder, ModelChoice(quantization=form, dtype="float32"), CPU).model


def begun(folder: Path, seed: int = 0) -> Any:
    return add_adapter(base_of(folder), LOFTQ, seed, originals=lambda: original_weights(folder, CPU))


def test_every_beginning_has_a_maker() -> None:
    assert STARTS.keys() == BEGINNINGS.keys() == {*get_args(StartName)} - {"default"}


@pytest.mark.parametrize("family", ["llama", "phi3"])
def test_it_begins_at_the_largest_parts_of_what_four_bits_lose(family: str, tmp_path: Path) -> None:
    """peft's own decomposition, which knows no scale and wants a card; and nearer to the whole model's answers."""
    folder = save_tiny(tmp_path, family, tie_word_embeddings=False)
    came, whole = base_of(folder)(IDS).logits, base_of(folder, "none")
    model = begun(folder)
    for name, module in adapted_layers(model).items():
        error = whole.get_submodule(name.removeprefix("base_model.model.")).weight - dense_weight(module)
        parts = _low_rank_decomposition(error, reduced_rank=8)
        a, b = adapter_of(module)
        wanted, found = parts["L"] @ parts["R"], 1.5 * b @ a
        assert (found - wanted).norm() <= 1e-2 * wanted.norm()
        assert (error - found).norm() < 0.9 * error.norm()
    with model.disable_adapter():
        assert torch.equal(model(IDS).logits, came)
    truth = whole(IDS).logits
    assert (model(IDS).logits - truth).norm() < 0.9 * (came - truth).norm()


def test_what_is_saved_is_the_change_for_whole_weights_and_as_trained_over_four_bits(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "base")
    model = moved(begun(folder)).eval()
    wanted = model(IDS).logits
    Trained(model).save(tmp_path / "adapter")
    by_hand = base_of(folder, "none")
    with torch.no_grad():
        for name, module in adapted_layers(model).items():
            (a, b), (a0, b0) = adapter_of(module), starts_of(model)[name]
            by_hand.get_submodule(name.removeprefix("base_model.model.")).weight += 1.5 * (b @ a - b0 @ a0)
    for load in (PeftModel.from_pretrained, lambda base, at: load_adapter(base, at, trainable=False)):
        plain = load(base_of(folder, "none"), tmp_path / "adapter").eval()
        assert plain.peft_config["default"].r == 16
        torch.testing.assert_close(plain(IDS).logits, by_hand(IDS).logits, rtol=1e-4, atol=1e-5)
    frozen = load_adapter(base_of(folder), tmp_path / "adapter", trainable=False).eval()
    assert trainable(frozen) == []
    assert torch.equal(frozen(IDS).logits, wanted)
    without = PeftModel.from_pretrained(base_of(folder), str(tmp_path / "adapter")).eval()
    assert not torch.allclose(without(IDS).logits, wanted, rtol=1e-3, atol=1e-4), "the correction is not in it"

    further = load_adapter(base_of(folder), tmp_path / "adapter", trainable=True)  # a run that goes on from it
    assert {name for name, _ in trainable(further)} == {name for name, _ in trainable(model)}
    Trained(further).save(tmp_path / "again")
    first, again = (load_file(tmp_path / one / "adapter_model.safetensors") for one in ("adapter", "again"))
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    config = ((tmp_path / one / "adapter_config.json").read_text() for one in ("adapter", "again"))
    assert len({text.replace(" ", "").count('"r":16,') for text in config}) == 1

    resumed = begun(folder, seed=1)
    assert Trained(resumed).restore(tmp_path / "adapter") == ""
    assert torch.equal(resumed.eval()(IDS).logits, wanted)
    assert all(torch.equal(one, two) for name in starts_of(model)
               for one, two in zip(starts_of(model)[name], starts_of(resumed)[name], strict=True))  # fmt: skip


def test_fast_layers_have_the_same_gradients(tmp_path: Path) -> None:
    model = begun(save_tiny(tmp_path)).train()
    loss_model, batch = LossModel(model), packed_batch([7, 12])
    loss_model(**batch).sum().backward()
    wanted = gradients(model)
    assert surgery.plan(model, force=True).lines() == ("2 of 2 layers fast",)
    surgery.apply(model, surgery.plan(model, force=True))
    loss_model(**batch).sum().backward()
    for name, gradient in gradients(model).items():
        assert (gradient - wanted[name]).norm() <= 1e-5 * wanted[name].norm(), name


@pytest.mark.parametrize(
    ("what", "said"), [("another", "is another matrix there"), ("named", "no weight model.layers")]
)
def test_other_weights_than_the_model_was_made_of_are_refused(what: str, said: str, tmp_path: Path) -> None:
    base, file = base_of(save_tiny(tmp_path)), tmp_path / "model.safetensors"
    tensors = load_file(file)
    if what == "another":
        tensors = {name: tensor.flip(0).contiguous() for name, tensor in tensors.items()}
    else:
        tensors = {f"other.{name}": tensor for name, tensor in tensors.items()}
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=said):
        add_adapter(base, LOFTQ, 0, originals=lambda: original_weights(tmp_path, CPU))
