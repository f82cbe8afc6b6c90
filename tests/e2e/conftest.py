"""A browser for each module of browser tests. Where none can be had the tests fail and name the three ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from driving import launch


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real Chromium, headless."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = launch(playwright)
        yield opened
        opened.close()
