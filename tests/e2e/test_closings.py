"""A run trains while its page is closed, refreshed and cut off at random, and while its studio is killed; and Start is
pressed twice at once.

The steps' own times say whether the run noticed: no two of them lie more than 2 s apart. The page shows the state of
the moment within 3 s of coming back. A double click, or two tabs, start one run. Full numbers: ``pytest -m slow -s``.
"""

from __future__ import annotations

import itertools
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from driving import RunningStudio, running_studio
from visiting import let_in, listening, shows
from waiting import until

from core.contract.config import DataChoice, RunConfig
from core.machine.locations import REPOSITORY, Locations
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventTail
from core.runs.record.job_record import ENDED
from tests.chaos.whole import starter_config
from tests.unit.runs.living_runs import SUPERVISOR

pytestmark = pytest.mark.browser

PAUSE_SECONDS, SHOWN_SECONDS = 2.0, 3.0
CHECK = "least => Number(document.querySelector('[data-f=step]')?.innerText.replaceAll(',', '').split(' ')[0]) >= least"


@dataclass
class House:
    """A studio, a run that trains in it for as long as is wanted, and a browser that was let in."""

    studio: RunningStudio
    store: RunStore
    folder: JobFolder
    context: Any

    @property
    def watch(self) -> str:
        return f"{self.studio.root}/watch?run={self.folder.name}"

    def step(self) -> int:
        return self.store.record(self.folder.name).last_step


@dataclass
class Measured:
    """Seconds from coming back until the state of that moment was on screen, by what had happened."""

    shown: dict[str, list[float]] = field(default_factory=lambda: {"closed": [], "refreshed": [], "offline": []})
    begun: float = field(default_factory=time.time)

    def pauses(self, folder: JobFolder) -> list[float]:
        """Seconds between steps since the beginning, each with the time that it took; saving is a pause of its own."""
        at = [event.at for event in EventTail(folder.events).read() if event.kind == "step" and event.at >= self.begun]
        return [later - earlier for earlier, later in itertools.pairwise(at)]


def a_run_that_trains(home: Path) -> tuple[RunStore, RunConfig]:
    """The built-in model, for as long as is wanted."""
    config = starter_config(home, steps=100_000)
    train = config.train.model_copy(update={"eval_steps": 0, "save_steps": 200, "num_train_epochs": 1000.0})
    return RunStore(Locations(home)), config.model_copy(update={"train": train})


def a_run_that_says_so(home: Path) -> tuple[RunStore, RunConfig]:
    """A supervisor and a worker as always, processes of their own; the worker computes nothing (tests/unit/runs)."""
    config = RunConfig(name="train 100000", data=DataChoice(path="/data/rows.jsonl"))
    return RunStore(Locations(home).make(), SUPERVISOR), config


@pytest.fixture(params=[a_run_that_trains])
def house(browser: Any, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # the run has one core, studio and browser the other
        patch.setenv("LUTHIER_HOME", str(home))
        patch.setenv("PYTHONPATH", str(REPOSITORY))
        store, config = request.param(home)
        folder = store.open(store.start(config))
        with running_studio(home) as studio:
            context = let_in(browser, studio)
            until(lambda: store.record(folder.name).last_step >= 3)
            yield House(studio, store, folder, context)
            context.close()
        if store.record(folder.name).state not in ENDED:
            store.stop_now(folder.name)
            until(lambda: store.record(folder.name).state == "stopped")


def opened(house: House) -> Any:
    page = house.context.new_page()
    page.goto(house.watch)
    page.wait_for_function(CHECK, arg=1)
    return page


def come_and_go(house: House, page: Any, what: str, away_seconds: float) -> tuple[Any, float]:
    """One closing, refresh or time offline; the page afterwards, and the seconds until it showed the state."""
    if what == "closed":
        page.close()
        time.sleep(away_seconds)
        page = house.context.new_page()
    elif what == "offline":
        house.context.set_offline(True)
        time.sleep(away_seconds)
    least, back = house.step(), time.monotonic()
    if what == "closed":
        page.goto(house.watch)
    elif what == "refreshed":
        page.reload()
    else:
        house.context.set_offline(False)
    page.wait_for_function(CHECK, arg=least)
    return page, time.monotonic() - back


def closings(house: House, times: int, long_ones: int, seed: int) -> Measured:
    """So many at random, each kind once at least; ``long_ones`` of the times offline last a minute, the others 2 s."""
    draw, measured, page = random.Random(seed), Measured(), opened(house)
    drawn = [draw.choice(list(measured.shown)) for _ in range(times - long_ones - len(measured.shown))]
    kinds = ["offline"] * long_ones + [*measured.shown, *drawn]
    lasting = [60.0] * long_ones + [2.0 if kind == "offline" else draw.uniform(0, 1) for kind in kinds[long_ones:]]
    todo = list(zip(kinds, lasting, strict=True))
    draw.shuffle(todo)
    for what, away_seconds in todo:
        time.sleep(draw.uniform(0, 0.5))
        page, shown = come_and_go(house, page, what, away_seconds)
        measured.shown[what].append(shown)
    page.close()
    return measured


def judge_closings(house: House, measured: Measured, seed: int) -> None:
    pauses = measured.pauses(house.folder)
    shown = {what: f"{len(seconds)} ≤ {max(seconds, default=0):.2f} s" for what, seconds in measured.shown.items()}
    print(f"closings: seed {seed}, {len(pauses)} steps, longest pause {max(pauses):.2f} s, shown again after {shown}")
    record = house.store.record(house.folder.name)
    assert (record.state, record.attempt) == ("training", 1)
    assert max(pauses) <= PAUSE_SECONDS, f"seed {seed}"
    slow = {
        what: worst for what, seconds in measured.shown.items() if (worst := max(seconds, default=0)) > SHOWN_SECONDS
    }
    assert slow == {}, f"seed {seed}"


def race(studio: RunningStudio, tabs: list[Any]) -> None:
    """Start is pressed twice in one tab, and at the same time in another where there is one: one run is made, and all
    show it."""
    store = RunStore(Locations(studio.home))
    before = {run.run_id for run in store.list()}
    for tab in tabs:
        tab.goto(f"{studio.root}/")
    for tab in tabs:
        tab.wait_for_function("() => document.querySelector('#start') && !document.querySelector('#start').disabled")
    for tab in tabs[1:]:
        tab.evaluate("() => { setTimeout(() => document.querySelector('#start').click(), 50) }")
    tabs[0].locator("#start").dblclick()
    shown = set()
    for tab in tabs:
        tab.wait_for_url("**/watch?run=*")
        shown.add(tab.url.split("run=")[1].split("&")[0])
    made = {run.run_id for run in store.list()} - before
    assert made == shown
    assert len(made) == 1
    (run_id,) = made
    store.stop(run_id)  # it waits for the card
    until(lambda: store.record(run_id).state == "stopped")


@pytest.mark.parametrize("times", [1, pytest.param(100, marks=pytest.mark.slow)])
def test_races_start_one_run_each(bare_context: Any, studio: RunningStudio, card_is_held: None, times: int) -> None:
    tabs = [bare_context.new_page(), bare_context.new_page()]
    for number in range(times):
        race(studio, tabs[: 2 - number % 2])
    for tab in tabs:
        tab.close()


@pytest.mark.slow
@pytest.mark.alone
def test_closings_pause_nothing_and_the_state_is_back_at_once(house: House) -> None:
    """What it measures of coming back the default run measures at a run that is written (test_landing.py)."""
    seed = random.SystemRandom().randint(1, 2**31)
    judge_closings(house, closings(house, times=200, long_ones=10, seed=seed), seed)


@pytest.mark.parametrize(
    "house", [a_run_that_says_so, pytest.param(a_run_that_trains, marks=pytest.mark.slow)], indirect=True
)
def test_a_closed_page_and_a_killed_studio_leave_the_run_untouched_and_the_next_one_shows_and_stops_it(
    browser: Any, house: House
) -> None:
    page, _ = come_and_go(house, opened(house), "closed", 1.0)
    page.wait_for_function("() => document.querySelector('.chart-loss .line')?.getAttribute('d')?.length > 20")
    house.studio.stop(signal.SIGKILL)
    at_death = house.step()
    until(lambda: house.step() >= at_death + 3)
    with running_studio(house.store.locations.home) as studio:
        context = let_in(browser, studio)
        page = listening(context.new_page(), console=False)
        page.goto(f"{studio.root}/watch")
        shows(page, '[data-f="word"]', "Training")
        assert page.url.endswith(house.folder.name)
        seen = page.locator('[data-f="step"]').inner_text()
        path = page.locator(".chart-loss .line").first.get_attribute("d")
        page.wait_for_function("seen => document.querySelector('[data-f=step]').textContent !== seen", arg=seen)
        page.wait_for_function(
            "path => document.querySelector('.chart-loss .line').getAttribute('d') !== path", arg=path
        )
        page.locator('[data-verb="stop"]').click()
        page.locator('[data-f="stop-dialog"] button[value="stop"]').click()
        shows(page, '[data-f="word"]', "Stopped")
        assert page.faults == []
        context.close()
    record = house.store.record(house.folder.name)
    assert record.state == "stopped"
    assert record.attempt == 1, "the run never noticed"
    assert [step.step for step in record.steps] == list(range(1, record.last_step + 1))
    assert house.folder.newest_step() == record.last_step
