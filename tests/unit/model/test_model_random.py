"""Random models of known shapes: quantised, repeatable, of the shape that the catalogue says."""

from __future__ import annotations

import pytest
import torch
from bitsandbytes.nn import Linear4bit

from core.contract.config import LoraChoice
from core.contract.errors import ModelError
from core.model.adapters import add_adapter, trainable
from core.model.loading.random_weights import find_shape, known_names, random_config, random_model
from core.models.catalog import catalogue

CPU = torch.device("cpu")


def test_tiny_is_quantised_frozen_and_trains() -> None:
    loaded = random_model("tiny", CPU)
    linears = [module for module in loaded.model.modules() if isinstance(module, Linear4bit)]
    assert len(linears) == 14
    assert all(linear.weight.quant_state.nested and linear.in_features % 64 == 0 for linear in linears)
    assert loaded.dtype == torch.float32
    assert loaded.tokenizer is None
    assert loaded.model.is_loaded_in_4bit
    assert loaded.model.config._attn_implementation == "luthier_packed"
    assert loaded.model.name_or_path == "random:tiny"
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert all((p == 1).all() for name, p in loaded.model.named_parameters() if "norm" in name)
    model = add_adapter(loaded.model, LoraChoice(r=4, lora_alpha=8), 1)
    ids = torch.arange(12)[None]
    model(input_ids=ids, labels=ids).loss.backward()
    assert any(parameter.grad is not None and parameter.grad.any() for _, parameter in trainable(model))


def test_a_seed_gives_the_same_weights_and_another_gives_others() -> None:
    first, again = random_model("tiny", CPU, seed=7).model, random_model("tiny", CPU, seed=7).model
    other = random_model("tiny", CPU, seed=8).model
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert not torch.equal(first.model.embed_tokens.weight, other.model.embed_tokens.weight)
    assert first.model.embed_tokens.weight.std().item() == pytest.approx(0.02, rel=0.05)
    layer = first.model.layers[0]
    assert not torch.equal(layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight)


def test_sixteen_bits_and_fewer_layers() -> None:
    loaded = random_model("tiny", CPU, quantization="none", dtype="bfloat16", layers=1)
    assert len(loaded.model.model.layers) == 1
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("spec", [spec for spec in catalogue() if not spec.encoder], ids=lambda spec: spec.key)
def test_every_catalogue_shape_has_as_many_weights_as_it_says(spec: object) -> None:
    from transformers import AutoModelForCausalLM

    described = find_shape(spec.key)  # type: ignore[attr-defined]
    two = described.shape.model_copy(update={"num_hidden_layers": 2})  # all layers of a model are alike
    described = described.model_copy(update={"shape": two})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(random_config(described))
    named = sum(p.numel() for name, p in model.named_parameters() if "norm" not in name and not name.endswith("bias"))
    assert named == described.shape.linear_parameters + described.shape.embedding_parameters
    assert getattr(model.config, "sliding_window", None) == described.shape.sliding_window


@pytest.mark.parametrize("family", ["gemma-2-2b", "qwen2.5-0.5b", "phi-3.5-mini"])
def test_other_families_small(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 128}  # fmt: skip
    spec = find_shape(family)
    spec = spec.model_copy(update={"shape": spec.shape.model_copy(update=small)})
    monkeypatch.setattr("core.model.loading.random_weights.find_shape", lambda _name: spec)
    model = random_model(family, CPU).model.eval()
    with torch.no_grad():
        assert torch.isfinite(model(torch.arange(5)[None]).logits).all()
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == spec.shape.tie_word_embeddings
    wanted = 0.0 if family.startswith("gemma") else 1.0
    assert all((p == wanted).all() for name, p in model.named_parameters() if "norm" in name)
    assert all((p == 0).all() for name, p in model.named_parameters() if name.endswith("bias"))


def test_names_of_the_same_shape() -> None:
    assert find_shape("mistralai/Mistral-7B-Instruct-v0.3").key == find_shape("Mistral-7B").key == "mistral-7b"
    assert find_shape("mistralai/Mistral-7B-v0.3").key == "mistral-7b"
    assert find_shape("llama-3-8b").shape.vocab_size == 128256
    assert find_shape("meta-llama/Meta-Llama-3-8B").shape.vocab_size == 128256


def test_an_unknown_name_lists_what_is_known() -> None:
    with pytest.raises(ModelError, match=r"tiny.*mistral-7b") as error:
        random_model("nonsense-7b", CPU)
    assert "\n" not in str(error.value)
    assert {"tiny", "mistral-7b", "llama-3-8b"} <= set(known_names())
