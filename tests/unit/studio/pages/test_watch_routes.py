"""Watch: a tick of one run, the commands that steer it, and runs that cannot be read whole."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from desks import Desk, made_desk
from made_runs import past

from core.contract.events import Paused
from core.machine.locations import Locations
from core.runs.folder.job_folder import JobFolder
from studio.figures.points import EXACT

MakeRun = Callable[..., JobFolder]
RUN = "2026-11-20_2243_test_k3f9"


@pytest.fixture
def desk(locations: Locations) -> Desk:
    return made_desk(locations)


def test_a_tick_has_words_and_numbers_and_asks_for_the_log_apart(desk: Desk, make_run: MakeRun) -> None:
    make_run(past(300, finished=True), name="Mine")
    answer = desk.client.get("/studio/points", params={"run": RUN, "smooth": "0.9"}).json()
    assert answer["status"]["name"] == "Mine"
    assert answer["points"]["steps"][-1] == 300
    assert set(answer["points"]["smooth"]) == set(answer["points"]["raw"]) - EXACT
    assert "log" not in answer
    assert any("Finished" in line for line in desk.client.get(f"/studio/points?run={RUN}&log=1").json()["log"])


def test_nonsense_in_the_address_is_no_fault(desk: Desk, make_run: MakeRun) -> None:
    make_run(past(10))
    asked = {"run": RUN, "since": "-5", "smooth": "nan?", "first": "x", "last": "9" * 40, "shape": "\x00"}
    assert desk.client.get("/studio/points", params=asked).status_code == 200


def test_without_a_run_there_is_nothing_to_watch(desk: Desk) -> None:
    assert desk.client.get("/studio/points").json() == {"run": ""}


@pytest.mark.parametrize("name", ["../../etc", "2026-11-20_2243_none_k3f9", "x" * 300])
def test_an_unknown_run_is_404_and_one_line(desk: Desk, name: str) -> None:
    answer = desk.client.get("/studio/points", params={"run": name})
    assert answer.status_code == 404
    assert answer.json()["message"].startswith("Expected a run")


def test_a_run_without_processes_is_lost_and_a_living_one_is_not(
    desk: Desk, make_run: MakeRun, alive: Callable[[JobFolder], None]
) -> None:
    folder = make_run(past(10, total=20))
    assert desk.client.get(f"/studio/points?run={RUN}").json()["status"]["state"] == "lost"
    alive(folder)
    assert desk.client.get(f"/studio/points?run={RUN}").json()["status"]["state"] == "training"


@pytest.mark.parametrize("verb", ["pause", "save", "stop", "stop_now"])
def test_verbs_reach_the_mailbox(desk: Desk, make_run: MakeRun, alive: Callable[[JobFolder], None], verb: str) -> None:
    folder = make_run(past(10, total=20))
    alive(folder)
    assert desk.client.post(f"/studio/run/{RUN}/{verb}").json() == {"ok": True}
    assert json.loads(folder.commands.read_text().splitlines()[-1])["verb"] == verb


def test_a_run_that_has_not_ended_is_discarded_and_one_that_has_is_not(desk: Desk, make_run: MakeRun) -> None:
    folder = make_run([*past(10, total=20), Paused(at=1e9, attempt=1, step=10)])
    assert desk.client.post(f"/studio/run/{RUN}/discard").json() == {"go": "/history"}
    assert not folder.path.exists()
    folder = make_run(past(10, finished=True))
    answer = desk.client.post(f"/studio/run/{RUN}/discard")
    assert (answer.status_code, folder.path.is_dir()) == (409, True)


def test_a_verb_that_makes_no_sense_is_refused_in_one_line(desk: Desk, make_run: MakeRun) -> None:
    make_run(past(10, finished=True))
    answer = desk.client.post(f"/studio/run/{RUN}/pause")
    assert answer.status_code == 409
    assert "cannot be paused" in answer.json()["message"]


def test_verbs_want_a_post(desk: Desk, make_run: MakeRun) -> None:
    make_run(past(1))
    assert desk.client.get(f"/studio/run/{RUN}/stop").status_code == 405


def test_a_run_can_be_repeated(desk: Desk, make_run: MakeRun) -> None:
    folder = make_run(past(5, finished=True), name="Again")
    config = desk.client.get(f"/studio/run/{RUN}/config").json()
    assert "learning_rate" in config["yaml"]
    assert config["command"] == f"python3 launcher.py train {folder.run_yaml} --home {desk.studio.locations.home}"
    assert desk.client.post(f"/studio/run/{RUN}/rerun").json() == {"go": "/"}
    assert desk.drafts == [folder.config()]


def test_deleting_forgets_the_run(desk: Desk, make_run: MakeRun) -> None:
    folder = make_run(past(5, finished=True))
    desk.client.get(f"/studio/points?run={RUN}")
    assert desk.client.post(f"/studio/run/{RUN}/delete").status_code == 200
    assert not folder.path.exists()
    assert desk.client.get(f"/studio/points?run={RUN}").status_code == 404


BAD = "2026-11-20_2250_bad_k3f9"


@pytest.mark.parametrize("file", ["events.jsonl", "summary.json", "run.yaml", "name", "checkpoints", "jobs"])
def test_one_bad_run_is_shown_with_its_reason_and_the_house_stays_open(
    desk: Desk, make_run: MakeRun, file: str
) -> None:
    make_run(past(10, finished=True))
    bad = make_run(past(10, finished=True), run_id=BAD)
    (bad.path / file).unlink(missing_ok=True)
    (bad.path / file).symlink_to("/dev/zero")
    get, post = desk.client.get, desk.client.post
    rows = {row["id"]: row for row in get("/studio/history").json()["runs"]}
    assert rows[BAD]["word"] == "Unreadable"
    assert rows[BAD]["cause"] == f"This run cannot be read: {file} is a link."
    assert rows[BAD]["can"] == {"resume": False, "rerun": False, "rename": False, "delete": True, "watch": False}
    assert rows[RUN]["word"] == "Finished"
    assert get("/studio/points").json()["run"] == RUN
    for path in ("runs", "runs?kept=1", "ended", "queue"):
        assert get(f"/studio/{path}").status_code == 200
    asked = [
        get(f"/studio/points?run={BAD}"),
        *(get(f"/studio/run/{BAD}/{what}") for what in ("keep", "config", "yaml")),
    ]
    asked += [get(f"/studio/compare?runs={RUN},{BAD}"), post(f"/studio/run/{BAD}/resume")]
    assert {answer.status_code for answer in asked} == {409}
    assert all(f"{file} is a link" in answer.json()["message"] for answer in asked)
    assert post(f"/studio/run/{BAD}/delete").json() == {"ok": True}
    assert [row["id"] for row in get("/studio/history").json()["runs"]] == [RUN]


def test_damage_of_a_log_and_fields_of_another_version_are_told(desk: Desk, make_run: MakeRun) -> None:
    folder = make_run(past(10, finished=True))
    folder.events.write_bytes(folder.events.read_bytes() + b'{"kind":"note","te\n')
    with folder.run_yaml.open("a") as file:
        file.write("later: 1\n")
    notes = desk.client.get(f"/studio/points?run={RUN}").json()["status"]["notes"]
    assert [words for words, _ in notes] == [
        "1 line of this run's log is damaged or missing: what stood there is not shown.",
        "run.yaml was written by another version; fields that this one does not know are left out: later.",
    ]
    row = desk.client.get("/studio/history").json()["runs"][0]
    assert row["cause"].startswith("1 line of this run's log is damaged")
    assert desk.client.get(f"/studio/run/{RUN}/config").status_code == 200


def test_a_page_is_told_what_is_wrong_with_a_config(desk: Desk, make_run: MakeRun) -> None:
    folder = make_run(past(10, finished=True))
    folder.run_yaml.write_text("lora: {r: none}\n")
    told = desk.client.get(f"/studio/run/{RUN}/config").json()
    assert "lora.r" in told["problems"][0]


@pytest.mark.parametrize(
    "numbers", ['"at":1e11,"seconds":1e11,"loss":1e300', '"at":1e300', '"step":99999999999999999999']
)
def test_no_number_of_a_log_stops_a_page(desk: Desk, make_run: MakeRun, numbers: str) -> None:
    folder = make_run(past(10, total=20))
    with folder.events.open("a") as log:
        log.write(f'{{"kind":"step","attempt":1,{numbers}}}\n')
    for path in (f"points?run={RUN}&log=1", "history", "runs"):
        assert desk.client.get(f"/studio/{path}").status_code == 200
