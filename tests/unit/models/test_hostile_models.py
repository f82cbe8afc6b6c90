"""Folders that mean harm are refused in one line, soon, by every way in; nothing of theirs is run, nothing beside them
is opened or changed."""

import contextlib
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import hostile_child
import pytest
from hostile_models import (
    ADAPTERS,
    MODELS,
    SWELLING,
    make_adapter,
    make_hostile,
    make_outside,
    make_swelling,
    untouched,
)  # fmt: skip
from hub_stand_in import COMMIT, tiny_model
from huggingface_hub import constants
from tiny_run import make_model

from core.contract.config import ModelChoice
from core.contract.errors import Fault, HubError, ModelError
from core.data.render.chat_tokens import load_tokenizer
from core.machine.imports import without_card
from core.machine.limits import reading_model
from core.machine.locations import REPOSITORY
from core.models.catalog import cached_models, check_folder
from core.models.checks.adapter import check_adapter
from core.models.checks.claims import check_claims, plain_generation
from core.models.checks.tokenizer import check_growth
from core.models.hub import cache as hub_cache
from core.models.hub import client as hub

Ask = Callable[..., dict[str, Any]]
SOON = 10.0


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What a process of its own said to every hostile folder by every way in: way to answers, each with its folder's
    name.

    Light: catalogue, command line and the window's typed folder. Heavy: worker, probe and Try. Adapters: going on from
    a run, Try and the export. Swelling: those, and the preview. Control: what must be heard, or silence means nothing.
    """
    root = tmp_path_factory.mktemp("hostile")
    outside = make_outside(root / "outside")
    numbers = {f"{number:03}": name for number, name in enumerate([*MODELS, *ADAPTERS, *SWELLING])}
    for number, name in numbers.items():
        if name in MODELS:
            make_hostile(name, root / "light" / number, outside)
            make_hostile(name, root / "heavy" / number, outside)
        if name in ADAPTERS:
            make_adapter(name, root / "adapters" / number, outside)
        if name in SWELLING:
            make_swelling(name, root / "swelling" / number)
    control = root / "control" / "000"
    control.mkdir(parents=True)
    (control / "payload").write_bytes(pickle.dumps(Path("a")))
    (control / "module.py").write_text("ran = True")
    hostile_child.heavy()  # imported here, where other tests need it too: a fresh process takes seconds to do it
    told = root / "told.txt"
    if not (child := os.fork()):
        listening(root, told)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    text = told.read_text("utf-8")
    assert code == 0, text[-2500:]
    assert untouched(outside)
    answers: dict[str, list[dict[str, Any]]] = {}
    for line in text.splitlines():
        if line.startswith("ANSWER "):
            one = json.loads(line.removeprefix("ANSWER "))
            answers.setdefault(one["way"], []).append(one | {"folder": numbers[one["folder"]]})
    return answers


def listening(root: Path, told: Path) -> NoReturn:
    """The child: an audit hook stays for the rest of a process's life."""
    code = 1
    try:
        signal.alarm(300)
        os.chdir(root)
        os.environ.update(without_card(os.environ))
        constants.HF_HUB_OFFLINE = True
        with told.open("w", encoding="utf-8") as stream:
            os.dup2(stream.fileno(), 2)
            with contextlib.redirect_stdout(stream):
                hostile_child.main(root, ["light", "heavy", "adapters", "swelling", "control"])
        code = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


@pytest.mark.parametrize(
    ("way", "asked", "codes"),
    [("light", 2, {name: code for name, (_, code) in MODELS.items()}),
     ("heavy", 3, {name: code for name, (_, code) in MODELS.items()}),
     ("adapters", 2, dict.fromkeys(ADAPTERS, "model")),
     ("swelling", 4, dict.fromkeys(SWELLING, "model.absurd"))],
)  # fmt: skip
def test_every_hostile_folder_is_refused_by_every_way_in(
    way: str, asked: int, codes: Mapping[str, str], said: dict[str, list[dict[str, Any]]]
) -> None:
    """By its code, in one line, soon, and with nothing heard of what it holds. An adapter's fault is one of a model."""
    assert len(said[way]) == asked * len(codes)
    wrong = [
        one
        for one in said[way]
        if not f"{one['code']}.".startswith(f"{codes[one['folder']]}.")
        or not one["text"].isprintable()
        or one["seconds"] > SOON
        or one["heard"]
    ]
    assert wrong == []


def test_what_must_be_heard_is_heard(said: dict[str, list[dict[str, Any]]]) -> None:
    assert [one["asked"] for one in said["control"] if one["heard"]] == ["unpickles", "opens", "runs"]


def test_of_a_foreign_generation_config_only_ids_and_plain_numbers_are_obeyed() -> None:
    """Beams are so many copies of a conversation in memory; an assistant is another model."""
    honest = {"bos_token_id": 1, "eos_token_id": [2, 32_000], "pad_token_id": 0, "do_sample": True,
              "temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05}  # fmt: skip
    foreign = {"num_beams": 4096, "num_return_sequences": 4096, "penalty_alpha": 0.6, "max_length": 10**9,
               "assistant_lookbehind": 10**9, "prompt_lookup_num_tokens": 10**9, "watermarking_config": {"a": 1},
               "cache_implementation": "static", "custom_generate": "evil/repo", "forced_eos_token_id": 1}  # fmt: skip
    assert plain_generation(honest | foreign) == honest
    assert plain_generation({"eos_token_id": "a", "pad_token_id": None, "top_k": 10**300, "bos_token_id": []}) == {}


def test_what_models_claim_of_their_answers_is_not_obeyed_by_any_loader(tmp_path: Path) -> None:
    import torch

    from core.model.loading.load import load_base

    folder = make_model(tmp_path / "model")
    check_growth(folder)
    (folder / "generation_config.json").write_text(json.dumps({"num_beams": 4096, "eos_token_id": 7, "top_k": 5}))
    loaded = load_base(folder, ModelChoice(source="folder", quantization="none"), torch.device("cpu"))
    said = loaded.model.generation_config
    assert (said.num_beams in (None, 1), said.eos_token_id, said.top_k) == (True, 7, 5)


def test_real_tokenizers_are_far_below_the_limits(shared_data: Path) -> None:
    paths = list((shared_data / "tokenizers").glob("*/tokenizer.json"))
    assert paths
    for path in paths:
        check_growth(path.parent)


def test_what_no_check_foresees_meets_a_wall_while_it_is_read() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(ModelError, match="read within 2,048 MB") as caught, reading_model("a model"):
        bytearray(3 << 30)
    assert caught.value.code == "model.absurd"
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_the_plain_ones_pass(tmp_path: Path) -> None:
    check_folder(tiny_model(tmp_path / "model"))
    check_adapter(make_adapter("plain", tmp_path / "adapter", tmp_path))


def test_an_adapter_that_lists_a_million_layers_is_refused_at_once(tmp_path: Path) -> None:
    """By its size; where that is allowed, without a look at the key's name for each number."""
    folder, begun = make_adapter("plain", tmp_path / "adapter", tmp_path), time.process_time()
    for numbers in (4_000_000, 250_000):
        (folder / "adapter_config.json").write_text('{"layers_to_transform": [' + "0," * numbers + "0]}")
        with pytest.raises(ModelError):
            check_adapter(folder)
    assert time.process_time() - begun < 1


def test_a_listing_of_the_cache_leaves_hostile_models_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as a snapshot of the hub's cache: links may lead to its blobs there, and nowhere else."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    outside, whole = make_outside(tmp_path / "outside"), []
    for number, name in enumerate([*MODELS, "whole"]):
        repository = tmp_path / "hub" / f"models--evil--{number}"
        if name in ("whole", "link: no cache's blobs"):  # which in a cache is one
            whole.append(f"evil/{number}")
            tiny_model(repository / "snapshots" / COMMIT)
        else:
            make_hostile(name, repository / "snapshots" / COMMIT, outside)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(COMMIT)
    assert sorted(spec.name for spec in cached_models()) == sorted(whole)
    assert untouched(outside)


@pytest.mark.parametrize("said", ["../../../outside", "/etc", "a/b", "..", ""])
def test_a_reference_of_the_cache_names_a_snapshot_and_nothing_else(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--evil--ref"
    tiny_model(tmp_path / "outside")
    tiny_model(repository / "snapshots" / "a" / "b")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(said)
    assert hub_cache.cached_folder("evil/ref") is None
    assert hub_cache.cached_folder("evil/ref", "../../refs") is None


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith(("code: tok", "tokenizer:", "link: te"))])
def test_a_tokenizer_alone_is_looked_at_too(name: str, tmp_path: Path) -> None:
    """As the preview reads it: of a hub model it has the tokenizer's files only."""
    outside = make_outside(tmp_path / "outside")
    folder = make_hostile(name, tmp_path / "model", outside)
    (folder / "model.safetensors").unlink()
    with pytest.raises(Fault) as caught:
        load_tokenizer(folder)
    assert caught.value.code == MODELS[name][1]
    assert untouched(outside)


def test_a_refusal_does_not_tell_whether_a_folder_exists(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "empty").mkdir()
    said = set()
    for name in ("file", "empty", "nowhere", "file/below", "n\0ull", "x" * 300):
        with pytest.raises(ModelError) as caught:
            check_folder(tmp_path / name)
        assert str(caught.value).isprintable()
        said.add((caught.value.code, str(caught.value).replace(name.replace("\0", "�"), "NAME")))
    assert len(said) == 1


@pytest.mark.parametrize("value", [None, [], {}, "x", 1.5, True, -1, 10**20, [["a"]], {"a": {"b": [10**20]}}])
def test_any_value_anywhere_in_a_config_is_accepted_or_refused_as_every_fault_is(value: object, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model")
    raw = json.loads((folder / "config.json").read_text())
    keys = [*raw, "head_dim", "sliding_window", "quantization_config", "auto_map", "num_experts", "rope_scaling"]
    refused = []
    for key in keys:
        (folder / "config.json").write_text(json.dumps(raw | {key: value}))
        with contextlib.suppress(ModelError):
            check_folder(folder)
            continue
        refused.append(key)
    assert "hidden_size" in refused  # none of these is a size


def test_large_honest_numbers_are_no_claims() -> None:
    """Bases of rotary angles, ids and the longest contexts of real models."""
    honest = {"rope_theta": 45_748_311_040, "max_position_embeddings": 10_485_760, "vocab_size": 262_208,
              "rope_scaling": {"factor": 40, "rope_theta": 10**10}, "attn_implementation": "flash_attention_2",
              "_attn_implementation": None, "eos_token_id": [151_643, 151_645], "image_token_id": 262_144}  # fmt: skip
    check_claims(honest, "a config")


@pytest.mark.parametrize("name", ["code: tokenizer", "name: two lines"])
def test_the_command_line_refuses_in_one_line(name: str, tmp_path: Path) -> None:
    outside = make_outside(tmp_path / "outside")
    folder = make_hostile(name, tmp_path / "model", outside)
    run = tmp_path / "run.yaml"
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "a", "completion": "b"}\n' * 20)
    run.write_text(f"model: {{source: folder, name: {folder}}}\ndata: {{path: {rows}}}\n")
    (tmp_path / "home").mkdir()
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "core.cli", "train", str(run), "--home", str(tmp_path / "home")],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    after = os.times()  # processor seconds: of what else the machine does nothing is to be said here
    assert after.children_user + after.children_system - before.children_user - before.children_system < SOON
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not list((tmp_path / "home" / "runs").iterdir())
    assert untouched(outside)


@pytest.mark.parametrize(
    "revision", ["/tmp/outside", "../outside", "refs/../../../outside", "-x", "a\x00b", "a\nb", "é" * 300]
)
def test_a_revision_is_never_a_way_to_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revision: str
) -> None:
    """huggingface_hub makes a path of it, and writes the commit there: a run.yaml may come from anybody."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("asked all the same"))
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: pytest.fail("asked all the same"))
    ways = (
        lambda: hub.describe("tester/tiny", revision),
        lambda: hub.fetch("tester/tiny", revision, lambda *_: None, lambda: False),
        lambda: hub.fetch_tokenizer("tester/tiny", revision),
    )
    for way in ways:
        with pytest.raises(HubError) as error:
            way()
        assert error.value.code == "hub.no_revision"
        assert error.value.message.isprintable()
    assert hub_cache.cached_folder("tester/tiny", revision) is None


@pytest.mark.parametrize("revision", ["main", "refs/pr/3", "v1.0", "step-1000", "feature/x_y+z", "a" * 40])
def test_names_that_git_gives_are_revisions(revision: str) -> None:
    assert hub_cache.is_revision(revision)
