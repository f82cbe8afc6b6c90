"""What every page's header says of the run at work, and what a notice says of an end."""

import re
import time

import pytest
from made_routes import Routes, made_routes
from made_runs import MakeRun, append, past, worse

from core.contract.events import Failed, Finished, Queued
from core.machine.locations import Locations
from core.machine.locks import FileLock
from core.machine.settings import Settings, write_settings
from core.runs.control.queue import JobQueue
from core.runs.folder.job_folder import JobFolder
from studio.figures import now as figures
from studio.shell.frame import header

OTHER = "2026-11-18_2243_other_k3f9"
LIVING, WAITS, OVER = "2026-11-20_2243_living_k3f9", "2026-11-21_2243_waits_k3f9", "2026-11-19_2243_over_k3f9"


@pytest.fixture
def routes(locations: Locations) -> Routes:
    return made_routes(locations)


def alive(folder: JobFolder) -> FileLock:
    hold = FileLock(folder.supervisor_lock)
    assert hold.acquire()
    return hold


def test_the_run_at_work_stands_in_every_header_with_its_progress(routes: Routes, make_run: MakeRun) -> None:
    make_run(past(300, finished=True), OVER)
    quiet = routes.get("now")
    assert (quiet["id"], quiet["waiting"], quiet["ended"]) == ("", "", [])
    assert " hidden " in header("/history", quiet).split('class="now"')[1].split(">")[0] + " "
    living, waits = make_run(past(150, total=400), LIVING), make_run([Queued(at=1.0)], WAITS)
    holds = [alive(living), alive(waits)]
    JobQueue(routes.studio.locations).add(WAITS)
    now = routes.get("now")
    assert (now["id"], now["word"], now["percent"], now["waiting"]) == (LIVING, "Training", "38%", "1 waiting")
    assert now["left"].endswith(" left")
    beside = alive(make_run(past(20, total=400), OTHER))
    assert routes.get("now")["waiting"] == "1 more, 1 waiting", "on another card"
    beside.release()
    for path in ("/doctor", "/history", "/watch", "/report", "/glossary"):
        page = routes.client.get(path).text
        link = re.search(r'<a href="/watch\?run=' + LIVING + r'" class="now".*?</a>', page)
        assert link, path
        assert all(words in link.group() for words in ("38%", " left", "1 waiting"))
    holds[0].release()  # its process died
    assert routes.get("now")["id"] == ""
    holds[1].release()


def test_what_ended_is_told_once_and_no_ruined_model_as_finished(
    routes: Routes, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(past(300, finished=True), OVER)
    since = routes.get("now")["now"]
    assert abs(since - time.time()) < 60
    assert routes.get("now", since=since)["ended"] == []
    bad, broken = make_run(worse()[:-1], LIVING), make_run(past(20), WAITS)
    append(bad, [Finished(at=since + 1, attempt=1)])
    append(broken, [Failed(at=since + 2, attempt=1, code="memory.gpu", message="The card's memory is full.")])
    answer = routes.get("now", since=since)
    told = {run["id"]: (run["word"], run["words"]) for run in answer["ended"]}
    assert told[LIVING][0] == "Came out worse"
    assert told[LIVING][1].startswith("Do not use this one")
    assert told[WAITS] == ("Failed", "The card's memory is full.")
    assert routes.get("now", since=answer["now"])["ended"] == []
    assert not answer["desktop"]
    monkeypatch.setattr(figures, "can_tell", lambda wsl: True)
    write_settings(routes.studio.locations, Settings(notify=True))
    assert routes.get("now", since=since)["desktop"], "the runs tell themselves"
