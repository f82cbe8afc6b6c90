"""The job of a report: when it begins, what it waits for and whom it gives way to."""

import sys
import threading
import time

import pytest
from living_runs import Config, RunsHere, Until, gone

from core.contract.errors import RunError
from core.machine.cards import CardLock, CardSet, held_by
from core.machine.locations import Locations
from core.machine.locks import FileLock
from core.runs.control import gpu_lease
from core.runs.control.gpu_lease import GIVES_WAY, GiveWay, SpareCard, take_card
from core.runs.control.queue import JobQueue
from core.runs.control.reports import SWITCH, report_after
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import ExportRequest, JobFolder, ReportRequest
from core.runs.record.job_record import RunRecord
from core.runs.record.summary import nobody_lives
from studio.pages.take_home.view import export_names
from tests.bare_run import bare_run

CPU = CardSet()


def test_a_report_is_a_job_that_gives_way_as_often_as_it_must(
    store: RunStore, here: RunsHere, config: Config, until: Until
) -> None:
    run_id = here.start(config("train 1"))
    until(run_id, "finished")
    run = here.open(run_id)
    assert here.report_record(run_id) is None
    job = here.report(run_id)
    assert (job.kind, job.run_folder) == ("report", run)
    assert gone(lambda: here.report_record(run_id).state != "finished"), here.report_record(run_id)
    assert here.report_record(run_id).attempt == 4, "more often than a worker may fail"
    assert run.report_json.exists()
    name = here.export(run_id, ExportRequest(name="report"))
    assert export_names(run) == [name], "its folder is not taken for an export's"
    store.report(run_id, ReportRequest(minutes=1))
    assert gone(lambda: store.report_record(run_id).state == "queued")
    with pytest.raises(RunError, match="being made"):
        store.report(run_id)
    assert gone(lambda: not nobody_lives(store.export_folder(run_id, name)))
    store.delete(run_id)  # ends it, supervisor and worker
    assert store.list() == []


def test_a_run_without_a_checkpoint_has_no_report(store: RunStore, config: Config) -> None:
    run = bare_run(store, config("train 1"))
    with pytest.raises(RunError, match="Expected a checkpoint"):
        store.report(run.name)


@pytest.mark.parametrize(
    ("state", "wanted", "switch", "made"),
    [
        ("finished", True, "", True),
        ("finished", False, "", False),
        ("finished", True, "off", False),
        ("stopped", True, "", False),
        ("failed", True, "", False),
    ],
)
def test_a_finished_run_makes_its_report_by_itself(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch, state: str, wanted: bool, switch: str, made: bool
) -> None:
    monkeypatch.setenv(SWITCH, switch)
    asked = config("train 1")
    asked = asked.model_copy(update={"train": asked.train.model_copy(update={"report": wanted})})
    run = bare_run(store, asked)
    checkpoint = run.checkpoints / "step-000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "MANIFEST.json").write_text("{}")
    record = RunRecord(state=state)  # type: ignore[arg-type]
    assert report_after(run, record, store.locations, (sys.executable, "-c", "pass")) == made
    assert run.report_job.report_yaml.exists() == made


def test_a_spare_card_is_taken_after_runs_and_left_for_whoever_wishes(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_lease, "LOOK_SECONDS", 0.1)
    run, card, said = CardLock(locations, CPU), SpareCard(locations, CPU, f"{GIVES_WAY}a run"), []
    assert run.acquire("2026-11-20_2243_first_k3f9")
    threading.Timer(0.3, run.release).start()
    begun = time.monotonic()
    card.take(said.append)
    assert time.monotonic() - begun > 0.2
    assert said == ["2026-11-20_2243_first_k3f9 has the CPU"]
    card.check()
    taken: list[CardLock] = []
    asking = threading.Thread(target=lambda: taken.append(take_card(locations, CPU, "Try")))
    asking.start()
    assert gone(lambda: not card.wanted())
    with pytest.raises(GiveWay):
        card.check()
    card.release()
    asking.join(5)
    assert held_by(locations, CPU) == "Try"
    taken[0].release()
    card.take(said.append)
    card.check()
    card.release()


def test_a_run_that_waits_for_the_card_has_it_first(
    store: RunStore, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_lease, "LOOK_SECONDS", 0.1)
    run, card = bare_run(store, config("train 1")), SpareCard(store.locations, CPU, f"{GIVES_WAY}a run")
    card.take(print)
    JobQueue(store.locations).add(run.name)
    lives = FileLock(JobFolder(run.path).supervisor_lock)
    assert lives.acquire()
    assert gone(lambda: not card.wanted())
    with pytest.raises(GiveWay):
        card.check()
    card.release()
    lives.release()
