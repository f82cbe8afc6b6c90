"""The settings page: what it shows of the machine, what is kept, and what is cleared."""

import json
import os
from pathlib import Path

import pytest
from made_routes import Routes

from core.machine.locations import Locations
from core.machine.settings import Settings, read_settings
from core.models.hub import login
from studio.pages.settings.folders import clear_cache, sizes_of
from studio.pages.settings.page import page

SECRET = "hf_that_nobody_may_read"


@pytest.fixture(autouse=True)
def no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for the token that is nobody's, and an empty cache of the hub."""
    from huggingface_hub import constants

    for name in login.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "token"


def test_whose_token_is_used_is_said_and_the_token_is_not(
    routes: Routes, no_login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "No token on this machine" in page(routes.studio)
    no_login.write_text(SECRET)
    shown = page(routes.studio)
    assert "A token is saved" in shown
    assert str(no_login) in shown
    monkeypatch.setenv("HF_TOKEN", SECRET)
    other = page(routes.studio)
    assert "variable HF_TOKEN" in other
    assert SECRET not in shown + other


def test_a_token_comes_in_and_no_answer_repeats_it(routes: Routes, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr("studio.pages.settings.routes.log_in", given.append)
    answer = routes.client.post("/studio/settings/token", json={"token": f" {SECRET}\n"})
    assert given == [SECRET]
    assert answer.json()["said"].startswith("Saved.")
    refused = routes.client.post("/studio/settings/token", json={"token": SECRET * 99})
    assert refused.status_code == 422
    assert SECRET not in answer.text + refused.text


def test_what_is_chosen_is_kept_and_what_is_left_out_stays(routes: Routes, locations: Locations) -> None:
    for chosen in ({"notify": True}, {"kwh_price": 0.34, "currency": "CHF"}):
        assert routes.client.post("/studio/settings", json=chosen).json() == {"said": "Saved."}
    assert read_settings(locations) == Settings(notify=True, kwh_price=0.34, currency="CHF")
    for wrong in ({"kwh_price": -1}, {"kwh_price": 1e9}, {"currency": "x" * 9}, {"theme": "dark"}):
        assert routes.client.post("/studio/settings", json=wrong).status_code == 422
    assert '<input data-f="notify" type="checkbox" checked>' in page(routes.studio)


def test_folders_are_measured_and_only_our_caches_are_cleared(
    routes: Routes, locations: Locations, tmp_path: Path
) -> None:
    files = {"cache/tokens/K/part.npz": 3000, "cache/data/found.json": 40, "cache/nf4/K/weights": 500, "data/mine": 7,
             "runs/one/events.jsonl": 11}  # fmt: skip
    for name, size in files.items():
        place = locations.home / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(bytes(size))
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "model").write_bytes(bytes(9))
    assert sizes_of(locations) == {
        "home": 3558, "runs": 11, "data": 7, "unused": 0, "tokens": 3000, "findings": 40, "weights": 500, "hub": 9
    }  # fmt: skip
    assert routes.get("settings/sizes")["tokens"] == "3 KB"
    assert routes.client.post("/studio/settings/clear/tokens").json()["said"].startswith("3 KB freed")
    assert routes.client.post("/studio/settings/clear/weights").json()["said"].startswith("500 B freed")
    assert routes.client.post("/studio/settings/clear/weights").json()["said"].startswith("Nothing")
    for name in ("runs", "data", "hub", "home", ".."):
        assert routes.client.post(f"/studio/settings/clear/{name}").status_code in (404, 405, 422)
    left = sizes_of(locations)
    assert (left["runs"], left["data"], left["hub"], left["findings"], left["tokens"]) == (11, 7, 9, 40, 0)


def test_a_cache_that_is_a_link_is_not_followed(locations: Locations, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_bytes(bytes(5))
    (locations.cache / "data").symlink_to(elsewhere)
    assert clear_cache(locations, "findings") == 0
    assert (elsewhere / "mine").exists()


def test_only_old_data_files_that_nothing_names_are_unused(locations: Locations) -> None:
    """Each change of a file's rows keeps another data set."""
    run, asked, draft, new, old = (letter * 64 for letter in "abcde")
    for name in (run, asked, draft, new, old):
        (locations.data / name).mkdir(parents=True)
        (locations.data / name / "rows.jsonl").write_bytes(bytes(10))
        if name != new:
            os.utime(locations.data / name, (1, 1))
    (locations.data / "notes").mkdir()
    folder = locations.runs / "one"
    folder.mkdir(parents=True)
    (folder / "run.yaml").write_text(f"data: {{path: /home/data/{run}/rows.jsonl}}")
    (folder / "asked.json").write_text(json.dumps({"data": asked}))
    locations.draft.write_text(json.dumps({"path": f"/home/data/{draft}/rows.jsonl"}))
    assert sizes_of(locations)["unused"] == 10
    (locations.runs / "bad").mkdir()
    (locations.runs / "bad" / "run.yaml").mkdir()
    assert clear_cache(locations, "unused") == 0, "it may need any of them"
    (locations.runs / "bad" / "run.yaml").rmdir()
    assert clear_cache(locations, "unused") == 10
    assert sorted(one.name for one in locations.data.iterdir()) == [run, asked, draft, new, "notes"]
