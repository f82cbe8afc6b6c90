"""A report's job as its worker does it: the card first, then the measuring; it leaves when somebody wants it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import core.worker
from core.contract.events import Event
from core.machine.cards import CardSet, held_by
from core.machine.locations import Locations
from core.machine.locks import FileLock
from core.report.schema import read_report
from core.runs.control import gpu_lease
from core.runs.control.gpu_lease import GiveWay, SpareCard, take_card
from core.runs.control.reports import make_report
from core.runs.folder.job_folder import JobFolder, ReportRequest
from core.runs.log.events_log import EventTail
from core.worker import RESTART, main


def events(job: JobFolder) -> list[Event]:
    return list(EventTail(job.events).read())


def test_a_worker_measures_on_a_spare_card_and_leaves_it_to_try(
    trained: Callable[..., JobFolder], locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.report.measure import run as measure

    monkeypatch.setattr(gpu_lease, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(measure, "_PARTS", {name: measure._PARTS[name] for name in ("moved", "held_out")})
    run = trained()
    job, lock = make_report(run, ReportRequest())
    lock.release()
    taken, asking, cards = [], [], []
    monkeypatch.setattr(core.worker, "SpareCard", lambda *asked: cards.append(SpareCard(*asked)) or cards[-1])

    def look(making: object, slot: object) -> object:
        """Somebody opens Try while this part is measured."""
        assert held_by(locations, CardSet()) == f"the report on {run.name}"
        asking.append(threading.Thread(target=lambda: taken.append(take_card(locations, CardSet(), "Try"))))
        asking[0].start()
        while True:
            making.subject.safe_point()  # type: ignore[attr-defined]

    monkeypatch.setitem(measure._PARTS, "held_out", look)
    assert main([str(job.path)]) == RESTART
    assert getattr(events(job)[-1], "code", "") == "worker.gave_way"
    stands = read_report(run.report_json)
    assert stands
    assert [one.name for one in stands.parts] == ["moved"]
    cards[0].release()  # as the end of the worker's process does
    asking[0].join(10)
    assert held_by(locations, CardSet()) == "Try"
    taken[0].release()


def test_a_worker_that_imports_its_libraries_leaves_the_card_to_try(
    locations: Locations, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run, codes, left = JobFolder(tmp_path / "runs" / "2026-11-20_2243_told_k3f9"), [], threading.Event()
    (run.checkpoints / "step-000006").mkdir(parents=True)
    (run.checkpoints / "step-000006" / "MANIFEST.json").write_text("{}")
    job, lock = make_report(run, ReportRequest())
    lock.release()

    @contextmanager
    def slowly() -> Iterator[None]:
        wish = FileLock(locations.locks / f"{CardSet().locks[0]}.wish")
        assert wish.acquire()
        assert left.wait(10), "Try waits for 15 seconds, and libraries may take longer"
        wish.release()
        raise GiveWay
        yield

    def leave(code: int) -> None:
        codes.append(code)
        left.set()

    monkeypatch.setattr(gpu_lease, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(core.worker, "importing", slowly)
    monkeypatch.setattr(core.worker.os, "_exit", leave)
    main([str(job.path)])
    assert codes[0] == RESTART
    assert "worker.gave_way" in [getattr(event, "code", "") for event in events(job)]
