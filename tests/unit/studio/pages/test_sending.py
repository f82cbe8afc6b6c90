"""An export sent to the hub from the page and from a terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hub_stand_in import TOKEN
from hub_that_takes import HubThatTakes
from made_routes import Routes
from made_runs import RUN, MakeRun, append, past

from core.cli.commands import main
from core.contract.events import Exported, Finished, Queued, Starting
from core.runs.folder.job_folder import JobFolder


def exported(folder: JobFolder, form: str, done: bool = True) -> None:
    job = JobFolder(folder.jobs / form)
    job.path.mkdir(parents=True)
    job.export_yaml.write_text(f"name: {form}\nform: {form}\n")
    last = Exported(at=9.0, attempt=1, name=form, form=form, bytes=9, checks=())  # type: ignore[arg-type]
    end = (last, Finished(at=10.0, attempt=1)) if done else ()
    append(job, [Queued(at=1.0), Starting(at=2.0, attempt=1), *end])
    (folder.exports / form).mkdir(parents=True)
    (folder.exports / form / "README.md").write_text("---\nbase_model: a/b\n---\n# Mine\n")
    (folder.exports / form / "model.safetensors").write_bytes(bytes(100_000))


def test_from_the_page_and_from_a_terminal(
    routes: Routes,
    make_run: MakeRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from huggingface_hub import constants

    folder = make_run(past(100, finished=True), checkpoints=(100,))
    for form, done in (("merged", True), ("script", True), ("adapter", False)):
        exported(folder, form, done)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    at = f"run/{RUN}/export/merged/publish"

    def ended() -> Any:
        until = time.monotonic() + 20
        while (look := routes.get(at))["going"]:
            assert time.monotonic() < until
            time.sleep(0.02)
        return look

    with HubThatTakes(tmp_path / "hub") as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        assert routes.get(at) == {"login": False, "going": False, "share": 0.0, "page": "", "fault": None}
        assert routes.client.post(f"/studio/{at}", json={"to": "me/mine"}).status_code == 200
        assert ended()["fault"]["code"] == "hub.token"
        answer = routes.client.post(f"/studio/{at}", json={"to": " me/mine ", "token": TOKEN})
        assert TOKEN not in answer.text
        look = ended()
        assert (look["page"], look["private"], look["share"]) == (f"{hub.endpoint}/me/mine", True, 1.0)
        assert (hub.root / "me/mine" / "model.safetensors").stat().st_size == 100_000
        (tmp_path / "token").write_text(TOKEN)
        home = str(routes.studio.locations.home)
        assert main(["publish", RUN, "merged", "--to", "me/two", "--public", "--home", home]) == 0
    said = capsys.readouterr().out
    assert "sending     0%" in said or "sending   100%" in said
    assert f"{hub.endpoint}/me/two (public)" in said
    assert hub.private == {"me/mine"}


@pytest.mark.parametrize(("name", "code"), [("script", "export.rows"), ("adapter", "export.unfinished")])
def test_what_holds_rows_or_is_not_finished_stays_here(routes: Routes, make_run: MakeRun, name: str, code: str) -> None:
    exported(make_run(past(100, finished=True), checkpoints=(100,)), name, done=name == "script")
    answer = routes.client.post(f"/studio/run/{RUN}/export/{name}/publish", json={"to": "me/mine", "token": TOKEN})
    assert (answer.status_code, answer.json()["code"]) == (409, code)
