"""Runs as files through the window: saved, opened, refused; and the settings of an opened one run again."""

import io
import zipfile
from pathlib import Path

import pytest
from made_routes import Routes, made_routes
from made_runs import MakeRun, past

from core.contract.config import DataChoice, RunConfig
from core.contract.events import Queued
from core.machine.disk import file_sha256
from core.machine.locations import Locations
from core.machine.locks import FileLock
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import mark
from core.runs.folder.run_yaml import dump_config
from studio.services.session import sample_path

RUN = "2026-11-20_2325_good_k3f9"


def packed(routes: Routes, run_id: str = RUN, adapter: bool = False) -> bytes:
    answer = routes.client.post(f"/studio/run/{run_id}/pack", json={"adapter": adapter})
    assert answer.status_code == 200, answer.text
    path = answer.json()["path"]
    file = routes.client.get(path)
    assert file.headers["content-disposition"] == 'attachment; filename="Good-one.luthier.zip"'
    assert routes.client.get(path).status_code == 404, "it is sent once"
    assert list(routes.studio.locations.uploads.iterdir()) == []
    return file.content


def opened(routes: Routes, content: bytes, name: str = "Good-one.luthier.zip") -> str:
    answer = routes.client.put("/studio/open", content=content, headers={"X-File-Name": name})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["run"])


def test_a_run_is_saved_opened_shown_compared_and_run_again(routes: Routes, make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(past(300, finished=True), RUN, name="Good one", checkpoints=(300,))
    sample = sample_path("instruction")
    data = DataChoice(path=str(sample), sha256=file_sha256(sample))
    folder.run_yaml.write_text(dump_config(RunConfig(name="Good one", data=data)), encoding="utf-8")
    there = made_routes(Locations(tmp_path / "there").make())
    run_id = opened(there, packed(routes))
    row = there.get("history")["runs"][0]
    assert (row["id"], row["title"], row["opened"], row["held_out"]) == (run_id, "Good one", True, "2.500 → 1.203")
    assert {verb for verb, can in row["can"].items() if can} == {"rerun", "rename", "delete", "watch", "file"}
    status = there.get("points", run=run_id)["status"]
    assert (status["name"], status["kept"], status["buttons"]["resume"]) == ("Good one", False, False)
    assert there.client.post(f"/studio/run/{run_id}/rerun").json() == {"go": "/"}
    assert there.drafts[0].data == data, "the sample is here, too"
    assert status["own"]["opened"].startswith("Opened from a file without weights")
    mark(JobFolder(there.studio.locations.runs / run_id), {"note": "theirs", "tags": ["given"]})
    assert there.get("points", run=run_id)["status"]["own"]["tags"] == ["given"]
    second = opened(there, packed(there, run_id))
    compared = there.get("compare", runs=f"{run_id},{second}")
    assert (compared["groups"], compared["runs"][0]["kept_of_it"]) == ([[0, 1]], "From a file · #given · theirs")
    other = data.model_copy(update={"path": "/mine/own.csv", "sha256": "a" * 64})
    folder.run_yaml.write_text(dump_config(RunConfig(name="Good one", data=other)), encoding="utf-8")
    there.client.post(f"/studio/run/{opened(there, packed(routes))}/rerun")
    assert (there.drafts[1].data.path, there.drafts[1].data.sha256) == ("", ""), "its data is to be chosen"
    assert there.client.post(f"/studio/run/{run_id}/resume").status_code == 409
    assert there.client.post(f"/studio/run/{RUN}/pack", json={}).status_code == 404


@pytest.mark.parametrize("content", [b"", b"PK", b"a,b\n1,2\n"])
def test_what_is_no_run_is_refused_and_leaves_nothing(routes: Routes, content: bytes) -> None:
    headers = {"X-File-Name": "..%2F..%2Fevil.zip"}
    answer = routes.client.put("/studio/open", content=content, headers=headers)
    assert (answer.status_code, answer.json()["message"]) == (409, "evil.zip does not hold a run.")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("../../luthier.json", "{}")
    assert routes.client.put("/studio/open", content=buffer.getvalue()).status_code == 409
    assert list(routes.studio.locations.uploads.iterdir()) == []
    assert list(routes.studio.locations.runs.iterdir()) == []


def test_a_run_at_work_and_one_without_an_adapter_are_not_saved(routes: Routes, make_run: MakeRun) -> None:
    folder = make_run([Queued(at=1.0)], RUN, name="Good one")
    lock = FileLock(folder.supervisor_lock)
    assert lock.acquire()
    assert routes.client.post(f"/studio/run/{RUN}/pack").json()["code"] == "run.busy"
    lock.release()
    make_run(past(5, finished=True), "2026-11-19_2325_bare_k3f9")
    bare = routes.client.post("/studio/run/2026-11-19_2325_bare_k3f9/pack", json={"adapter": True})
    assert (bare.status_code, bare.json()["code"]) == (409, "run.file")
    assert list(routes.studio.locations.uploads.iterdir()) == []
