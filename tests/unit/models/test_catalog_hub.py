"""The real download code of huggingface_hub against a hub on loopback, each call in a fresh process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hub_stand_in import COMMIT, TOKEN, HubStandIn, tiny_model

Ask = Callable[..., dict[str, Any]]
FETCH = "str(hub.fetch('{0}', '{1}', lambda done, total: progress.append((done, total)), lambda: {2}))"


def fetch(name: str = "tester/tiny", revision: str = "", stop: str = "False") -> str:
    return FETCH.format(name, revision, stop)


def test_fetch_brings_weights_config_and_tokenizer_and_nothing_else(ask: Ask, hub_of: HubStandIn) -> None:
    answer = ask(fetch())
    folder = Path(answer["value"])
    names = {path.name for path in folder.iterdir()}
    assert folder.name == COMMIT
    assert {"config.json", "tokenizer.json", "model-00001-of-00002.safetensors"} <= names
    assert not any(name.endswith((".py", ".md", ".bin")) for name in names)
    done, total = answer["progress"][-1]
    assert done == total > 0
    assert not answer["torch"]


def test_progress_counts_bytes_and_never_runs_back(ask: Ask, hub_of: HubStandIn, tmp_path: Path) -> None:
    hub_of.models["tester/large"] = tiny_model(tmp_path / "large", megabytes=25)
    hub_of.slow.add("tester/large")
    progress = ask(fetch("tester/large"))["progress"]
    counts = [done for done, _ in progress]
    assert counts == sorted(counts)
    assert len({total for _, total in progress}) == 1
    assert any(1_000_000 < done < total for done, total in progress), "progress while it goes on, not only at its end"


def test_a_cached_commit_needs_no_request(ask: Ask, hub_of: HubStandIn) -> None:
    first = ask(fetch())["value"]
    hub_of.requests.clear()
    assert ask(fetch(revision=COMMIT))["value"] == first
    assert ask(fetch(), HF_HUB_OFFLINE="1")["value"] == first
    assert ask("cache.is_cached('tester/tiny')")["value"] is True
    assert ask("hub.describe('tester/tiny').revision", HF_HUB_OFFLINE="1")["value"] == COMMIT
    assert hub_of.requests == []


def test_a_cached_model_works_while_the_hub_is_silent(ask: Ask, hub_of: HubStandIn) -> None:
    first = ask(fetch())["value"]
    hub_of.silent.add("tester/tiny")
    answer = ask(fetch())
    assert answer["value"] == first
    assert answer["seconds"] < 25


def test_describe_names_the_commit_and_fetches_no_weights(ask: Ask, hub_of: HubStandIn) -> None:
    spec = ask("hub.describe('tester/tiny').model_dump()")["value"]
    assert (spec["revision"], spec["shape"]["hidden_size"], spec["licence"]) == (COMMIT, 64, "apache-2.0")
    assert spec["download_bytes"] > 0
    assert not spec["cached"]
    assert not any("safetensors" in request for request in hub_of.requests)


def test_the_tokenizer_comes_alone_and_only_once(ask: Ask, hub_of: HubStandIn) -> None:
    folder = Path(ask("str(hub.fetch_tokenizer('tester/tiny'))")["value"])
    assert (folder / "tokenizer.json").exists()
    assert not list(folder.glob("*.safetensors"))
    assert ask("cache.is_cached('tester/tiny')")["value"] is False
    hub_of.requests.clear()
    assert ask("str(hub.fetch_tokenizer('tester/tiny'))")["value"] == str(folder)
    assert hub_of.requests == []


def test_find_model_and_the_cache_listing_show_a_fetched_model(ask: Ask) -> None:
    ask(fetch())
    listed = ask("[(s.name, s.cached, s.revision) for s in catalog.cached_models()]")["value"]
    assert listed == [["tester/tiny", True, COMMIT]]
    found = ask("catalog.find_model('hub', 'tester/tiny').model_dump()", HF_HUB_OFFLINE="1")["value"]
    assert found["cached"]
    assert found["instruct"]
    assert Path(found["folder"]).name == COMMIT


def test_a_gated_model_says_how_to_get_in_and_shows_no_token(ask: Ask, hub_of: HubStandIn) -> None:
    hub_of.gated.add("tester/tiny")
    answer = ask(fetch(), HF_TOKEN="hf_wrongsecret")
    assert answer["code"] == "hub.gated"
    assert "hf auth login" in answer["text"]
    assert "\n" not in answer["text"]
    assert "hf_wrongsecret" not in answer["text"] + answer["printed"]
    assert ask(fetch(), HF_TOKEN=TOKEN)["value"].endswith(COMMIT)


def test_a_hub_that_quotes_what_it_was_sent_is_not_repeated(ask: Ask, hub_of: HubStandIn) -> None:
    hub_of.echoing.add("tester/tiny")
    for question in (fetch(), "hub.describe('tester/tiny').name", "str(hub.fetch_tokenizer('tester/tiny'))"):
        answer = ask(question, HF_TOKEN=TOKEN)
        assert answer["code"] == "hub.unreachable"
        assert TOKEN not in answer["text"] + answer["printed"]
        assert "uthorization" not in answer["text"] + answer["printed"]


def test_what_the_hub_does_not_have_is_named(ask: Ask) -> None:
    missing = ask(fetch("tester/nothing"))
    assert (missing["code"], missing["kind"]) == ("hub.missing", "HubError")
    assert "tester/nothing" in missing["text"]
    assert ask(fetch(revision="no-such-branch"))["code"] == "hub.no_revision"
    assert ask("hub.describe('not a//name').name")["code"] == "hub.bad_id"


def test_a_silent_hub_is_said_within_seconds(ask: Ask, hub_of: HubStandIn) -> None:
    hub_of.silent.add("tester/tiny")
    answer = ask(fetch())
    assert answer["code"] == "hub.unreachable"
    assert "cached models" in answer["text"]
    assert answer["seconds"] < 25


def test_a_hub_that_is_not_there(ask: Ask) -> None:
    answer = ask("hub.describe('tester/tiny').name", HF_ENDPOINT="http://127.0.0.1:9")
    assert answer["code"] == "hub.unreachable"


def test_offline_with_nothing_cached(ask: Ask, hub_of: HubStandIn) -> None:
    answer = ask(fetch(), HF_HUB_OFFLINE="1")
    assert answer["code"] == "hub.offline"
    assert "HF_HUB_OFFLINE" in answer["text"]
    assert hub_of.requests == []


def test_stopping_ends_a_slow_download_and_a_second_start_goes_on(ask: Ask, hub_of: HubStandIn, tmp_path: Path) -> None:
    hub_of.models["tester/large"] = tiny_model(tmp_path / "large", megabytes=40)
    hub_of.slow.add("tester/large")
    stopped = ask(fetch("tester/large", stop="time.monotonic() - started > 1.5"))
    assert stopped["code"] == "hub.stopped"
    assert stopped["seconds"] < 25
    hub_of.slow.clear()
    again = ask(fetch("tester/large"))
    assert again["value"].endswith(COMMIT)
    assert ask("catalog.check_folder(cache.cached_folder('tester/large'))")["value"] is None


def test_a_repository_without_safetensors_is_refused(ask: Ask, hub_of: HubStandIn, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "old")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    hub_of.models["tester/old"] = folder
    answer = ask(fetch("tester/old"))
    assert answer["code"] == "hub.not_safetensors"
    assert "pytorch_model.bin" in answer["text"]


def test_remote_code_is_refused_before_weights_are_fetched(ask: Ask, hub_of: HubStandIn, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "evil")
    config = (folder / "config.json").read_text().replace('"llama"', '"evilformer"')
    (folder / "config.json").write_text(config[:-1] + ', "auto_map": {"AutoModel": "modeling_evil.Evil"}}')
    hub_of.models["tester/evil"] = folder
    assert ask("hub.describe('tester/evil').name")["code"] == "model.remote_code"
    assert ask(fetch("tester/evil"))["code"] == "model.remote_code"
    assert not any("safetensors" in request for request in hub_of.requests)


def test_a_disk_that_is_too_small_is_said_first(ask: Ask, hub_of: HubStandIn) -> None:
    answer = ask("(setattr(hub, 'SPARE_BYTES', 10**18), " + fetch() + ")")
    assert (answer["code"], answer["kind"]) == ("disk.small", "MachineError")
    assert not any("resolve" in request and "GET" in request for request in hub_of.requests if "config" not in request)


def test_a_download_stopped_between_parts_does_not_look_whole(ask: Ask, hub_of: HubStandIn, tmp_path: Path) -> None:
    hub_of.models["tester/split"] = tiny_model(tmp_path / "split", shards=4)
    folder = Path(ask(fetch("tester/split"))["value"])
    asked = [request for request in hub_of.requests if request.startswith("GET") and "/resolve/" in request]
    first = [request.rpartition("/")[2] for request in asked[:2]]
    assert first == ["config.json", "model.safetensors.index.json"]
    for number in (2, 4):
        (folder / f"model-{number:05}-of-00004.safetensors").unlink()
    assert ask("cache.is_cached('tester/split')")["value"] is False
    (folder / "model.safetensors.index.json").unlink()
    assert ask("cache.is_cached('tester/split')")["value"] is False
    again = ask(fetch("tester/split", COMMIT))
    assert sorted(path.name for path in Path(again["value"]).glob("*.safetensors"))[-1] == (
        "model-00004-of-00004.safetensors"
    )
    assert ask("cache.is_cached('tester/split')")["value"] is True
