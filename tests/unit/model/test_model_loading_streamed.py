"""Streamed loading gives what transformers gives, bit for bit and mark for mark; what it cannot serve it leaves."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from loading_cases import FAMILIES, assert_same_attributes, assert_same_tensors, by_transformers, split
from model_tiny import save_tiny
from safetensors.torch import load_file, save_file

from core.contract.config import ModelChoice
from core.contract.errors import ModelError
from core.machine.children.shared_memory import NAME, SharedMemory
from core.model.loading import tensor_stream
from core.model.loading.load import load_base
from core.model.loading.tensor_stream import TensorStream
from core.model.streaming.host_pages import HostPages

CPU = torch.device("cpu")
NF4 = ModelChoice(quantization="nf4", dtype="float32")
CASES = [
    pytest.param(family, dtype, form, marks=() if (dtype == "float32") == (form == "nf4") else pytest.mark.slow)
    for family in FAMILIES for dtype in ("float32", "bfloat16") for form in ("nf4", "none")
]  # fmt: skip
"""Each dtype with one form of weights by default."""


@pytest.mark.parametrize(("family", "dtype", "quantization"), CASES)
def test_streamed_is_transformers_own(family: str, dtype: str, quantization: str, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model", family, **FAMILIES[family])
    choice = ModelChoice(quantization=quantization, dtype=dtype)
    loaded = load_base(folder, choice, CPU)
    assert loaded.line.startswith("weights: 0.0 GB read in")
    wanted = by_transformers(folder, getattr(torch, dtype), quantization)
    wanted.name_or_path = str(folder)
    assert_same_tensors(loaded.model, wanted)
    assert_same_attributes(loaded.model, wanted)
    if quantization == "nf4":
        assert loaded.model.is_loaded_in_4bit
        assert str(loaded.model.quantization_method) == str(wanted.quantization_method)
        assert vars(loaded.model.hf_quantizer).keys() == vars(wanted.hf_quantizer).keys()
        assert not loaded.model.hf_quantizer.pre_quantized
    tied = FAMILIES[family].get("tie_word_embeddings", False)
    assert (loaded.model.lm_head.weight is loaded.model.model.embed_tokens.weight) == tied


def test_shards_of_other_dtypes_and_small_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_stream, "CHUNK_BYTES", 1000)
    folder = save_tiny(tmp_path / "model")
    weights = {name: tensor.to(torch.float16) for name, tensor in load_file(folder / "model.safetensors").items()}
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)  # old checkpoints hold it; nobody asks
    split(folder, weights)
    loaded = load_base(folder, NF4, CPU)
    assert "read in" in loaded.line
    assert_same_tensors(loaded.model, by_transformers(folder, torch.float32, "nf4"))


def test_names_that_transformers_changes_while_loading(tmp_path: Path) -> None:
    """A bare decoder's, and experts that it joins."""
    folder = save_tiny(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
    save_file(bare, folder / "model.safetensors", metadata={"format": "pt"})
    experts = save_tiny(tmp_path / "experts", "mixtral", num_local_experts=4)
    assert "block_sparse_moe.experts.3.w2" in " ".join(load_file(experts / "model.safetensors"))
    for place in (folder, experts):
        assert_same_tensors(load_base(place, NF4, CPU).model, by_transformers(place, torch.float32, "nf4"))


def test_what_cannot_be_streamed_is_left_to_transformers_and_said(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"transformers_weights": "weights.safetensors"}))
    told: list[tuple[int, int]] = []
    loaded = load_base(folder, NF4, CPU, lambda done, total: told.append((done, total)))
    assert loaded.line == "weights: read by transformers, since the folder holds more than one model's weights"
    assert told[-1][0] == told[-1][1] == (folder / "weights.safetensors").stat().st_size
    assert_same_tensors(loaded.model, by_transformers(folder, torch.float32, "nf4"))


def test_progress_counts_bytes_and_may_end_the_loading(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    told: list[tuple[int, int]] = []
    load_base(folder, NF4, CPU, lambda done, total: told.append((done, total)))
    size = sum(tensor.nbytes for tensor in load_file(folder / "model.safetensors").values())
    assert told[-1] == (size, size)
    assert told == sorted(told)
    assert len({done for done, _ in told}) > 10

    class Leave(BaseException):
        pass

    def leave(_done: int, _total: int) -> None:
        raise Leave

    with pytest.raises(Leave):
        load_base(folder, NF4, CPU, leave)


def test_a_file_that_shrinks_while_it_is_read_or_was_cut_before_is_named(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    whole = (folder / "model.safetensors").read_bytes()
    with TensorStream([folder / "model.safetensors"], CPU) as stream:
        with (folder / "model.safetensors").open("rb+") as file:
            file.truncate(2000)
        with pytest.raises(ModelError, match="end"):
            stream.entries["lm_head.weight"][...]
    (folder / "model.safetensors").write_bytes(whole[:-10])
    with pytest.raises(ModelError, match="cut short"):
        load_base(folder, NF4, CPU)


class FakeEvent:
    """A copy that is under way until somebody waits for it: a buffer filled again before that is a fault."""

    def __init__(self) -> None:
        self.pending, self.waits = False, 0

    def query(self) -> bool:
        return not self.pending

    def record(self) -> None:
        assert not self.pending
        self.pending = True

    def synchronize(self) -> None:
        self.pending, self.waits = False, self.waits + 1


@pytest.mark.parametrize(("chunk", "buffers"), [(256, 1), (1000, 7), (10**6, 2)])
def test_the_way_through_pinned_buffers(
    chunk: int, buffers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_tiny(tmp_path / "model")
    made: list[Any] = []

    def pinned() -> Any:
        made.append(tensor_stream._Buffer(torch.empty(chunk, dtype=torch.uint8), FakeEvent()))
        return made[-1]

    monkeypatch.setattr(tensor_stream, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(tensor_stream, "BUFFERS", buffers)
    monkeypatch.setattr(tensor_stream, "_pinned", pinned)
    monkeypatch.setattr(torch.cuda, "device", lambda _device: nullcontext())
    wanted = load_file(folder / "model.safetensors")
    with TensorStream([folder / "model.safetensors"], CPU) as stream:
        for name, entry in stream.entries.items():
            flat = torch.zeros(entry.bytes, dtype=torch.uint8)
            stream._fetch(entry, flat)
            assert torch.equal(flat.view(torch.float32).view(entry.shape), wanted[name]), name
        with (folder / "model.safetensors").open("rb+") as file:
            file.truncate(2000)
        with pytest.raises(ModelError, match="end"):
            stream._fetch(entry, flat)
    assert len(made) == buffers
    assert sum(buffer.event.waits for buffer in made) >= len(wanted) - buffers


def test_shared_memory_is_unpinned_before_it_is_unmapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA is told of pages that are there still, and only when the last tensor of them is gone."""

    def mapped(address: int) -> bool:
        lines = (line.split() for line in Path("/proc/self/maps").read_text().splitlines() if NAME in line)
        spans = ([int(end, 16) for end in line[0].split("-")] for line in lines)
        return any(first <= address < last for first, last in spans)

    told: list[tuple[int, bool]] = []
    runtime = SimpleNamespace(
        cudaHostRegister=lambda *_: 0, cudaHostUnregister=lambda address: told.append((address, mapped(address)))
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    shared = SharedMemory.made()
    assert shared is not None
    pages = HostPages(pin=True, shared=shared)
    part = pages.span(512).parts[0]
    address = part.data_ptr()
    del pages
    assert (told, mapped(address)) == ([], True)
    del part
    assert (told, mapped(address)) == ([(address, True)], False)
    shared.close()
