"""Tiny model folders for the loading tests, and comparisons of loaded models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from core.model.attention import packed
from core.model.loading.assemble import Target
from core.model.loading.load import freeze

CPU = torch.device("cpu")
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"tie_word_embeddings": True},
    "gemma2": {"tie_word_embeddings": True},
    "phi3": {},
}


def by_transformers(folder: Path, dtype: torch.dtype, quantization: str) -> Any:
    packed.register()
    config = AutoConfig.from_pretrained(str(folder))
    options = Target(CPU, dtype, quantization, packed.choose_attention(config)).options()
    model, _report = AutoModelForCausalLM.from_pretrained(str(folder), config=config, **options)
    freeze(model)
    return model


def tensors_of(model: Any) -> dict[str, torch.Tensor]:
    """Every parameter and buffer, persistent or not, and every tensor of a quantised weight's state."""
    tensors = dict(model.state_dict()) | dict(model.named_parameters()) | dict(model.named_buffers())
    for name, parameter in model.named_parameters():
        state = getattr(parameter, "quant_state", None)
        if state is not None:
            nested = state.state2
            tensors |= {f"{name}.{part}": getattr(state, part) for part in ("absmax", "code", "offset")}
            tensors |= {f"{name}.nested.{part}": getattr(nested, part) for part in ("absmax", "code")}
            tensors[f"{name}.words"] = torch.tensor([*state.shape, state.blocksize, nested.blocksize])
            assert state.quant_type == "nf4"
    return tensors


def assert_same_tensors(one: Any, other: Any) -> None:
    first, second = tensors_of(one), tensors_of(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert tensor.dtype == second[name].dtype, name
        assert tensor.device == second[name].device, name
        assert torch.equal(tensor, second[name]), name
    ids = torch.tensor([[3, 4, 5, 9]])
    with torch.no_grad():
        assert torch.equal(one(ids).logits, other(ids).logits)


def plain_attributes(value: Any) -> Any:
    """An object's comparable attributes: numbers, strings, dtypes and collections of them."""
    plain = (str, int, float, bool, type(None), torch.dtype, torch.device, list, tuple, dict, set)
    attributes = {name: repr(held) for name, held in vars(value).items() if isinstance(held, plain)}
    return {
        name: text
        for name, text in attributes.items()
        if not name.startswith("_modules") and " at 0x" not in text and "tensor(" not in text
    }


def assert_same_attributes(one: Any, other: Any) -> None:
    assert plain_attributes(one) == plain_attributes(other)
    assert one.config.to_dict() == other.config.to_dict()
    assert vars(one.generation_config).keys() == vars(other.generation_config).keys()
    assert one.generation_config.to_dict() == other.generation_config.to_dict()
    assert one.config.name_or_path == other.config.name_or_path
    assert one.config._attn_implementation == other.config._attn_implementation
    modules, others = dict(one.named_modules()), dict(other.named_modules())
    assert {name: type(module) for name, module in modules.items()} == {n: type(m) for n, m in others.items()}
    for name in modules:
        assert plain_attributes(modules[name]) == plain_attributes(others[name]), name
    for (name, parameter), (_, wanted) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert type(parameter) is type(wanted), name
        assert plain_attributes(parameter) == plain_attributes(wanted), name


def split(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    """The weights in two files with an index, in place of one."""
    names = sorted(weights)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in shards.items():
        save_file({name: weights[name] for name in held}, folder / file, metadata={"format": "pt"})
    index = {"weight_map": {name: file for file, held in shards.items() for name in held}, "metadata": {}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
