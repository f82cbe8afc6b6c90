"""Finished weights by ranges of rows: any cut gives the same values, and what a run over NF4 was trained beside."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from peft import PeftModel
from safetensors.torch import load_file, save_file
from test_export_merge import make_adapter, make_base
from transformers import AutoModelForCausalLM

from core.contract.errors import ModelError
from core.contract.tasks import LEARNS
from core.export import sources, verify
from core.export.sources import Requantised
from core.export.weights import FinishedWeights, finished
from core.model.pissa import CORRECTED

DOWN = "model.layers.1.mlp.down_proj.weight"


def of(base: Path, adapter: Path, *more: Any) -> FinishedWeights:
    return finished(base, adapter, LEARNS["adapter"], *more)


@pytest.mark.parametrize(
    ("kind", "lora"),
    [
        ("llama", {"use_dora": True, "modules_to_save": ["lm_head"]}),
        ("gpt2", {"target_modules": ["c_attn"], "fan_in_fan_out": True, "use_dora": True}),
    ],
    ids=["dora", "dora conv1d"],
)
def test_blocks_of_any_size_are_pefts_own_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, lora: dict[str, Any]
) -> None:
    base = make_base(tmp_path / "base", kind, torch.float32)
    expected = make_adapter(base, tmp_path / "adapter", **lora)
    monkeypatch.setattr(sources, "MOST_ELEMENTS", 1000)
    weights = of(base, tmp_path / "adapter")
    for name, entry in weights.entries.items():
        wanted = expected[name if name in expected else f"transformer.{name}"]
        for most in (1, 700, 1 << 20):
            blocks = list(weights.blocks(name, most))
            assert all(block.dtype == torch.float32 for block in blocks)
            torch.testing.assert_close(torch.cat(blocks).view(entry.shape), wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weights.rows(name, 1, 3), torch.cat(blocks)[1:3])


@pytest.mark.parametrize("width", [128, 80], ids=["whole blocks", "blocks across rows"])
def test_what_was_trained_beside_is_what_bitsandbytes_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    base = make_base(tmp_path / "base", "llama", torch.float16, intermediate_size=width)
    make_adapter(base, tmp_path / "adapter")
    monkeypatch.setattr(sources, "MOST_ELEMENTS", 640)
    original, beside = of(base, tmp_path / "adapter"), of(base, tmp_path / "adapter", "trained_on", torch.bfloat16)
    weight = load_file(base / "model.safetensors")[DOWN].bfloat16()
    packed, state = quantize_4bit(weight.reshape(-1), compress_statistics=True, quant_type="nf4")
    held = dequantize_4bit(packed, state).view(weight.shape)
    pairs = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    named = "base_model.model." + DOWN.removesuffix(".weight")
    wanted = held.float() + 3 * pairs[f"{named}.lora_B.weight"] @ pairs[f"{named}.lora_A.weight"]
    found = torch.cat(list(beside.blocks(DOWN, 500)))
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(found, original.rows(DOWN), atol=1e-4)
    for name in ("lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"):
        assert torch.equal(beside.rows(name), original.rows(name))


def test_what_a_matrix_needs_goes_with_it(tmp_path: Path) -> None:
    """Scales of every block, kept for all matrices, were 0.9 GB of an 8B's: whatever the model, one is there."""
    base = make_base(tmp_path / "base", "llama", torch.float16)
    make_adapter(base, tmp_path / "adapter")
    weights = of(base, tmp_path / "adapter", "trained_on")
    for name in weights.entries:
        weights.rows(name)
        assert sum(isinstance(one, Requantised) for one in gc.get_objects()) <= 1


def test_a_correction_of_quantised_weights_counts_over_these_alone(tmp_path: Path) -> None:
    """LoftQ's adapter is saved as the change since its beginning: the second half takes that off."""
    base = make_base(tmp_path / "base", "llama", torch.bfloat16)
    make_adapter(base, tmp_path / "adapter", r=8, lora_alpha=8)
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    pairs = load_file(file)
    save_file(pairs, file, metadata={"format": "pt", CORRECTED: "true"})
    named = "base_model.model." + DOWN.removesuffix(".weight")
    a, b = pairs[f"{named}.lora_A.weight"], pairs[f"{named}.lora_B.weight"]
    weight = load_file(base / "model.safetensors")[DOWN].float()
    torch.testing.assert_close(of(base, tmp_path / "adapter").rows(DOWN), weight + b @ a)
    packed, state = quantize_4bit(weight.bfloat16(), compress_statistics=True, quant_type="nf4")
    held = dequantize_4bit(packed, state).float()
    found = of(base, tmp_path / "adapter", "trained_on").rows(DOWN)
    torch.testing.assert_close(found, held + b[:, :4] @ a[:4])


@pytest.mark.parametrize("lora", [{}, {"use_dora": True}], ids=["lora", "dora"])
def test_the_check_of_them_holds_each_matrix_as_bitsandbytes_does(tmp_path: Path, lora: dict[str, Any]) -> None:
    """Plain peft over matrices in 4 bits, with the correction that an adapter began at, gives what is merged."""
    base = make_base(tmp_path / "base", "llama", torch.float32)
    make_adapter(base, tmp_path / "adapter", r=8, lora_alpha=8, target_modules=["q_proj", "up_proj"], **lora)
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file(load_file(file), file, metadata={"format": "pt", CORRECTED: "true"})
    weights = of(base, tmp_path / "adapter", "trained_on", torch.bfloat16)
    ids = torch.arange(30)[None]
    held, merged = (AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval() for _ in range(2))
    merged.load_state_dict({name: weights.rows(name) for name in weights.entries})
    adapted = PeftModel.from_pretrained(held, str(tmp_path / "adapter")).eval()
    verify._hold_in_four_bits(
        adapted, {"held": "bfloat16", "trained": str(tmp_path / "adapter"), "corrected": CORRECTED}
    )
    with torch.inference_mode():
        torch.testing.assert_close(adapted(ids).logits, merged(ids).logits, rtol=1e-4, atol=1e-5)


def test_what_is_no_number_of_torch_or_cut_short_is_said(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base", "llama", torch.bfloat16)
    make_adapter(base, tmp_path / "adapter")
    weights = of(base, tmp_path / "adapter")
    file = base / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    with pytest.raises(ModelError) as caught:
        list(map(weights.rows, weights.entries))
    assert caught.value.code == "model.truncated"
    file.write_bytes(whole.replace(b'"BF16"', b'"U16" '))
    with pytest.raises(ModelError, match="U16") as caught:
        of(base, tmp_path / "adapter")
    assert caught.value.code == "export.dtype"
