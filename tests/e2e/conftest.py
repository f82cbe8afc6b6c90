"""A browser and a studio for all browser tests. Where no browser can be had the tests fail and name the
three ways to one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from driving import RunningStudio, launch, running_studio

sys.path.append(str(Path(__file__).parents[1] / "unit" / "studio"))  # runs are made there as a worker writes them

from screens import furnished
from visiting import enter, forget_draft, let_in, listening, shows
from waiting import until

from core.machine.cards import CardLock, held_by
from core.machine.hardware import read_machine
from core.machine.locations import Locations
from core.runs.control.store import RunStore
from core.runs.record.job_record import ENDED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A test that fails tells what its pages showed: what happens once in a hundred runs is not seen again."""
    report: Any = yield
    if report.failed and (browser := getattr(item, "funcargs", {}).get("browser")):
        report.sections.extend(shown_by(browser))
    return report


def shown_by(browser: Any) -> list[tuple[str, str]]:
    """The address of each open page and the words on it, with what its fields hold."""
    from playwright.sync_api import Error

    shown = []
    for page in [page for context in browser.contexts for page in context.pages]:
        try:
            words = page.locator("body").evaluate(WORDS_AND_FIELDS, timeout=5_000)
        except Error as error:
            words = str(error)
        shown.append((f"{page.url} showed", words))
    return shown


WORDS_AND_FIELDS = r"""(body) => [body.innerText, ...[...body.querySelectorAll("input, textarea, select")]
    .map((field) => `${field.getAttribute('aria-label') || field.closest('[id]')?.id}: `
        + (['radio', 'checkbox'].includes(field.type) ? `${field.value} ${field.checked}` : field.value))].join('\n')"""


@pytest.fixture(scope="session")
def playwright() -> Iterator[Any]:
    """What starts browsers: one for all tests of a process."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def browser(playwright: Any) -> Iterator[Any]:
    """A real Chromium, headless. What a module leaves in it are contexts, which it closes."""
    opened = launch(playwright)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def bare_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudio]:
    """A studio without runs, for all modules that have no wish of their own."""
    with running_studio(tmp_path_factory.mktemp("home")) as running:
        yield running


def at_home(browser: Any, studio: RunningStudio) -> Any:
    """A browser context that was let in, once New run is built: until then an outline stands there and loads itself
    again, under the hands of a test that is as early."""
    context = let_in(browser, studio)
    until(lambda: "gradio_config" in context.request.get(f"{studio.root}/").text())
    return context


@pytest.fixture(scope="session")
def bare_context(browser: Any, bare_studio: RunningStudio) -> Iterator[Any]:
    """A browser context that was let in to the bare studio, for the tabs of all modules: a fresh one has none of a
    page's files yet, and compiles its scripts anew, which is half of what New run costs."""
    context = at_home(browser, bare_studio)
    yield context
    context.close()


@pytest.fixture(scope="session")
def furnished_context(browser: Any, furnished_studio: RunningStudio) -> Iterator[Any]:
    """The same, let in to the furnished studio."""
    context = at_home(browser, furnished_studio)
    yield context
    context.close()


def ended(store: RunStore, run_id: str) -> bool:
    return store.record(run_id).state in ENDED


def deleted(context: Any, studio: RunningStudio, run_id: str) -> bool:
    """Whether it could be deleted: an export's process is there a moment longer than its last word. The studio is
    asked, whose Try then leaves the card; by itself it would keep a run's model for ten minutes."""
    asked = context.request.post(f"{studio.root}/studio/run/{run_id}/delete", headers={"Origin": studio.root})
    return bool(asked.ok)


@pytest.fixture(scope="module")
def studio(bare_studio: RunningStudio, bare_context: Any) -> Iterator[RunningStudio]:
    """A studio in which nothing has happened yet: afterwards runs and drafts are gone again."""
    yield bare_studio
    try:
        without_runs(bare_studio, bare_context)
    finally:  # else every module after this one begins with its draft
        forget_draft(bare_studio)


def without_runs(studio: RunningStudio, context: Any) -> None:
    store = RunStore(Locations(studio.home))
    for run_id in [run.run_id for run in store.list()]:
        if store.record(run_id).state not in ENDED:
            store.stop_now(run_id)
            until(partial(ended, store, run_id))
        until(lambda: not store.living())
        until(partial(deleted, context, studio, run_id))


@pytest.fixture
def card_is_held(studio: RunningStudio) -> Iterator[None]:
    """Somebody has the card: what is started waits for it. A worker that begins and is stopped at once would compute
    for seconds, and what is asked for is in the run's folder by then."""
    locations, cards = Locations(studio.home), read_machine(studio.home).cards
    card = CardLock(locations, cards)
    # A run that has just ended lets go of it a moment later.
    until(lambda: card.acquire("Somebody"), why=lambda: f"{held_by(locations, cards)} has the card")
    yield
    card.release()


@pytest.fixture(scope="module")
def page(request: pytest.FixtureRequest, bare_context: Any, studio: RunningStudio) -> Iterator[Any]:
    """New run, let in once for a module, whose ``PATIENCE`` it has: a tab of its own for each test costs as much as the
    page in it. No script may complain."""
    opened = listening(bare_context.new_page(), console=False)
    opened.set_default_timeout(request.module.PATIENCE)
    enter(opened, studio)
    shows(opened, "#data-table [data-f=count]", " rows")
    yield opened
    opened.close()
    assert opened.faults == []


@pytest.fixture(scope="session")
def furnished_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudio]:
    """A studio with runs in every state, which no test changes."""
    locations = Locations(tmp_path_factory.mktemp("furnished-home"))
    with furnished(locations), running_studio(locations.home) as running:
        yield running
