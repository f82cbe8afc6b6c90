"""A studio without children."""

from __future__ import annotations

import pytest

from core.machine.hardware import Machine
from core.machine.locations import Locations
from studio.services.services import Studio

MACHINE = Machine((), 2, 16 << 30, 12 << 30, 50 << 30, "Linux", False)


class AnyData:
    """Stands for ``DataService``: whatever is uploaded is data."""

    def first_look(self, *_: object) -> None:
        """Nothing is wrong with it."""


@pytest.fixture
def studio(locations: Locations) -> Studio:
    """A studio on a machine without a card and with 16 GiB."""
    made = Studio(locations, store=None, data=AnyData(), port=8765)  # type: ignore[arg-type]
    made.machine = lambda: MACHINE  # type: ignore[method-assign]
    return made
