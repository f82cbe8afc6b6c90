"""Whoever comes back lands on the running job: by refresh, second tab, new browser, restarted server.

Within 3 s of the server's first answer the state of that moment is on screen with its charts refilled; what was typed
into New run stands where it was.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import free_port, running_studio
from made_runs import append, past, step, write_run
from visiting import POLL_MS, let_in, shows
from waiting import until

from core.contract.config import DataChoice, RunConfig
from core.machine.locations import Locations
from core.machine.locks import FileLock
from core.runs.folder.job_folder import JobFolder

pytestmark = pytest.mark.browser

RUN = "2026-11-20_2243_living_k3f9"
STEPS = 2000
SHOWN_SECONDS = 3.0
STANDS = (
    "least => Number(document.querySelector('[data-f=step]')?.innerText.replaceAll(',', '').split(' ')[0]) >= least"
    " && document.querySelector('.chart-loss .line')?.getAttribute('d')?.length > 200"
)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A root folder with a run that is at work: somebody holds its lock."""
    living = write_run(Locations(tmp_path).make(), past(STEPS, total=4000), RUN, "Living")
    hold = FileLock(living.supervisor_lock)
    assert hold.acquire()
    yield tmp_path
    hold.release()


def shown_after(page: Any, come: Callable[[], object]) -> float:
    """Seconds from coming until the last step and the loss's curve are on screen."""
    began = time.monotonic()
    come()
    page.wait_for_function(STANDS, arg=STEPS)
    return time.monotonic() - began


def answers(port: int) -> None:
    """Until somebody listens there."""
    last = time.monotonic() + 60
    while time.monotonic() < last:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError("the studio does not answer")


@pytest.mark.alone
def test_every_way_back_leads_to_the_running_job_with_its_charts(browser: Any, home: Path) -> None:
    port, took = free_port(), {}
    with running_studio(home, port) as studio:
        context = let_in(browser, studio)
        page = context.new_page()
        took["opened"] = shown_after(page, lambda: page.goto(studio.fresh_address()))
        assert page.url.endswith(f"/watch?run={RUN}"), "an address that is opened leads to what is at work"
        took["refresh"] = shown_after(page, page.reload)
        second = context.new_page()
        took["second tab"] = shown_after(second, lambda: second.goto(f"{studio.root}/watch"))
        kept = context.storage_state()
        context.close()
        context = browser.new_context(storage_state=kept)
        page = context.new_page()
        took["browser closed"] = shown_after(page, lambda: page.goto(f"{studio.root}/watch"))
    append_step(home)
    with running_studio(home, port) as studio:
        answers(port)
        took["server restarted, page open"] = shown_after_restart(page)
        other = context.new_page()
        took["server restarted, opened"] = shown_after(other, lambda: other.goto(studio.fresh_address()))
        context.close()
    print("state and charts on screen after: " + ", ".join(f"{way} {took[way]:.2f} s" for way in took))
    assert {way: seconds for way, seconds in took.items() if seconds > SHOWN_SECONDS} == {}


def append_step(home: Path) -> None:
    """The run goes on while no studio is there."""
    append(JobFolder(Locations(home).runs / RUN), [step(STEPS + 1)])


def shown_after_restart(page: Any) -> float:
    """Seconds until a page that stood open shows what happened meanwhile."""
    began = time.monotonic()
    page.wait_for_function(STANDS, arg=STEPS + 1)
    return time.monotonic() - began


FRAMES = """(() => {
    const frame = window.requestAnimationFrame;
    window.asked = 0;
    window.requestAnimationFrame = (call) => (window.asked++, frame.call(window, call));
})()"""
"""Counts the frames that a page asks for; Gradio keeps the function that it finds when it begins."""
HALF_A_SECOND = """() => {
    const before = window.asked;
    return new Promise((done) => setTimeout(() => done(window.asked - before), 500));
}"""
"""How many of them in half a second: none where nobody touches the page (assets/boot.js)."""


def test_what_was_typed_stands_after_a_restart_and_a_closed_studio_says_nothing_to_the_terminal(
    browser: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Under an open page, both times. The draft names a file that is gone: to read one's rows each studio would start
    two processes, and nothing here depends on them."""
    port, field = free_port(), "#train-max_steps input"
    config = RunConfig(data=DataChoice(path=str(tmp_path / "gone.jsonl")))
    draft = Locations(tmp_path).make().draft
    draft.write_text(json.dumps({"draft_id": "a", "config": config.model_dump(mode="json")}))
    with running_studio(tmp_path, port) as studio:
        context = let_in(browser, studio)
        page = context.new_page()
        page.add_init_script(FRAMES)
        page.goto(f"{studio.root}/")
        shows(page, "#data-report .fault", "gone.jsonl")
        until(lambda: page.evaluate(HALF_A_SECOND) == 0, 30)
        page.locator("#block-advanced").get_by_text("Advanced").first.click()
        page.locator(field).fill("77")
        page.locator(field).press("Tab")
        until(lambda: json.loads(draft.read_text("utf-8"))["config"]["train"]["max_steps"] == 77, 20)
    with running_studio(tmp_path, port) as studio:
        answers(port)
        page.goto(studio.fresh_address())  # in the tab that stood open: beside another it would load New run twice
        page.locator("#block-advanced").get_by_text("Advanced").first.click()
        page.wait_for_function(f"() => document.querySelector('{field}')?.value === '77'", polling=POLL_MS)
    context.close()
    assert capfd.readouterr().err == ""
