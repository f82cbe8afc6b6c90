"""Encoders of the BERT kind as models that a person can choose: folders of every family as transformers writes them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from encoder_cases import encoder_folder
from hub_stand_in import COMMIT
from huggingface_hub import constants

from core.contract.config import LoraChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.errors import ModelError
from core.contract.methods import METHODS, Method
from core.contract.tasks import LEARNS, TASKS, LearnsName
from core.models.catalog import cached_models, catalogue, find_model
from core.models.checks.folder import check_config, check_folder, read_shape
from core.models.encoders import ENCODERS
from core.models.families import FAMILIES
from core.models.hub import client
from core.models.suited import has_class, suited, unsuited

PUBLISHED: dict[str, dict[str, Any]] = {
    "distilbert-base": {
        "model_type": "distilbert", "dim": 768, "hidden_dim": 3072, "n_heads": 12, "n_layers": 6, "vocab_size": 30522,
        "max_position_embeddings": 512, "pad_token_id": 0,
    },
    "bert-base": {
        "model_type": "bert", "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
        "num_hidden_layers": 12, "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2,
    },
    "modernbert-base": {
        "model_type": "modernbert", "hidden_size": 768, "intermediate_size": 1152, "num_attention_heads": 12,
        "num_hidden_layers": 22, "vocab_size": 50368, "max_position_embeddings": 8192, "local_attention": 128,
    },
    "xlm-roberta-base": {
        "model_type": "xlm-roberta", "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
        "num_hidden_layers": 12, "vocab_size": 250002, "max_position_embeddings": 514, "type_vocab_size": 1,
        "pad_token_id": 1,
    },
}  # fmt: skip
"""The sizes of the models' own config.json."""


@pytest.mark.parametrize("family", ENCODERS)
@pytest.mark.parametrize("form", ["AutoModelForMaskedLM", "AutoModelForSequenceClassification", "AutoModel"])
def test_every_family_is_described_whatever_head_its_file_has(family: str, form: str, tmp_path: Path) -> None:
    folder = encoder_folder(tmp_path / "it", family, form)
    check_folder(folder)
    spec = find_model("folder", str(folder))
    assert spec.encoder
    assert not spec.instruct
    sizes = spec.shape.model_dump(include={"hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"})
    assert sizes == {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "head_dim": 8}
    # RoBERTa's positions begin after the padding's id.
    assert spec.shape.max_position_embeddings == (39 if ENCODERS[family].after_padding else 40)
    path = folder / "config.json"
    path.write_text(json.dumps({name: value for name, value in json.loads(path.read_text()).items()
                                if name != "architectures"}))  # fmt: skip
    check_folder(folder)


@pytest.mark.parametrize("key", PUBLISHED)
def test_the_catalogue_has_the_sizes_of_the_published_config(key: str) -> None:
    spec = next(spec for spec in catalogue() if spec.key == key)
    assert spec.encoder
    assert spec.shape == read_shape(PUBLISHED[key])


def test_distances_of_deberta_are_embeddings_too() -> None:
    small = {
        "model_type": "deberta-v2", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 6,
        "num_attention_heads": 12, "vocab_size": 128100, "max_position_embeddings": 512, "type_vocab_size": 0,
        "relative_attention": True, "position_buckets": 256, "max_relative_positions": -1,
        "position_biased_input": False,
    }  # fmt: skip
    assert read_shape(small).other_embeddings == 512
    assert read_shape(small | {"position_buckets": 0, "position_biased_input": True}).other_embeddings == 512 + 1024


@pytest.mark.parametrize("family", ENCODERS)
def test_a_config_made_from_a_shape_has_that_shape(family: str, tmp_path: Path) -> None:
    """As random weights take it, before anything is downloaded."""
    from core.model.loading.random_weights import random_config

    spec = find_model("folder", str(encoder_folder(tmp_path / "it", family)))
    assert read_shape(random_config(spec).to_dict()) == spec.shape


def test_an_encoder_of_the_hub_and_of_its_cache_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its listing and config.json alone; then whole, among the cached ones, with the catalogue's words."""
    served = encoder_folder(tmp_path / "served", "distilbert")
    info = SimpleNamespace(
        id="tester/it", sha=COMMIT, config={}, card_data={"license": "mit"}, gated=False,
        siblings=[SimpleNamespace(rfilename=path.name, size=path.stat().st_size) for path in served.iterdir()],
    )  # fmt: skip
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(client, "_model_info", lambda *_: info)
    monkeypatch.setattr(client, "_download_file", lambda _repo, name, _commit: served / name)
    spec = find_model("hub", "tester/it")
    assert (spec.encoder, spec.cached, spec.licence, spec.revision) == (True, False, "mit", COMMIT)
    assert spec.download_bytes == (served / "model.safetensors").stat().st_size
    for owner, name in (("tester", "it"), ("distilbert", "distilbert-base-uncased")):
        repository = tmp_path / "cache" / f"models--{owner}--{name}"
        shutil.copytree(served, repository / "snapshots" / COMMIT)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(COMMIT)
        (repository / "blobs").mkdir()
    known, unknown = cached_models()
    assert (known.key, known.encoder, known.cached, known.shape.hidden_size) == ("distilbert-base", True, True, 32)
    assert "writes none" in known.about
    assert (unknown.name, unknown.encoder, unknown.shape) == ("tester/it", True, spec.shape)


def _without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def _with(**changes: Any) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return write


@pytest.mark.parametrize(
    ("spoil", "code"),
    [(_without("vocab.txt"), "model.no_tokenizer"), (_with(num_hidden_layers=4), "model.misfit"),
     (_with(vocab_size=98), "model.misfit"), (_with(is_decoder=True), "model.not_encoder"),
     (_with(architectures=["BertLMHeadModel"]), "model.not_encoder"),
     (_with(architectures=["BertForCausalLM"]), "model.not_encoder"),
     (_with(max_position_embeddings=10**6), "model.misfit"), (_with(hidden_size=None), "model.shape"),
     (_with(quantization_config={"quant_method": "gptq"}), "model.quantised")],
)  # fmt: skip
def test_what_cannot_be_an_encoder_here_is_one_line(spoil: Callable[[Path], object], code: str, tmp_path: Path) -> None:
    folder = encoder_folder(tmp_path / "it", "bert")
    spoil(folder)
    with pytest.raises(ModelError) as caught:
        check_folder(folder)
    assert (caught.value.code, caught.value.message.startswith("Expected ")) == (code, True)


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("t5", "T5ForConditionalGeneration"),
        ("albert", "AlbertForMaskedLM"),
        ("llama", "LlamaForSequenceClassification"),
        ("llama", "LlamaModel"),
    ],
)
def test_other_models_that_write_nothing_stay_refused(kind: str, named: str) -> None:
    with pytest.raises(ModelError, match="continues text"):
        check_config({"model_type": kind, "architectures": [named]}, "it")


def test_a_vocabulary_of_words_is_a_fast_tokenizer(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(encoder_folder(tmp_path / "it", "bert")))
    assert tokenizer.is_fast
    assert tokenizer("a good film").input_ids == [2, 5, 6, 8, 3]


def _spec(key: str) -> Any:
    return next(spec for spec in catalogue() if spec.key == key)


@pytest.mark.parametrize("method", METHODS)
def test_an_encoder_learns_only_what_encoders_can(method: Method) -> None:
    fault = unsuited(RunConfig(method=method), _spec("bert-base"))
    assert (fault is None) == METHODS[method].encoders
    if fault is not None:
        assert fault.code == "model.writes_none"
        assert METHODS[method].title in fault.message
        assert "BERT base" in fault.message
    assert unsuited(RunConfig(method=method), _spec("qwen3-0.6b")) is None


def test_an_encoder_is_trained_whole_without_a_word_of_its_user() -> None:
    config, lines = suited(RunConfig(method="classify"), _spec("bert-base"))
    assert {line.key: line.value for line in lines} == {
        "train.learns": "everything", "model.quantization": "none", "train.max_length": "512",
    }  # fmt: skip
    assert (config.train.learns, config.model.quantization, config.train.max_length) == ("everything", "none", 512)
    assert suited(config, _spec("bert-base")) == (config, [])
    assert suited(RunConfig(), _spec("qwen3-0.6b")) == (RunConfig(), [])
    short = RunConfig(train=TrainChoice(max_length=128))
    assert suited(short, _spec("bert-base"))[0].train.max_length == 128
    assert suited(RunConfig(train=TrainChoice(max_length=4096)), _spec("modernbert-base"))[0].train.max_length == 4096


@pytest.mark.parametrize("learns", [name for name, row in LEARNS.items() if row.ends and row.adapter])
def test_an_encoder_does_not_learn_in_part(learns: LearnsName) -> None:
    config = RunConfig(method="classify", train=TrainChoice(learns=learns))
    fault = unsuited(config, _spec("bert-base"))
    assert fault is not None
    assert fault.code == "model.encoder_whole"


@pytest.mark.parametrize("method", [name for name, row in METHODS.items() if row.task.scores])
def test_methods_of_scores_want_a_class_that_the_installed_transformers_has(method: Method) -> None:
    """Read from its list as text; the library agrees."""
    import transformers

    task = METHODS[method].task
    table = getattr(transformers, task.classes)
    for kind in (*FAMILIES, *ENCODERS, "gpt2", "no-such-type"):
        known = transformers.CONFIG_MAPPING[kind] in table if kind in transformers.CONFIG_MAPPING else False
        assert has_class(task, kind) == known, kind
    granite = _spec("qwen3-0.6b").model_copy(update={"model_type": "granite", "title": "Granite"})
    fault = unsuited(RunConfig(method=method), granite)
    assert fault is not None
    assert (fault.code, "granite" in fault.message) == ("model.no_scores", True)
    assert has_class(TASKS["language-model"], "granite")


def test_a_head_of_scores_leaves_no_other_head_to_learn() -> None:
    for config in (
        RunConfig(method="reward", train=TrainChoice(learns="adapter_embeddings"), model=ModelChoice()),
        RunConfig(method="reward", lora=LoraChoice(target_modules=("q_proj", "lm_head"))),
    ):
        assert [line for line in config.problems() if "head of its own" in line]
        asked = config.model_copy(update={"method": "sft"})
        assert not [line for line in asked.problems() if "head of its own" in line]
