"""The report page over made runs: before, while and after a report is made; its files, the choices, the counts."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_routes import Routes
from made_runs import RUN, past

from core.contract.errors import MachineError
from core.contract.events import Failed, Queued, Stage, Starting
from core.report.choices import Check, ReportChoices, read_choices
from core.report.schema import Report, read_report
from core.runs.folder.job_folder import JobFolder, ReportRequest
from core.runs.log.events_log import EventWriter
from studio.pages.report.__main__ import main
from tests.report_example import example

OTHER = "2026-11-19_2243_other_k3f9"
CHECKS = {"checks": [{"name": "Right", "kind": "contains"}, {"name": "Short", "kind": "length", "most": 2}]}


@pytest.fixture
def run(make_run: Callable[..., JobFolder]) -> JobFolder:
    return make_run(past(100, finished=True), name="House style", checkpoints=(100,))


def reported(run: JobFolder, **changed: Any) -> Report:
    report = example(run.name).model_copy(update=changed)
    run.report_json.write_text(report.model_dump_json(), encoding="utf-8")
    return report


def at_work(run: JobFolder, *events: Any) -> None:
    """The folder of a report's job with these events."""
    job = run.report_job
    job.path.mkdir(parents=True)
    job.report_yaml.write_text("checkpoint: best\n", encoding="utf-8")
    writer = EventWriter(job.events, 1)
    for event in (Queued(at=time.time()), Starting(at=time.time(), attempt=1), *events):
        writer.write(event)
    writer.close()


def page(routes: Routes, *runs: str) -> str:
    answer = routes.client.get("/report", params={"run": runs})
    assert answer.status_code == 200
    return answer.text


def test_without_a_run_the_page_leads_to_the_first(routes: Routes) -> None:
    assert "No runs yet." in page(routes)


def test_a_run_without_a_report_offers_to_make_one_and_is_asked_for_it(
    routes: Routes, run: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "There is no run called" in page(routes, "../../etc"), "a fault is said on the page"
    html = page(routes)
    assert "This run has no report yet." in html
    assert "House style" in html
    assert routes.get(f"run/{RUN}/report") == {"stamp": "", "living": False, "text": "", "share": None, "fault": ""}
    asked: list[tuple[str, ReportRequest]] = []
    monkeypatch.setattr(routes.studio.store, "report", lambda *request: asked.append(request))
    assert routes.client.post(f"/studio/run/{RUN}/report", json={"again": True, "minutes": 2}).json() == {"ok": True}
    assert asked == [(RUN, ReportRequest(again=True, minutes=2))]
    assert routes.client.post(f"/studio/run/{RUN}/report", json={"minutes": -1}).status_code == 422


def test_a_report_being_made_shows_how_far_it_is(
    routes: Routes, run: JobFolder, alive: Callable[[JobFolder], None]
) -> None:
    stage = {"stage": "measuring", "text": "Held-out rows", "done": 24, "total": 96}
    at_work(run, Stage.model_validate({"at": time.time(), "attempt": 1, **stage}))
    alive(run.report_job)
    told = routes.get(f"run/{RUN}/report")
    assert (told["living"], told["text"], told["share"]) == (True, "Held-out rows", 0.25)
    before = told["stamp"]
    reported(run)
    assert routes.get(f"run/{RUN}/report")["stamp"] != before


def test_a_failure_is_said_and_what_was_measured_stays(routes: Routes, run: JobFolder) -> None:
    reported(run)
    at_work(run, Failed(at=time.time(), attempt=1, message="Expected room, found the card full.", hint="Close a game."))
    told = routes.get(f"run/{RUN}/report")
    assert (told["living"], told["fault"]) == (False, "Expected room, found the card full. Close a game.")
    assert "It learned" in page(routes, RUN)


def test_files_are_the_page_and_the_schema(routes: Routes, run: JobFolder) -> None:
    report = reported(run)
    html = routes.client.get("/studio/report.html", params={"run": RUN})
    assert html.headers["content-disposition"] == f'attachment; filename="{RUN}-report.html"'
    assert html.text.index("House style") < html.text.index("It learned"), "under the name that the run has now"
    assert Report.model_validate(routes.get("report.json", run=RUN)) == report
    for path in ("report.html", "report.json"):
        assert routes.client.get(f"/studio/{path}", params={"run": OTHER}).status_code == 404
    assert f"/studio/report.html?run={RUN}" in page(routes, RUN)


def test_the_command_lines_file_is_the_same(
    routes: Routes, run: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reported(run)
    target = tmp_path / "given.html"
    asked = ["report", str(routes.studio.locations.home), str(target), RUN]
    monkeypatch.setattr("sys.argv", asked)
    assert main() == 0
    assert target.read_text(encoding="utf-8") == routes.client.get("/studio/report.html", params={"run": RUN}).text
    assert capsys.readouterr().out == f"written   {target}\n"
    monkeypatch.setattr("sys.argv", [*asked[:2], str(tmp_path / "no" / "where.html"), RUN])
    with pytest.raises(MachineError, match=r"Could not write .*where\.html"):
        main()


def test_two_reports_stand_beside_each_other_and_one_that_lacks_is_named(
    routes: Routes, run: JobFolder, make_run: Callable[..., JobFolder]
) -> None:
    reported(run)
    other = make_run(past(100, finished=True), run_id=OTHER, name="The other")
    html = page(routes, RUN, OTHER)
    assert "There is no report on" in html
    assert OTHER in html
    reported(other, held_out_sha256="00")
    html = page(routes, RUN, OTHER)
    assert "At a glance" in html
    assert "cannot be ranked" in html
    assert len(routes.get("report.json", run=[RUN, OTHER])) == 2
    assert "The other" in routes.client.get("/studio/report.html", params={"run": [RUN, OTHER]}).text


def test_a_damaged_report_is_none(routes: Routes, run: JobFolder) -> None:
    for text in ("{", '{"run_id": 7}', '{"version": 99, "run_id": "x"}', '{"run_id": "x", "parts": [{"name": "?"}]}'):
        run.report_json.write_text(text, encoding="utf-8")
        assert "This run has no report yet." in page(routes, RUN)


def test_checks_are_kept_and_counted_in_the_answers_that_are_there(routes: Routes, run: JobFolder) -> None:
    reported(run)
    saved = routes.client.post("/studio/report-choices", json=CHECKS)
    assert saved.json() == {"ok": True}
    assert [check.kind for check in read_choices(routes.studio.locations).checks] == ["contains", "length"]
    assert "The checks have changed" in page(routes, RUN)
    assert routes.client.post(f"/studio/run/{RUN}/report/checks").json() == {"ok": True}
    report = read_report(run.report_json)
    assert report
    assert report.answers
    assert [(tally.check.name, tally.passed_after) for tally in report.answers.tallies] == [("Right", 3), ("Short", 3)]
    assert "The checks have changed" not in page(routes, RUN)


def test_what_is_chosen_is_refused_with_a_reason(routes: Routes) -> None:
    twice = {"checks": [{"name": "Same", "kind": "exact"}, {"name": "Same", "kind": "json"}]}
    for body, code, words in (
        (twice, 409, "Two checks are called “Same”"),
        ({"general": "/nowhere/at/all.txt"}, 409, "There is no file of texts at"),
        ({"checks": [{"name": "", "kind": "exact"}]}, 422, "name"),
    ):
        answer = routes.client.post("/studio/report-choices", json=body)
        assert (answer.status_code, words in answer.json()["message"]) == (code, True), answer.text
    assert read_choices(routes.studio.locations) == ReportChoices()


def test_each_kind_of_check_can_be_edited(routes: Routes, run: JobFolder) -> None:
    chosen = ReportChoices.model_validate(CHECKS).model_dump(mode="json")
    assert routes.client.post("/studio/report-choices", json=chosen).json() == {"ok": True}
    html = page(routes, RUN)
    for kind in Check.model_fields["kind"].annotation.__args__:  # type: ignore[union-attr]
        assert f"&quot;key&quot;: &quot;{kind}&quot;" in html


def test_a_run_that_trains_is_waited_for(routes: Routes, make_run: Callable[..., JobFolder], alive: Any) -> None:
    alive(make_run(past(100, total=400)))
    html = page(routes, RUN)
    assert "This run has not ended." in html
    assert "Make the report" not in html
