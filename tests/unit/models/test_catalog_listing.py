"""The catalogue's numbers against what the models' makers publish; the built-in model; folders of the cache."""

from pathlib import Path

import pytest
from hub_stand_in import COMMIT, tiny_model
from huggingface_hub import constants

from core.contract.catalogue import ModelSpec
from core.machine.locations import PRESETS
from core.models.catalog import catalogue, find_model, starter

PUBLISHED_MILLIONS = {
    "meta-llama/Llama-3.2-1B-Instruct": 1235.8,
    "meta-llama/Llama-3.2-3B-Instruct": 3212.7,
    "meta-llama/Llama-3.1-8B-Instruct": 8030.3,
    "meta-llama/Llama-3.3-70B-Instruct": 70553.7,
    "meta-llama/Llama-2-7b-chat-hf": 6738.4,
    "codellama/CodeLlama-34b-Instruct-hf": 33744.0,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1100.0,
    "mistralai/Mistral-7B-Instruct-v0.3": 7248.0,
    "mistralai/Mistral-Nemo-Instruct-2407": 12247.8,
    "HuggingFaceH4/zephyr-7b-beta": 7241.7,
    "Qwen/Qwen2.5-0.5B-Instruct": 494.0,
    "Qwen/Qwen2.5-1.5B-Instruct": 1543.7,
    "Qwen/Qwen2.5-7B-Instruct": 7615.6,
    "Qwen/Qwen3-0.6B": 596.0,
    "Qwen/Qwen3-1.7B": 1720.6,
    "Qwen/Qwen3-4B": 4022.5,
    "Qwen/Qwen3-8B": 8190.7,
    "Qwen/Qwen3-14B": 14768.3,
    "google/gemma-2-2b-it": 2614.3,
    "google/gemma-2-9b-it": 9241.7,
    "google/gemma-3-1b-it": 999.9,
    "microsoft/Phi-3.5-mini-instruct": 3821.1,
    "microsoft/Phi-4-mini-instruct": 3836.0,
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": 1711.4,
    "distilbert/distilbert-base-uncased": 66.4,
    "google-bert/bert-base-uncased": 109.5,
    "answerdotai/ModernBERT-base": 149.0,
    "FacebookAI/xlm-roberta-base": 278.0,
}
"""Unique weights in millions, as the model pages and reports give them; a tied head counts once."""


def test_entries_are_complete_plausible_and_go_from_small_to_large() -> None:
    models = catalogue()
    assert {spec.name for spec in models} == set(PUBLISHED_MILLIONS)
    assert len({spec.key for spec in models}) == len(list((PRESETS / "models").glob("*.yaml"))) == len(models)
    assert models == sorted(models, key=lambda spec: spec.shape.parameters)
    for spec in models:
        assert spec.shape.parameters / 1e6 == pytest.approx(PUBLISHED_MILLIONS[spec.name], rel=0.02)
        assert spec.licence, spec.key
        assert spec.about.endswith("."), spec.key
        # 16 bits a weight; small Qwen3 files hold their tied head twice. Encoders are published in 32 bits.
        usual = (4.0, 4.1) if spec.encoder else (2.0, 2.6)
        assert usual[0] <= spec.download_bytes / spec.shape.parameters <= usual[1], spec.key
        assert spec.name.count("/") == 1
    assert find_model("hub", "Qwen/Qwen3-0.6B").shape.num_hidden_layers == 28


@pytest.mark.parametrize("spec", {spec.model_type: spec for spec in catalogue()}.values(), ids=lambda s: s.model_type)
def test_the_shapes_are_what_transformers_itself_builds(spec: ModelSpec) -> None:
    """Counted on the meta device, for one model of each family."""
    torch = pytest.importorskip("torch")
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    shape = spec.shape.model_dump(exclude_none=True, exclude={"gated_mlp", "other_embeddings"})
    with torch.device("meta"):
        build = AutoModel if spec.encoder else AutoModelForCausalLM
        model = build.from_config(AutoConfig.for_model(spec.model_type, **shape, pad_token_id=0))
    # Biases, and BERT's pooler, are left out of the count.
    off = 0.01 if spec.encoder else 0.002
    assert spec.shape.parameters == pytest.approx(sum(one.numel() for one in set(model.parameters())), rel=off)


def test_a_cached_entry_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--Qwen--Qwen3-0.6B"
    folder = tiny_model(repository / "snapshots" / COMMIT, shards=2)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    entry = next(spec for spec in catalogue() if spec.name == "Qwen/Qwen3-0.6B")
    assert (entry.cached, entry.folder, entry.revision) == (True, str(folder), COMMIT)
    assert find_model("hub", "Qwen/Qwen3-0.6B").key == "qwen3-0.6b"
    (folder / "model-00001-of-00002.safetensors").unlink()
    assert not next(spec for spec in catalogue() if spec.name == "Qwen/Qwen3-0.6B").cached


def test_the_starter_is_whole_and_answers_turns() -> None:
    spec = starter()
    assert (spec.source, spec.name, spec.cached, spec.instruct) == ("starter", "starter", True, True)
    assert spec.download_bytes == 0
    assert find_model("starter", "starter") == spec
