"""One data service for the tests of the command line: its children are what takes the time."""

from collections.abc import Iterator
from contextlib import closing, nullcontext

import pytest

from core.data.service.data_service import DataService
from core.machine.locations import Locations


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataService]:
    with closing(DataService(Locations.find(tmp_path_factory.mktemp("service")).make())) as service:
        yield service


@pytest.fixture
def served(service: DataService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that prepare a run do it with the one service, and leave it open."""
    monkeypatch.setattr("core.cli.forecast.DataService", lambda _locations: service)
    monkeypatch.setattr("core.cli.forecast.closing", nullcontext)
