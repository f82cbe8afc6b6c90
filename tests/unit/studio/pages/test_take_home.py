"""Take home: which runs have something to take, forms and their room, exports."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from desks import Desk, made_desk
from made_runs import append, past

from core.contract.config import RunConfig
from core.contract.events import Exported, Failed, Finished, Paused, Queued, Stage, Starting
from core.machine.locations import Locations
from core.runs.folder.job_folder import JobFolder

MakeRun = Callable[..., JobFolder]
RUN = "2026-11-20_2243_test_k3f9"


@pytest.fixture
def desk(locations: Locations) -> Desk:
    return made_desk(locations)


def test_the_history_is_sent_once_until_it_changes(desk: Desk, make_run: MakeRun) -> None:
    folder = make_run([*past(20), Paused(at=1e9, attempt=1, step=20)], name="<i>x</i>")
    first = desk.client.get("/studio/runs").json()
    row = first["runs"][0]
    assert (row["title"], row["word"], row["can"]) == (
        "<i>x</i>",
        "Paused",
        {"resume": True, "rerun": True, "rename": True, "delete": True, "watch": True},
    )
    assert desk.client.get(f"/studio/runs?tag={first['tag']}").json() == {"same": True, "tag": first["tag"]}
    append(folder, [Failed(at=1e9, attempt=1, code="x", message="Broken.", hint="")])
    assert desk.client.get(f"/studio/runs?tag={first['tag']}").json()["runs"][0]["word"] == "Failed"


def test_what_there_is_to_take_home(desk: Desk, make_run: MakeRun) -> None:
    folder = make_run(past(300, finished=True), checkpoints=(100, 200, 300))
    job = JobFolder(folder.jobs / "merged")
    job.path.mkdir(parents=True)
    job.export_yaml.write_text("name: merged\nform: merged\n")
    done = Exported(at=9.0, attempt=1, name="merged", form="merged", bytes=9_000_000, checks=("same logits",))
    append(job, [Queued(at=1.0), Starting(at=2.0, attempt=1), Stage(at=3.0, attempt=1, stage="merging"), done])
    append(job, [Finished(at=10.0, attempt=1, seconds=8.0)])
    keep = desk.client.get(f"/studio/run/{RUN}/keep").json()
    assert [item["name"] for item in keep["checkpoints"]] == ["best", "step-000200", "step-000100"]
    assert keep["checkpoints"][0]["words"] == "Best, step 300 (held-out loss 1.203)"
    assert {form["key"] for form in keep["forms"]} == {"adapter", "merged"}
    assert keep["jobs"][0]["path"] == str(folder.exports / "merged")
    assert keep["jobs"][0]["checks"] == ["same logits"]
    assert keep["disk"].endswith("free on this disk.")


def test_a_form_without_room_says_how_much_is_short(
    desk: Desk, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(past(100, finished=True), checkpoints=(100,))
    monkeypatch.setattr(
        "studio.pages.take_home.view.shutil.disk_usage", lambda _: type("Usage", (), {"free": 1_000_000})()
    )
    forms = {form["key"]: form for form in desk.client.get(f"/studio/run/{RUN}/keep").json()["forms"]}
    assert forms["adapter"]["room"]
    assert not forms["merged"]["room"]
    assert forms["merged"]["size"].endswith("more room first.")


def test_a_bad_export_request_is_refused(desk: Desk, make_run: MakeRun) -> None:
    make_run(past(5, finished=True))
    assert desk.client.post(f"/studio/run/{RUN}/export", json={"name": "../x", "form": "adapter"}).status_code == 422
    nothing = desk.client.post(f"/studio/run/{RUN}/export", json={"name": "x", "form": "adapter"})
    assert nothing.status_code == 409
    assert "checkpoint" in nothing.json()["message"]


def test_a_hub_models_merged_size_is_known_before_it_is_made() -> None:
    from core.contract.config import ModelChoice
    from studio.pages.take_home.view import _merged_bytes

    qwen = RunConfig(model=ModelChoice(source="hub", name="Qwen/Qwen3-4B"))
    assert _merged_bytes(qwen) == pytest.approx(8.04e9, rel=0.01)
    assert _merged_bytes(RunConfig(model=ModelChoice(source="folder", name="/nowhere"))) == 0


def test_an_export_can_be_stopped(desk: Desk, make_run: MakeRun) -> None:
    folder = make_run(past(100, finished=True), checkpoints=(100,))
    job = JobFolder(folder.jobs / "merged")
    job.path.mkdir(parents=True)
    job.export_yaml.write_text("name: merged\nform: merged\n")
    append(job, [Queued(at=1.0), Starting(at=2.0, attempt=1)])
    assert desk.client.post(f"/studio/run/{RUN}/export/merged/stop").json() == {"ok": True}
    assert json.loads(job.commands.read_text().splitlines()[-1])["verb"] == "stop"
    assert desk.client.post(f"/studio/run/{RUN}/export/none/stop").status_code == 409


def test_the_history_says_why_a_run_failed_until_it_goes_on(
    desk: Desk, make_run: MakeRun, alive: Callable[[JobFolder], None]
) -> None:
    folder = make_run([*past(5), Failed(at=1e9, attempt=1, code="x", message="Broken.", hint="")])
    assert desk.client.get("/studio/runs").json()["runs"][0]["cause"] == "Broken."
    append(folder, [Queued(at=2e9, attempt=2), Starting(at=2e9, attempt=2)])
    alive(folder)
    assert desk.client.get("/studio/runs").json()["runs"][0]["cause"] == ""


def test_a_failure_shows_though_an_older_studio_kept_the_summary(desk: Desk, make_run: MakeRun) -> None:
    folder = make_run([*past(5), Failed(at=1e9, attempt=1, code="x", message="Broken.", hint="")])
    desk.client.get("/studio/runs")
    kept = json.loads(folder.summary_json.read_text())
    del kept["summary"]["failure"]
    kept["key"] = kept["key"][1:]
    folder.summary_json.write_text(json.dumps(kept))
    assert desk.client.get("/studio/runs").json()["runs"][0]["cause"] == "Broken."


def test_no_run_and_no_checkpoint_are_two_things(desk: Desk, make_run: MakeRun) -> None:
    assert desk.client.get("/studio/runs?kept=1").json()["all"] == 0
    make_run(past(5))
    answer = desk.client.get("/studio/runs?kept=1").json()
    assert (answer["runs"], answer["all"]) == ([], 1)


def test_a_bad_export_job_is_left_out_and_the_others_are_shown(desk: Desk, make_run: MakeRun) -> None:
    folder = make_run(past(10, finished=True))
    for name in ("good", "bad"):
        (folder.jobs / name).mkdir(parents=True)
        (folder.jobs / name / "export.yaml").write_text("name: x\n")
    (folder.jobs / "bad" / "events.jsonl").mkdir()
    (folder.jobs / "away").symlink_to(folder.jobs / "good")
    kept = desk.client.get(f"/studio/run/{RUN}/keep").json()
    assert [job["name"] for job in kept["jobs"]] == ["good"]
    assert desk.client.post(f"/studio/run/{RUN}/export/away/stop").status_code == 409
