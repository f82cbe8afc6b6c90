"""The cache of quantised weights: the same bits, never a stale or a bad entry, and room for others on the disk."""

from __future__ import annotations

import json
import os
import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from loading_cases import FAMILIES, assert_same_tensors, by_transformers, plain_attributes, split
from model_tiny import save_tiny

from core.contract.config import LoraChoice, ModelChoice
from core.model.adapters import add_adapter
from core.model.loading import weight_cache
from core.model.loading.load import load_base

CPU = torch.device("cpu")
NF4 = ModelChoice(quantization="nf4", dtype="bfloat16")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that keeps models of any size."""
    monkeypatch.setattr(weight_cache, "LEAST_BYTES", 0)
    monkeypatch.setattr(weight_cache, "SPARED_BYTES", 0)
    return tmp_path / "cache"


def entries(cache: Path) -> list[Path]:
    return sorted((cache / "nf4").iterdir())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_second_load_reads_quantised_weights_of_the_same_bits(family: str, tmp_path: Path, cache: Path) -> None:
    folder = save_tiny(tmp_path / "model", family, **FAMILIES[family])
    first = load_base(folder, NF4, CPU, cache=cache)
    assert "kept quantised for the next time" in first.line
    told: list[tuple[int, int]] = []
    second = load_base(folder, NF4, CPU, lambda done, total: told.append((done, total)), cache=cache)
    assert "already quantised" in second.line
    assert told[-1][0] == told[-1][1] < sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    fresh = load_base(folder, NF4, CPU)
    assert_same_tensors(second.model, fresh.model)
    assert second.model.is_loaded_in_4bit
    attributes, wanted_attributes = plain_attributes(second.model), plain_attributes(fresh.model)
    # transformers notes how it read a checkpoint; from quantised weights that is another way
    assert attributes.pop("_weight_conversions") != wanted_attributes.pop("_weight_conversions") == "[]"
    assert attributes == wanted_attributes
    assert second.model.config.to_dict() == fresh.model.config.to_dict()
    assert second.model.generation_config.to_dict() == fresh.model.generation_config.to_dict()
    modules, wanted = dict(second.model.named_modules()), dict(fresh.model.named_modules())
    assert {name: type(module) for name, module in modules.items()} == {n: type(m) for n, m in wanted.items()}
    for (name, parameter), (_, other) in zip(
        second.model.named_parameters(), fresh.model.named_parameters(), strict=True
    ):
        assert type(parameter) is type(other), name
        assert plain_attributes(parameter) == plain_attributes(other), name
    tied = FAMILIES[family].get("tie_word_embeddings", False)
    assert (second.model.lm_head.weight is second.model.model.embed_tokens.weight) == tied


def test_streamed_cached_and_transformers_own_train_alike(tmp_path: Path, cache: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    streamed, cached = (load_base(folder, NF4, CPU, cache=cache) for _ in range(2))
    assert "already quantised" in cached.line
    ids, gradients = torch.arange(12)[None], []
    for base in (streamed.model, cached.model, by_transformers(folder, torch.bfloat16, "nf4")):
        model = add_adapter(base, LoraChoice(r=4, lora_alpha=8), 1)
        model(input_ids=ids, labels=ids).loss.backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None and p.grad.any()})
    assert gradients[0]
    for other in gradients[1:]:
        assert gradients[0].keys() == other.keys()
        assert all(torch.equal(gradients[0][name], other[name]) for name in other)


def test_another_dtype_has_an_entry_of_its_own(tmp_path: Path, cache: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    load_base(folder, NF4, CPU, cache=cache)
    wide = ModelChoice(quantization="nf4", dtype="float32")
    assert "kept" in load_base(folder, wide, CPU, cache=cache).line
    assert len(entries(cache)) == 2
    assert_same_tensors(load_base(folder, wide, CPU, cache=cache).model, load_base(folder, wide, CPU).model)


def test_a_changed_model_is_read_anew_and_its_old_entry_goes(tmp_path: Path, cache: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    load_base(folder, NF4, CPU, cache=cache)
    (old,) = entries(cache)
    os.utime(folder / "model.safetensors", ns=(1, 1))  # same size, other time: it may hold other numbers
    assert "already" not in load_base(folder, NF4, CPU, cache=cache).line
    (new,) = entries(cache)
    assert new != old
    save_tiny(folder, seed=5)
    changed = load_base(folder, NF4, CPU, cache=cache)
    assert "already" not in changed.line
    assert_same_tensors(load_base(folder, NF4, CPU, cache=cache).model, changed.model)
    assert len(entries(cache)) == 1


def change_header(place: Path) -> None:
    weights = place / "weights.safetensors"
    weights.write_bytes(weights.read_bytes().replace(b"lm_head", b"lm_hEad", 1))


def hold_other_names(place: Path) -> None:
    """As its manifest says, and yet not this model."""
    change_header(place)
    said = json.loads((place / "manifest.json").read_text())
    said["header_sha256"] = weight_cache._header_hash(place / "weights.safetensors")
    (place / "manifest.json").write_text(json.dumps(said))


SPOILED: dict[str, Callable[[Path], object]] = {
    "cut": lambda place: os.truncate(place / "weights.safetensors", 5000),
    "another header": change_header,
    "no manifest": lambda place: (place / "manifest.json").unlink(),
    "half a manifest": lambda place: (place / "manifest.json").write_text("{"),
    "no weights": lambda place: (place / "weights.safetensors").unlink(),
    "other names": hold_other_names,
}


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any]:
    """A model's folder, a cache with its entry, and the model as it is loaded without one."""
    place = tmp_path_factory.mktemp("cached")
    folder = save_tiny(place / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weight_cache, "LEAST_BYTES", 0)
        patch.setattr(weight_cache, "SPARED_BYTES", 0)
        load_base(folder, NF4, CPU, cache=place / "cache")
    return folder, place / "cache", load_base(folder, NF4, CPU).model


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_bad_entry_is_ignored_and_replaced(spoil: str, cache: Path, cached: tuple[Path, Path, Any]) -> None:
    folder, sound, model = cached
    shutil.copytree(sound, cache)
    assert "already quantised" in load_base(folder, NF4, CPU, cache=cache).line
    (place,) = entries(cache)
    SPOILED[spoil](place)
    again = load_base(folder, NF4, CPU, cache=cache)
    assert "kept quantised" in again.line
    assert_same_tensors(again.model, model)
    assert "already quantised" in load_base(folder, NF4, CPU, cache=cache).line


def test_shards_through_links_are_known_by_what_they_lead_to(tmp_path: Path, cache: Path) -> None:
    from safetensors.torch import load_file

    folder = save_tiny(tmp_path / "blobs")
    split(folder, load_file(folder / "model.safetensors"))
    linked = tmp_path / "snapshot"
    linked.mkdir()
    for path in folder.iterdir():
        (linked / path.name).symlink_to(path)
    load_base(linked, NF4, CPU, cache=cache)
    assert "already quantised" in load_base(linked, NF4, CPU, cache=cache).line
    os.utime(folder / "model-00002-of-00002.safetensors", ns=(1, 1))
    assert "already quantised" not in load_base(linked, NF4, CPU, cache=cache).line


def test_small_models_sixteen_bits_and_names_that_transformers_changes_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cache = save_tiny(tmp_path / "model"), tmp_path / "cache"
    load_base(folder, NF4, CPU, cache=cache)
    monkeypatch.setattr(weight_cache, "LEAST_BYTES", 0)
    monkeypatch.setattr(weight_cache, "SPARED_BYTES", 0)
    load_base(folder, ModelChoice(quantization="none", dtype="float32"), CPU, cache=cache)
    experts = save_tiny(tmp_path / "experts", "mixtral", num_local_experts=4)
    assert "kept" not in load_base(experts, NF4, CPU, cache=cache).line
    assert not cache.exists()


def test_a_full_disk_keeps_nothing_and_stops_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_tiny(tmp_path / "model")
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _path: usage(10**6, 10**6, 1000))
        assert "too little room" in load_base(folder, NF4, CPU, cache=cache).line

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(weight_cache, "make_durable", full)
    assert "No space left" in load_base(folder, NF4, CPU, cache=cache).line
    assert entries(cache) == []


def test_size_and_clearing(tmp_path: Path, cache: Path) -> None:
    assert weight_cache.cached_bytes(cache) == 0
    load_base(save_tiny(tmp_path / "model"), NF4, CPU, cache=cache)
    size = weight_cache.cached_bytes(cache)
    assert size > 40_000
    assert weight_cache.clear(cache) == size
    assert weight_cache.cached_bytes(cache) == 0
