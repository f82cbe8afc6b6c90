"""A studio without children."""

from __future__ import annotations

import pytest
from made_window import MACHINE, FakeData

from core.machine.locations import Locations
from studio.services.services import Studio


@pytest.fixture
def fake_data() -> FakeData:
    return FakeData()


@pytest.fixture
def studio(locations: Locations, fake_data: FakeData) -> Studio:
    """A studio on a machine without a card and with 16 GiB."""
    made = Studio(locations, store=None, data=fake_data, port=8765)  # type: ignore[arg-type]
    made.machine = lambda: MACHINE  # type: ignore[method-assign]
    return made
