"""A studio without children, and New run's handlers over it."""

import pytest
from made_window import MACHINE, FakeData, Names

from core.machine.locations import Locations
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
