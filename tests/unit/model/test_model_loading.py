"""Loading: 4 bits and 16, frozen, said plainly when it cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from model_tiny import build, save_tiny
from safetensors.torch import load_file, save_file

from core.contract.config import ModelChoice
from core.contract.errors import ModelError
from core.model.loading.load import load_base, resolve_dtype

CPU = torch.device("cpu")
PLAIN = ModelChoice(quantization="none", dtype="float32")
NF4 = ModelChoice(quantization="nf4", dtype="float32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


def test_sixteen_bit_weights_come_as_they_lie(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    loaded = load_base(folder, PLAIN, CPU, lambda done, total: told.append((done, total)))
    torch.testing.assert_close(loaded.model.state_dict(), build("llama").state_dict(), rtol=0, atol=0)
    assert loaded.dtype == torch.float32
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.model.config.use_cache is False
    assert loaded.model.config._attn_implementation == "luthier_packed"
    assert loaded.model.name_or_path == str(folder)
    hub = ModelChoice(source="hub", name="someone/tiny", quantization="none", dtype="float32")
    assert load_base(folder, hub, CPU).model.name_or_path == "someone/tiny"
    assert told
    assert told[-1][0] == told[-1][1] > 0


def test_nf4_is_double_quantised_and_never_repacked(folder: Path) -> None:
    model = load_base(folder, NF4, CPU).model
    linears = [module for module in model.modules() if isinstance(module, Linear4bit)]
    assert len(linears) == 14
    assert all(linear.weight.quant_state.nested for linear in linears)
    assert all(linear.weight.quant_state.quant_type == "nf4" for linear in linears)
    assert not isinstance(model.lm_head, Linear4bit)
    assert all(linear.support_avx512bf16_for_cpu is False for linear in linears)
    stored = linears[0].weight.data.clone()
    with torch.no_grad():
        model.eval()(torch.tensor([[3, 4, 5]]))
    assert torch.equal(linears[0].weight.data, stored)


def test_the_tokenizer_gets_padding_without_new_tokens(folder: Path) -> None:
    loaded = load_base(folder, PLAIN, CPU)
    assert loaded.tokenizer.pad_token == "</s>"
    assert len(loaded.tokenizer) <= loaded.model.config.vocab_size
    batch = loaded.tokenizer(["w1 w2 w3", "w4"], padding=True)
    assert batch["attention_mask"][1] == [1, 0, 0]


def test_a_missing_weight_is_refused_not_drawn_at_random(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "cut")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 missing.*up_proj"):
        load_base(folder, PLAIN, CPU)


def test_a_folder_without_config_or_safetensors_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json") as error:
        load_base(tmp_path, PLAIN, CPU)
    assert "\n" not in str(error.value)
    folder = save_tiny(tmp_path / "bare")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="safetensors") as error:
        load_base(folder, PLAIN, CPU)
    assert "\n" not in str(error.value)


def test_a_fault_of_the_card_is_not_called_a_bad_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object, **__: object) -> object:
        raise RuntimeError(said)

    monkeypatch.setattr("core.model.loading.weights.assemble", fault)
    said = "CUDA error: unspecified launch failure"
    with pytest.raises(RuntimeError, match="CUDA error"):
        load_base(folder, PLAIN, CPU)
    said = "size mismatch"
    with pytest.raises(ModelError, match="size mismatch"):
        load_base(folder, PLAIN, CPU)


def test_remote_code_is_never_run(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "remote")
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "own_thing"
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(ModelError):
        load_base(folder, PLAIN, CPU)


def test_dtype_words() -> None:
    assert resolve_dtype("auto", CPU) == torch.float32
    assert resolve_dtype("float16", CPU) == torch.float16
