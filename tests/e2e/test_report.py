"""The report in a real browser: from a run to what it learned, a failing answer one click away, checks that are defined
and counted, two reports beside each other, and the file that is given away, which works without its studio."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import RunningStudio
from made_runs import RUN, past, write_run
from visiting import let_in, listening

from core.machine.locations import Locations
from tests.report_example import example

pytestmark = pytest.mark.browser

OTHER = "2026-11-19_2243_other_k3f9"


@pytest.fixture(scope="module")
def page(browser: Any, studio: RunningStudio) -> Iterator[Any]:
    for run_id, name, worth in ((RUN, "House style", 1.0), (OTHER, "Half of it", 0.5)):
        folder = write_run(Locations(studio.home), past(100, finished=True), run_id, name, (100,))
        folder.report_json.write_text(example(run_id, worth).model_dump_json(), encoding="utf-8")
    context = let_in(browser, studio, accept_downloads=True)
    yield listening(context.new_page())
    context.close()


def test_from_a_finished_run_to_the_answer_that_fails(page: Any, studio: RunningStudio) -> None:
    page.goto(f"{studio.root}/watch?run={RUN}")
    page.locator('[data-f="verdict"]').get_by_role("link", name="Report").click()
    page.get_by_role("heading", name="It learned: on 96 rows").wait_for()
    page.locator(".report-tiles a", has_text="Answers").click()
    answer = page.locator("details.asked", has_text="Say as JSON")
    answer.locator("summary").click()
    assert not answer.get_by_text("'colour' is missing.").is_visible()
    page.locator(".failing a", has_text="127").first.click()
    answer.get_by_text("'colour' is missing.").wait_for()
    assert page.faults == []


def test_a_check_is_defined_once_and_counted_in_the_answers_that_are_there(page: Any, studio: RunningStudio) -> None:
    page.goto(f"{studio.root}/report?run={RUN}")
    page.locator("summary", has_text="Checks of answers").click()
    page.get_by_role("button", name="Add a check").click()
    check = page.locator(".edit-checks > li")
    check.get_by_role("textbox", name="Name").fill("Capital of Norway")
    check.get_by_label("What it asks").select_option("number")
    assert check.get_by_label("Largest difference allowed").input_value() == "0"
    check.get_by_label("What it asks").select_option("contains")
    check.get_by_label("Expected").fill("oslo")
    with page.expect_navigation():
        page.get_by_role("button", name="Save").click()
    tally = page.locator("#answers tr", has_text="Capital of Norway")
    assert "contains “oslo”" in tally.inner_text()
    assert "1 → 1 of 4" in tally.inner_text()
    assert page.faults == []


def test_reports_are_compared_and_given_away_as_a_file_that_needs_no_studio(
    page: Any, browser: Any, studio: RunningStudio, tmp_path: Path
) -> None:
    page.goto(f"{studio.root}/report?run={RUN}")
    page.locator("summary", has_text="Compare with other reports").click()
    page.get_by_role("checkbox", name="Half of it").check()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.get_by_role("heading", name="At a glance").wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="As one HTML file").click()
    given = tmp_path / "given.html"
    download.value.save_as(given)
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 844})
    alone = context.new_page()
    asked: list[str] = []
    alone.on("request", lambda request: asked.append(request.url))
    alone.goto(given.as_uri())
    assert alone.get_by_role("heading", name="2 runs beside each other").is_visible()
    assert alone.locator(".report .picture circle").first.is_visible()
    assert asked == [given.as_uri()], "nothing but the file itself is loaded"
    wide = alone.evaluate(
        "() => [document.documentElement.scrollWidth, getComputedStyle(document.body).backgroundColor]"
    )
    context.close()
    assert wide[0] == 390
    assert wide[1] != "rgba(0, 0, 0, 0)"
