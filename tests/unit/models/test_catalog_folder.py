"""What is refused of a model folder, each in one line that names what was expected and found."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hub_stand_in import TINY_CONFIG, tiny_model

from core.contract.errors import ModelError
from core.models.catalog import check_folder, find_model
from core.models.checks.folder import check_config, read_shape
from core.models.checks.weights import fingerprint, read_header, weight_files


def rewrite(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def no_weights(folder: Path) -> None:
    for path in folder.glob("*.safetensors*"):
        path.unlink()


def only_an_adapter(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "adapter_config.json").write_text("{}")


FAULTS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "nothing": (no_weights, "model.no_weights", "no weights"),
    "shard": (lambda f: (f / "model-00002-of-00002.safetensors").unlink(), "model.missing_shard", "00002"),
    "empty file": (
        lambda f: (f / "model-00001-of-00002.safetensors").write_bytes(b""), "model.bad_weights", "something else"
    ),
    "no index": (lambda f: (f / "model.safetensors.index.json").write_text("{}"), "model.bad_index", "weight_map"),
    "no config": (lambda f: (f / "config.json").unlink(), "model.no_folder", "config.json"),
    "bad config": (lambda f: (f / "config.json").write_text("{"), "model.bad_json", "JSON"),
    "list config": (lambda f: (f / "config.json").write_text("[]"), "model.bad_json", "object"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "model.no_tokenizer", "tokenizer"),
    "no type": (lambda f: rewrite(f, model_type=""), "model.no_type", "model_type"),
    "adapter": (only_an_adapter, "model.adapter", "resume_from"),
    "quantised": (lambda f: rewrite(f, quantization_config={"quant_method": "gptq"}), "model.quantised", "gptq"),
    "experts": (lambda f: rewrite(f, num_local_experts=8), "model.experts", "experts"),
    "classifier": (
        lambda f: rewrite(f, architectures=["LlamaForSequenceClassification"]), "model.not_causal", "Classification"
    ),
    "shape": (lambda f: rewrite(f, hidden_size="64"), "model.shape", "hidden_size"),
}  # fmt: skip
"""Mishaps; what means harm (other formats, links, wrong headers, code) stands in ``tests/hostile_models.py``."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "model", shards=2)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_one_line_that_says_what_was_found(fault: str, folder: Path) -> None:
    spoil, code, said = FAULTS[fault]
    spoil(folder)
    with pytest.raises(ModelError) as caught:
        check_folder(folder)
    assert (caught.value.code, said in str(caught.value)) == (code, True)
    assert str(caught.value).isprintable()
    assert caught.value.message.startswith("Expected ")


def test_a_whole_folder_passes_and_becomes_a_spec(folder: Path) -> None:
    check_folder(folder)
    spec = find_model("folder", str(folder))
    assert (spec.shape.hidden_size, spec.shape.head_dim, spec.instruct, spec.cached) == (64, 16, True, True)
    assert spec.revision == fingerprint(folder)


def test_the_fingerprint_changes_with_config_and_weights(folder: Path) -> None:
    first = fingerprint(folder)
    assert fingerprint(folder) == first
    rewrite(folder, rope_theta=5)
    second = fingerprint(folder)
    other = tiny_model(folder.parent / "other", shards=2, megabytes=0.01)
    name = "model-00001-of-00002.safetensors"
    (folder / name).write_bytes((other / name).read_bytes())
    assert len({first, second, fingerprint(folder)}) == 3


def test_links_into_the_cache_are_what_a_snapshot_is_made_of(tmp_path: Path) -> None:
    repository = tmp_path / "models--tester--tiny"
    real = tiny_model(repository / "snapshots" / "abc")
    blobs = repository / "blobs"
    blobs.mkdir()
    (real / "model.safetensors").rename(blobs / "1")
    (real / "model.safetensors").symlink_to("../../blobs/1")
    check_folder(real)


def test_code_of_a_repository_is_no_matter_where_transformers_knows_the_type() -> None:
    """Phi-3.5 and Phi-4 mini bring an auto_map beside a type that transformers has itself."""
    check_config({"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "auto_map": {"AutoModel": "x.Y"}}, "phi")
    check_config({"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"]}, "gemma")


def test_a_relative_folder_is_asked_for_whole(folder: Path) -> None:
    with pytest.raises(ModelError, match="absolute"):
        find_model("folder", "some/where")
    with pytest.raises(ModelError, match="found none"):
        find_model("folder", str(folder / "nowhere"))


def test_shape_follows_config_where_it_is_silent() -> None:
    bare = {name: value for name, value in TINY_CONFIG.items() if name not in ("num_key_value_heads", "head_dim")}
    shape = read_shape(bare)
    assert (shape.num_key_value_heads, shape.head_dim) == (4, 16)
    assert read_shape(bare | {"sliding_window": 99, "use_sliding_window": False}).sliding_window is None
    assert read_shape(bare | {"sliding_window": 99}).sliding_window == 99
    gemma = {name: value for name, value in bare.items() if name != "tie_word_embeddings"} | {"model_type": "gemma2"}
    assert read_shape(gemma).tie_word_embeddings


def test_headers_are_read_as_the_library_writes_them(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    from safetensors.numpy import save_file

    path = tmp_path / "model.safetensors"
    save_file({"a": numpy.zeros((3, 5), "float32"), "b": numpy.zeros((2,), "float16")}, path, metadata={"format": "pt"})
    header = read_header(path)
    assert {name: entry["shape"] for name, entry in header.items()} == {"a": [3, 5], "b": [2]}


@pytest.mark.parametrize("left", [1, 3, 4])
def test_parts_without_their_index_are_no_whole_model(left: int, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "split", shards=4)
    (folder / "model.safetensors.index.json").unlink()
    for number in range(left + 1, 5):
        (folder / f"model-{number:05}-of-00004.safetensors").unlink()
    with pytest.raises(ModelError, match=f"Expected 4 weight files.*found {left} and no index") as caught:
        weight_files(folder)
    assert caught.value.code == "model.missing_shard"


def test_a_whole_file_counts_where_parts_or_an_adapter_lie_beside_it(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "both")
    (folder / "model-00001-of-00004.safetensors").write_bytes(b"x")
    (folder / "adapter_model.safetensors").write_bytes(b"not looked at")
    assert [path.name for path in weight_files(folder)] == ["model.safetensors"]
    check_folder(folder)
