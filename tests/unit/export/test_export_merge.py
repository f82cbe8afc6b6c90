"""Merged weights against peft's own merge: LoRA, rank-stabilised, DoRA, biases, Conv1D, tied heads, shards."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from core.contract.errors import ModelError
from core.contract.tasks import LEARNS
from core.export.changes import read_changes
from core.export.forms import merge
from core.export.forms.merge import write_weights
from core.export.weights import finished, merged_bytes, written_dtype
from core.machine.locations import REPOSITORY
from core.model.loading.tensor_stream import header_of

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 64}  # fmt: skip


def make_base(folder: Path, kind: str, dtype: torch.dtype, **extra: Any) -> Path:
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(5)
    model: Any
    if kind == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=96, n_positions=64))
    elif kind == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**SIZES, **extra))
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter)
    else:
        model = LlamaForCausalLM(LlamaConfig(**{**SIZES, **extra}))
    model.to(dtype).save_pretrained(folder)
    return folder


def make_adapter(base: Path, folder: Path, **lora: Any) -> dict[str, torch.Tensor]:
    """Saves an adapter with random B (and moved magnitudes and biases); gives peft's own float32 merge."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    lora = {"r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM", **lora}
    adapted = get_peft_model(model, LoraConfig(init_lora_weights=False, **lora))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if parameter.requires_grad and ("magnitude" in name or name.endswith("bias") or "modules_to_save" in name):
                parameter.mul_(1 + 0.3 * torch.rand_like(parameter)).add_(0.05)
    adapted.save_pretrained(str(folder), save_embedding_layers=False)
    return {name: tensor.detach().clone() for name, tensor in adapted.merge_and_unload().state_dict().items()}


def merge_weights(base: Path, adapter: Path, out: Path, on_tensor: Any, check: Any) -> torch.dtype:
    write_weights(finished(base, adapter, LEARNS["adapter"]), out, on_tensor, check)
    return written_dtype(base)


def merged_as_peft(base: Path, adapter: Path, out: Path, expected: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    out.mkdir()
    dtype = merge_weights(base, adapter, out, lambda done, total: None, lambda: None)
    merged = {name: tensor for file in out.glob("*.safetensors") for name, tensor in load_file(file).items()}
    assert merged.keys() == {name for file in base.glob("model*.safetensors") for name in load_file(file)}
    for name, tensor in merged.items():
        wanted = expected[name if name in expected else f"transformer.{name}"]
        assert tensor.dtype == dtype
        # One rounding to 16 bits of the same float32 sum: half a unit in the last place, and sums may differ in order.
        torch.testing.assert_close(tensor.float(), wanted, rtol=2**-8, atol=1e-6)
    return merged


@pytest.mark.parametrize(
    ("kind", "extra", "lora"),
    [
        ("llama", {}, {}),
        ("llama", {"tie_word_embeddings": True}, {"use_rslora": True, "r": 16}),
        ("llama", {}, {"use_dora": True}),
        ("qwen2", {}, {"bias": "lora_only"}),
        ("gpt2", {}, {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True}),
        ("llama", {}, {"modules_to_save": ["embed_tokens", "lm_head"]}),
        ("llama", {"tie_word_embeddings": True}, {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}),
    ],
    ids=["lora", "rslora tied", "dora", "biases", "conv1d", "embeddings", "embeddings tied"],
)
def test_equal_to_pefts_own_merge(tmp_path: Path, kind: str, extra: dict[str, Any], lora: dict[str, Any]) -> None:
    base = make_base(tmp_path / "base", kind, torch.bfloat16, **extra)
    expected = make_adapter(base, tmp_path / "adapter", **lora)
    merged = merged_as_peft(base, tmp_path / "adapter", tmp_path / "out", expected)
    before = {name: tensor for file in base.glob("*.safetensors") for name, tensor in load_file(file).items()}
    changed = {name for name in merged if not torch.equal(merged[name], before[name])}
    asked = lora.get("target_modules", ["q_proj", "down_proj"])
    ends = {name.rpartition(".")[2] for name in lora.get("modules_to_save", [])}
    assert {name.split(".")[-2] for name in changed} == {*asked, *ends}
    assert ("lm_head.weight" in merged) == ("lm_head.weight" in before)


def test_a_float32_base_becomes_bfloat16_and_a_float16_base_stays(tmp_path: Path) -> None:
    for name, held, written in (("a", torch.float32, torch.bfloat16), ("b", torch.float16, torch.float16)):
        base = make_base(tmp_path / f"base-{name}", "llama", held)
        make_adapter(base, tmp_path / f"adapter-{name}")
        out = tmp_path / f"out-{name}"
        out.mkdir()
        assert merge_weights(base, tmp_path / f"adapter-{name}", out, lambda *_: None, lambda: None) == written
        assert {tensor.dtype for tensor in load_file(out / "model.safetensors").values()} == {written}
        size = sum(tensor.nbytes for tensor in load_file(out / "model.safetensors").values())
        assert size == merged_bytes(base)


def test_shards_have_an_index_that_transformers_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM

    monkeypatch.setattr(merge, "SHARD_BYTES", 60_000)
    base = make_base(tmp_path / "base", "llama", torch.bfloat16)
    expected = make_adapter(base, tmp_path / "adapter")
    merged_as_peft(base, tmp_path / "adapter", tmp_path / "out", expected)
    files = sorted(path.name for path in (tmp_path / "out").glob("*.safetensors"))
    assert len(files) > 2
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    (tmp_path / "out" / "config.json").write_bytes((base / "config.json").read_bytes())
    loaded, report = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    name = "model.layers.1.mlp.down_proj.weight"
    torch.testing.assert_close(loaded.state_dict()[name].float(), expected[name], rtol=2**-8, atol=1e-6)


def test_other_safetensors_beside_an_indexed_model_are_left_alone(tmp_path: Path) -> None:
    """Some repositories carry the same weights a second time (consolidated.safetensors)."""
    base = make_base(tmp_path / "base", "llama", torch.bfloat16)
    expected = make_adapter(base, tmp_path / "adapter")
    tensors = load_file(base / "model.safetensors")
    (base / "model.safetensors").rename(base / "model-00001-of-00001.safetensors")
    index = {"weight_map": dict.fromkeys(tensors, "model-00001-of-00001.safetensors")}
    (base / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    save_file({"tok_embeddings.weight": torch.zeros(4, 4)}, base / "consolidated.safetensors")
    assert "tok_embeddings.weight" not in merged_as_peft(base, tmp_path / "adapter", tmp_path / "out", expected)


def test_an_adapter_of_another_model_is_refused_in_one_line(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base", "llama", torch.bfloat16)
    narrow = make_base(tmp_path / "narrow", "llama", torch.bfloat16, head_dim=32)
    short = tmp_path / "short"
    make_base(short, "qwen2", torch.bfloat16)
    make_adapter(narrow, tmp_path / "adapter-narrow")
    make_adapter(short, tmp_path / "adapter-short", bias="lora_only")
    for name, words in (("narrow", "of shape"), ("short", "no such tensor")):
        with pytest.raises(ModelError, match=words) as caught:
            merge_weights(base, tmp_path / f"adapter-{name}", tmp_path, lambda *_: None, lambda: None)
        assert caught.value.code == "export.mismatch"
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("lora", [{"rank_pattern": {"q_proj": 2}}, {"lora_bias": True}], ids=str)
def test_what_cannot_be_merged_is_refused(tmp_path: Path, lora: dict[str, Any]) -> None:
    base = make_base(tmp_path / "base", "qwen2", torch.bfloat16)
    lora = {"target_modules": ["q_proj"], **lora}
    make_adapter(base, tmp_path / "adapter", **lora)
    with pytest.raises(ModelError, match="cannot be merged") as caught:
        read_changes(tmp_path / "adapter")
    assert caught.value.code == "export.unknown_part"


def cut_off(base: Path, adapter: Path, out: Path, tensors: int, made_of: str = "this") -> int:
    """A merge that dies behind so many tensors (-1); else returns how many were computed."""
    told, blocks = list[int](), 0

    def check() -> None:
        nonlocal blocks
        blocks += 1
        if told[-1:] == [tensors]:
            raise KeyboardInterrupt

    out.mkdir(exist_ok=True)
    weights = finished(base, adapter, LEARNS["adapter"])
    try:
        write_weights(weights, out, lambda done, _: told.append(done), check, made_of)
    except KeyboardInterrupt:
        return -1
    return blocks


def test_a_merge_that_was_cut_off_goes_on_from_the_tensors_that_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "SHARD_BYTES", 60_000)
    base = make_base(tmp_path / "base", "llama", torch.bfloat16)
    make_adapter(base, tmp_path / "adapter")
    adapter, whole, out = tmp_path / "adapter", tmp_path / "whole", tmp_path / "out"
    total = cut_off(base, adapter, whole, -1)
    wanted = {path.name: path.read_bytes() for path in whole.iterdir()}
    assert merge.WRITTEN not in wanted
    for tensors in (8, 12):
        assert cut_off(base, adapter, out, tensors) == -1
    newest = max(out.glob("*.safetensors"), key=lambda path: path.name)
    newest.write_bytes(newest.read_bytes() + b"half of a tensor")
    assert not merge.goes_on(out, "another checkpoint")
    assert merge.goes_on(out, "this")
    shutil.copytree(out, tmp_path / "power")
    assert cut_off(base, adapter, out, -1) == total - 12
    assert {path.name: path.read_bytes() for path in out.iterdir()} == wanted
    # Since another start of the machine only synced files count.
    monkeypatch.setattr(merge, "_boot", lambda: "another")
    newest = max((tmp_path / "power").glob("*.safetensors"), key=lambda path: path.name)
    newest.write_bytes(bytes(newest.stat().st_size))
    assert total - 12 < cut_off(base, adapter, tmp_path / "power", -1) < total
    assert {path.name: path.read_bytes() for path in (tmp_path / "power").iterdir()} == wanted
    # Another checkpoint's is made anew.
    assert cut_off(base, adapter, tmp_path / "other", 5) == -1
    assert cut_off(base, adapter, tmp_path / "other", -1, "that") == total


def test_it_stops_between_tensors(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base", "llama", torch.bfloat16)
    make_adapter(base, tmp_path / "adapter")
    told: list[tuple[int, int]] = []

    def check() -> None:
        if len(told) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge_weights(base, tmp_path / "adapter", tmp_path, lambda *done: told.append(done), check)
    assert told == [(1, told[0][1]), (2, told[0][1]), (3, told[0][1])]


MEASURED = """
import resource, sys
from pathlib import Path
from core.contract.tasks import LEARNS
from core.export.forms.merge import write_weights
from core.export.weights import finished
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, (base, adapter, out, weights) = peak(), sys.argv[1:]
Path(out).mkdir()
write_weights(finished(Path(base), Path(adapter), LEARNS["adapter"], weights), Path(out), lambda *_: None, lambda: None)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["original", "trained_on"])
def test_memory_is_a_few_blocks_however_large_a_tensor(tmp_path: Path, weights: str) -> None:
    """A matrix of 400 MB in 16 bits, of zeros that take no room on the disk."""
    name, shape = "model.layers.0.mlp.down_proj.weight", (8192, 24576)
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    base.mkdir()
    adapter.mkdir()
    (base / "config.json").write_text('{"model_type": "llama"}')
    header = header_of([(name, torch.bfloat16, shape)])
    with (base / "model.safetensors").open("wb") as file:
        file.write(header)
        file.truncate(len(header) + 2 * 8192 * 24576)
    half = f"base_model.model.{name.removesuffix('.weight')}.lora_"
    pair = {f"{half}A.weight": torch.ones(8, shape[1]), f"{half}B.weight": torch.ones(shape[0], 8)}
    save_file(pair, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text('{"r": 8, "lora_alpha": 8}')
    command = [sys.executable, "-c", MEASURED, str(base), str(adapter), str(tmp_path / "out"), weights]
    told = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert int(told) < 300 << 20
