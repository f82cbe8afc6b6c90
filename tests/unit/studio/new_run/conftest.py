"""A studio without children, and New run's handlers over it."""

from typing import Any

import pytest
from made_window import MACHINE, FakeData, Names

from core.machine.locations import Locations
from studio.pages.new_run import cache
from studio.pages.new_run.form import KNOBS, Form
from studio.pages.new_run.handlers import Handlers
from studio.pages.new_run.page import Page
from studio.services.services import Studio
from studio.services.session import first


@pytest.fixture
def fake_data() -> FakeData:
    return FakeData()


@pytest.fixture
def studio(locations: Locations, fake_data: FakeData) -> Studio:
    """A studio on a machine without a card and with 16 GiB."""
    made = Studio(locations, store=None, data=fake_data, port=8765)  # type: ignore[arg-type]
    made.machine = lambda: MACHINE  # type: ignore[method-assign]
    return made


@pytest.fixture
def handlers(studio: Studio) -> Handlers:
    """The page's handlers over fields that hold a first visit's draft."""
    form = Form()
    form.parts = Names()
    for key in ("data.path", "model.name", "preset", "draft_id", "columns", *KNOBS):
        form.fields[key] = f"field.{key}"
    began = first()
    made = Handlers(studio, Page(form, began))
    made.drafts.save(began)
    return made


_ROOM: dict[tuple[str, ...], Any] = {}


@pytest.fixture
def room_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run could do with the room that is left is arithmetic alone, and a third of the time of a test that looks
    at many drafts: of the same run, rows and machine it is found once for all of them."""

    def found(config: Any, spec: Any, facts: Any, machine: Any, learned: Any) -> Any:
        asked = (one.model_dump_json() if one else "" for one in (config, spec, facts))  # repr leaves lengths out
        key = (*asked, repr(machine), repr(learned))
        if key not in _ROOM:
            _ROOM[key] = find(config, spec, facts, machine, learned)
        return _ROOM[key]

    find = cache.use_the_room
    monkeypatch.setattr(cache, "use_the_room", found)
