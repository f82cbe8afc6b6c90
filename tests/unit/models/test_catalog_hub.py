"""The real download code of huggingface_hub against a hub on loopback, in processes of their own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hub_stand_in import COMMIT, TOKEN, HubStandIn, tiny_model

Ask = Callable[..., Any]
IS_CACHED = "cache.is_cached('tester/tiny')"
DESCRIBE = "hub.describe('tester/tiny').model_dump()"
TOKENIZER = "str(hub.fetch_tokenizer('tester/tiny'))"


def fetch(name: str = "tester/tiny", revision: str = "", stop: str = "False") -> str:
    return f"str(hub.fetch({name!r}, {revision!r}, lambda *counts: progress.append(counts), lambda: {stop}))"


def weights_asked(hub: HubStandIn) -> list[str]:
    return [request for request in hub.requests if "safetensors" in request]


def test_before_a_fetch_come_description_and_tokenizer_alone(ask: Ask, hub_of: HubStandIn) -> None:
    described, tokenizer, cached = ask(DESCRIBE, TOKENIZER, IS_CACHED)
    spec, folder = described["value"], Path(tokenizer["value"])
    assert (spec["revision"], spec["shape"]["hidden_size"], spec["licence"]) == (COMMIT, 64, "apache-2.0")
    assert (spec["download_bytes"] > 0, spec["cached"], cached["value"]) == (True, False, False)
    assert (folder / "tokenizer.json").exists()
    assert not list(folder.glob("*.safetensors")) + weights_asked(hub_of)
    hub_of.requests.clear()
    assert ask(TOKENIZER)["value"] == str(folder)
    assert hub_of.requests == [], "what was fetched before is given again"


def test_a_fetch_brings_weights_config_and_tokenizer_and_nothing_else_and_is_not_asked_for_again(
    ask: Ask, hub_of: HubStandIn
) -> None:
    fetched, listed = ask(fetch(), "[(s.name, s.cached, s.revision) for s in catalog.cached_models()]")
    folder = Path(fetched["value"])
    names = {path.name for path in folder.iterdir()}
    assert folder.name == COMMIT
    assert {"config.json", "tokenizer.json", "model-00001-of-00002.safetensors"} <= names
    assert not any(name.endswith((".py", ".md", ".bin")) for name in names)
    done, total = fetched["progress"][-1]
    assert done == total > 0
    assert not fetched["torch"]
    assert listed["value"] == [["tester/tiny", True, COMMIT]]
    hub_of.requests.clear()
    commit, cached = ask(fetch(revision=COMMIT), IS_CACHED)
    assert (commit["value"], cached["value"]) == (str(folder), True)
    again, described, from_cache = ask(
        fetch(), DESCRIBE, "catalog.find_model('hub', 'tester/tiny').model_dump()", HF_HUB_OFFLINE="1"
    )
    assert (again["value"], described["value"]["revision"]) == (str(folder), COMMIT)
    spec = from_cache["value"]
    assert (spec["cached"], spec["instruct"], spec["folder"]) == (True, True, str(folder))
    assert hub_of.requests == []
    hub_of.silent.add("tester/tiny")
    silent = ask(fetch(), HF_HUB_ETAG_TIMEOUT="1")
    assert (silent["value"], silent["seconds"] < 25) == (str(folder), True)


def test_progress_counts_bytes_and_a_stopped_download_goes_on(ask: Ask, hub_of: HubStandIn, tmp_path: Path) -> None:
    hub_of.models["tester/large"] = tiny_model(tmp_path / "large", megabytes=16)
    hub_of.slow.add("tester/large")
    stopped = ask(fetch("tester/large", stop="any(done > 9e6 for done, _ in progress)"))
    counts = [done for done, _ in stopped["progress"]]
    assert (stopped["code"], stopped["seconds"] < 25) == ("hub.stopped", True)
    assert counts == sorted(counts)
    assert len({total for _, total in stopped["progress"]}) == 1
    assert any(1_000_000 < done < total for done, total in stopped["progress"]), "told while it goes on, not at its end"
    hub_of.slow.clear()
    again, whole = ask(fetch("tester/large"), "catalog.check_folder(cache.cached_folder('tester/large'))")
    assert again["value"].endswith(COMMIT)
    assert whole["value"] is None


def test_a_download_stopped_between_parts_does_not_look_whole(ask: Ask, hub_of: HubStandIn, tmp_path: Path) -> None:
    hub_of.models["tester/tiny"] = tiny_model(tmp_path / "split", shards=4)
    folder = Path(ask(fetch())["value"])
    asked = [request for request in hub_of.requests if request.startswith("GET") and "/resolve/" in request]
    assert [request.rpartition("/")[2] for request in asked[:2]] == ["config.json", "model.safetensors.index.json"]
    for number in (2, 4):
        (folder / f"model-{number:05}-of-00004.safetensors").unlink()
    assert ask(IS_CACHED)["value"] is False
    (folder / "model.safetensors.index.json").unlink()
    before, _, after = ask(IS_CACHED, fetch(revision=COMMIT), IS_CACHED)
    assert (before["value"], after["value"]) == (False, True)
    assert len(list(folder.glob("*.safetensors"))) == 4


def test_no_token_is_shown_by_a_gated_model_or_by_a_hub_that_quotes_what_it_was_sent(
    ask: Ask, hub_of: HubStandIn
) -> None:
    hub_of.gated.add("tester/tiny")
    gated = ask(fetch(), HF_TOKEN="hf_wrongsecret")
    assert (gated["code"], "hf auth login" in gated["text"], "\n" in gated["text"]) == ("hub.gated", True, False)
    assert "hf_wrongsecret" not in gated["text"] + gated["printed"]
    assert ask(fetch(), HF_TOKEN=TOKEN)["value"].endswith(COMMIT)
    hub_of.models["tester/other"] = hub_of.models["tester/tiny"]
    hub_of.echoing.add("tester/other")
    ways = (fetch("tester/other"), "hub.describe('tester/other').name", "str(hub.fetch_tokenizer('tester/other'))")
    for answer in ask(*ways, HF_TOKEN=TOKEN):
        assert answer["code"] == "hub.unreachable"
        assert TOKEN not in answer["text"] + answer["printed"]
        assert "uthorization" not in answer["text"] + answer["printed"]


def test_what_the_hub_does_not_have_or_cannot_give_is_named(ask: Ask, hub_of: HubStandIn, tmp_path: Path) -> None:
    old, evil, vast = (tiny_model(tmp_path / name) for name in ("old", "evil", "vast"))
    (old / "model.safetensors").rename(old / "pytorch_model.bin")
    config = json.loads((evil / "config.json").read_text())
    foreign = {"model_type": "evilformer", "auto_map": {"AutoModel": "modeling_evil.Evil"}}
    (evil / "config.json").write_text(json.dumps(config | foreign))
    (vast / "config.json").write_text(json.dumps(config | {"vocab_size": 10**12}))
    hub_of.models |= {"tester/old": old, "tester/evil": evil, "tester/vast": vast}
    expected = {
        fetch("tester/nothing"): ("hub.missing", "HubError", "tester/nothing"),
        fetch(revision="no-such-branch"): ("hub.no_revision", "HubError", "no-such-branch"),
        "hub.describe('not a//name').name": ("hub.bad_id", "HubError", "owner/name"),
        fetch("tester/old"): ("hub.not_safetensors", "HubError", "pytorch_model.bin"),
        "hub.describe('tester/evil').name": ("model.remote_code", "ModelError", "evilformer"),
        fetch("tester/evil"): ("model.remote_code", "ModelError", "evilformer"),
        fetch("tester/vast"): ("model.absurd", "ModelError", "vocab_size"),
        f"(setattr(hub, 'SPARE_BYTES', 10**18), {fetch()})": ("disk.small", "MachineError", "GB free"),
    }
    for answer, (code, kind, words) in zip(ask(*expected), expected.values(), strict=True):
        assert (answer["code"], answer["kind"]) == (code, kind)
        assert words in answer["text"]
    assert weights_asked(hub_of) == []


@pytest.mark.parametrize(
    ("environment", "code", "words"),
    [({"HF_HUB_ETAG_TIMEOUT": "1"}, "hub.unreachable", "cached models"),
     ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "hub.unreachable", "cached models"),
     ({"HF_HUB_OFFLINE": "1"}, "hub.offline", "HF_HUB_OFFLINE")],
    ids=["silent", "not there", "offline"],
)  # fmt: skip
def test_a_hub_that_cannot_be_asked_is_said_within_seconds(
    environment: dict[str, str], code: str, words: str, ask: Ask, hub_of: HubStandIn
) -> None:
    hub_of.silent.add("tester/tiny")
    for answer in ask(fetch(), DESCRIBE, **environment):
        assert (answer["code"], words in answer["text"], answer["seconds"] < 25) == (code, True, True)
