"""A browser and a studio for each module of browser tests. Where no browser can be had the tests fail and name the
three ways to one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import RunningStudio, launch, running_studio

sys.path.append(str(Path(__file__).parents[1] / "unit" / "studio"))  # runs are made there as a worker writes them

from screens import furnished

from core.machine.locations import Locations


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real Chromium, headless."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = launch(playwright)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudio]:
    """A studio of the module's own, in which nothing has happened yet."""
    with running_studio(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def furnished_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudio]:
    """A studio of the module's own, with runs in every state."""
    locations = Locations(tmp_path_factory.mktemp("furnished-home"))
    with furnished(locations), running_studio(locations.home) as running:
        yield running
