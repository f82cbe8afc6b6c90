"""A disk without room: the studio opens and says so, and deleting, which is what is wanted then, works."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from desks import made_desk
from made_runs import past

from core.machine.locations import Locations
from core.runs.control.queue import JobQueue
from core.runs.folder.job_folder import JobFolder
from studio.figures import full_disk as full_disk_module
from studio.figures.full_disk import full_disk
from studio.server.access.address import Front
from studio.server.access.sessions import AccessTokens
from studio.server.living import living_studio, only_studio, remember

RUN = "2026-11-20_2243_test_k3f9"
WRITERS = (
    "studio.server.living",
    "core.machine.sessions",
    "core.runs.control.queue",
    "core.runs.record.summary",
    "core.runs.folder.notes",
    "core.runs.control.create",
)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for module in WRITERS:
        monkeypatch.setattr(f"{module}.write_whole", refused)
    monkeypatch.setattr(full_disk_module, "LEAST_BYTES", 1 << 62)


@pytest.mark.usefixtures("full")
def test_a_browser_is_let_in_for_as_long_as_the_studio_lives(locations: Locations) -> None:
    door = AccessTokens(locations.sessions)
    cookie = door.enter(door.token())
    assert cookie
    assert door.knows(cookie)
    assert not door.knows("another")
    with remember(locations, Front(1), "secret"):  # nobody can be told, and that is no reason not to open
        assert living_studio(locations) is None


@pytest.mark.usefixtures("full")
def test_a_cookie_that_was_not_written_ends_with_revoke_too(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = AccessTokens(locations.sessions)
    cookie = door.admit()
    locations.sessions.write_text('{"era": "another", "browsers": {}}')
    assert not door.knows(cookie)


def test_another_fault_of_the_sessions_file_is_one(locations: Locations) -> None:
    locations.sessions.mkdir()
    with pytest.raises(OSError, match="file"):
        AccessTokens(locations.sessions).admit()


@pytest.mark.usefixtures("full")
def test_the_history_says_so_and_deletes(locations: Locations, make_run: Callable[..., JobFolder]) -> None:
    make_run(past(10, finished=True), RUN)
    desk = made_desk(locations)
    answer = desk.get("history")
    assert (
        answer["disk"] == f"The disk of {locations.home} is full. Delete runs or exports in the history to make room."
    )
    assert [run["id"] for run in answer["runs"]] == [RUN]
    assert desk.client.post(f"/studio/run/{RUN}/delete").json() == {"ok": True}
    assert desk.get("history")["runs"] == []


def test_a_waiting_run_is_deleted_though_the_queue_cannot_be_written(
    locations: Locations, make_run: Callable[..., JobFolder], request: pytest.FixtureRequest
) -> None:
    make_run(past(10, finished=True), RUN)
    JobQueue(locations).add(RUN)  # a dead one
    request.getfixturevalue("full")
    assert made_desk(locations).client.post(f"/studio/run/{RUN}/delete").json() == {"ok": True}


def test_a_disk_with_room_says_nothing(locations: Locations) -> None:
    assert full_disk(locations.home) == ""
    assert full_disk(locations.home / "gone") == ""


def test_of_two_studios_in_one_instant_the_second_waits_for_the_first(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([None, None, None, None, "http://127.0.0.1:1/"])
    with only_studio(locations) as first:
        assert first is None
        monkeypatch.setattr("studio.server.living.living_studio", lambda _: next(answers))
        with only_studio(locations) as second:
            assert second == "http://127.0.0.1:1/"
    monkeypatch.setattr("studio.server.living.living_studio", lambda _: None)
    with only_studio(locations) as third:
        assert third is None


def test_one_that_holds_the_place_and_never_answers_is_not_waited_for_for_ever(locations: Locations) -> None:
    with only_studio(locations), only_studio(locations, seconds=0.3) as second:
        assert second is None
