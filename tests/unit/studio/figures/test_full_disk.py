"""A disk without room: the studio opens and says so, and deleting, which is what is wanted then, works."""

import errno
from collections.abc import Callable

import pytest
from made_routes import Routes
from made_runs import RUN, past

from core.machine.locations import Locations
from core.runs.control.queue import JobQueue
from core.runs.folder.job_folder import JobFolder
from studio.figures import run_figures
from studio.figures.run_figures import full_disk
from studio.server.access.listening import Front
from studio.server.access.sessions import AccessTokens
from studio.server.living import living_studio, remember

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
    monkeypatch.setattr(run_figures, "LEAST_BYTES", 1 << 62)


@pytest.mark.usefixtures("full")
def test_a_browser_is_let_in_for_as_long_as_the_studio_lives_and_until_revoke(
    door: AccessTokens, locations: Locations
) -> None:
    cookie = door.enter(door.token())
    assert cookie
    assert door.knows(cookie)
    assert not door.knows("another")
    with remember(locations, Front(1), "secret"):  # nobody can be told, and that is no reason not to open
        assert living_studio(locations) is None
    locations.sessions.write_text('{"era": "another", "browsers": {}}')
    assert not door.knows(cookie)


def test_the_history_says_so_and_deletes_also_a_run_that_waits(
    routes: Routes, locations: Locations, make_run: Callable[..., JobFolder], request: pytest.FixtureRequest
) -> None:
    make_run(past(10, finished=True))
    JobQueue(locations).add(RUN)  # a dead one
    assert full_disk(locations.home) == full_disk(locations.home / "gone") == ""
    request.getfixturevalue("full")
    answer = routes.get("history")
    said = f"The disk of {locations.home} is full. Delete runs or exports in the history to make room."
    assert answer["disk"] == said
    assert [run["id"] for run in answer["runs"]] == [RUN]
    assert routes.client.post(f"/studio/run/{RUN}/delete").json() == {"ok": True}
    assert routes.get("history")["runs"] == []
