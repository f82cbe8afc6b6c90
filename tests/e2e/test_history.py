"""The history in a real browser: finding, comparing, the queue, having a run again, and all of it by keyboard."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from driving import RunningStudio
from made_runs import append, past, write_run
from visiting import Visit, intercept, let_in
from waiting import until

from core.contract.config import DataChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.events import Failed, Finished, Queued
from core.machine.cards import CardLock
from core.machine.hardware import read_machine
from core.machine.locations import Locations
from core.machine.locks import FileLock
from core.runs.control.queue import JobQueue
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config

pytestmark = pytest.mark.browser

HOLDER = "2026-11-21_1000_holder_k3f9"
WAITING = [f"2026-11-21_100{number}_wait_k3f9" for number in (1, 2, 3)]
GOOD, FAST, FAILED = "2026-11-20_2325_good_k3f9", "2026-11-19_1900_fast_k3f9", "2026-11-18_1800_failed_k3f9"
MANY = 60


@dataclass
class House(Visit):
    """A studio over made runs, and the browser context that was let in."""

    locations: Locations

    def page(self, path: str = "/history") -> Any:
        return super().page(path)

    def folder(self, run_id: str) -> JobFolder:
        return JobFolder(self.locations.runs / run_id)

    def store_delete(self, run_id: str) -> None:
        """So that the other tests see the runs that were made for them."""
        RunStore(self.locations).delete(run_id)


def config(**train: Any) -> RunConfig:
    qwen = ModelChoice(source="hub", name="Qwen/Qwen3-4B")
    return RunConfig(model=qwen, data=DataChoice(path="/data/good.jsonl"), train=TrainChoice(**train))


def made_runs(locations: Locations) -> None:
    """Three to compare, one of them failed; sixty older ones; a run that trains and three that wait for its card."""
    fault = Failed(at=1e9, attempt=1, code="memory.gpu", message="The card's memory is full.", hint="Choose less.")
    runs = {
        GOOD: (past(300, finished=True), config(), (300,)),
        FAST: (past(150, finished=True), config(learning_rate=1e-3), (100,)),
        FAILED: ([*past(120), fault], config(max_length=512, save_steps=9), (100,)),
        HOLDER: (past(100, total=400), config(), ()),
        **{run_id: ([Queued(at=1.0)], config(), ()) for run_id in WAITING},
    }
    for run_id, (events, chosen, checkpoints) in runs.items():
        folder = write_run(locations, events, run_id, checkpoints=checkpoints)
        folder.run_yaml.write_text(dump_config(chosen), encoding="utf-8")
    for number in range(MANY):
        write_run(
            locations, past(3, finished=True), f"2026-10-{number % 28 + 1:02d}_{number // 28:02d}00_old_k3f9", "Old"
        )


@pytest.fixture(scope="module")
def house(bare_context: Any, studio: RunningStudio) -> Iterator[House]:
    locations = Locations(studio.home).make()
    made_runs(locations)
    locks = [FileLock(JobFolder(locations.runs / run_id).supervisor_lock) for run_id in (HOLDER, *WAITING)]
    assert all(lock.acquire() for lock in locks)
    card = CardLock(locations, read_machine(locations.home).cards)
    assert card.acquire(HOLDER)
    for run_id in WAITING:
        JobQueue(locations).add(run_id)
    house = House(studio, bare_context, locations)
    yield house
    house.leave()
    for run_id in WAITING:
        JobQueue(locations).remove(run_id)
    card.release()
    for lock in locks:
        lock.release()


def titles(page: Any) -> list[str]:
    return list(page.locator(".run-title:visible").all_inner_texts())


def wait_for(page: Any, count: int) -> None:
    page.wait_for_function(f"() => document.querySelectorAll('.run:not([hidden])').length === {count}")


def test_runs_are_found_and_named(house: House) -> None:
    page = house.page()
    wait_for(page, 50)
    assert page.title() == "Training · History · Luthier"
    page.get_by_role("button", name="Show 17 more").click()
    wait_for(page, 67)
    page.get_by_label("Search").fill("good 23:25")
    wait_for(page, 1)
    assert titles(page) == ["good.jsonl on Qwen3-4B"]
    page.locator(".run-menu > summary").click()
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Name of the run").fill("Best so far")
    page.keyboard.press("Enter")
    page.get_by_label("Search").fill("best so far")
    page.get_by_role("link", name="Best so far", exact=True).wait_for()
    page.get_by_label("Search").fill("nothing like it")
    page.get_by_text("No runs match.").wait_for()
    page.get_by_role("button", name="Show all").click()
    page.get_by_label("State").select_option("failed")
    wait_for(page, 1)
    page.get_by_label("State").select_option("")
    page.get_by_label("Model", exact=True).select_option("Qwen3-4B")
    wait_for(page, 7)
    page.get_by_role("button", name="Size").click()
    page.wait_for_function("() => document.querySelector('.run a').href.includes('good')")
    assert page.locator('[aria-sort="descending"]').inner_text().startswith("Size")
    assert page.faults == []


HOLDING = """() => {
    const honest = window.fetch;
    window.fetch = async (path, options) => {
        const answer = await honest(path, options);
        if (window.letGo || !path.startsWith("/studio/history?") || (await answer.clone().json()).same) return answer;
        await new Promise((go) => (window.letGo = go));
        return answer;
    };
}"""
"""Holds the next changed rows on their way to the page until ``letGo`` is called."""


def test_a_run_is_noted_tagged_pinned_deleted_and_had_back(house: House) -> None:
    page = house.page()
    page.get_by_label("Search").fill("2026-10-03")
    wait_for(page, 3)
    row = page.locator(".run").nth(1)
    run = house.folder(row.locator("a").get_attribute("href").rpartition("=")[2])
    row.locator(".run-toggle").focus()
    page.keyboard.press("ArrowRight")
    row.get_by_role("textbox", name="Note").fill("the calm one")
    page.evaluate(HOLDING)
    row.get_by_role("textbox", name="Tags").fill("calm, kept")
    page.wait_for_function("() => window.letGo")
    row.get_by_label("color 2").check()
    page.evaluate("() => { letGo(); return new Promise((then) => setTimeout(then)); }")
    assert row.get_by_label("color 2").is_checked(), "an answer of before does not undo a choice"
    page.wait_for_function("() => document.querySelectorAll('.run .tag').length === 2")
    page.keyboard.press("Escape")
    row.get_by_role("button", name="calm", exact=True).click()
    wait_for(page, 1)
    assert page.get_by_label("Tag", exact=True).input_value() == "calm"
    row = page.locator(".run")
    row.locator(".run-menu > summary").click()
    page.wait_for_function("() => document.activeElement.closest('.run-menu-list')")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    row.get_by_role("img", name="Pinned").wait_for()
    page.wait_for_function("() => !document.querySelector('.run-menu[open]')")
    marks = json.loads(run.marks_json.read_text())
    assert marks == {"note": "the calm one", "tags": ["calm", "kept"], "colour": 2, "pinned": True}
    row.locator(".run-menu > summary").click()
    row.get_by_role("button", name="Delete").first.click()
    page.get_by_text("Deleted: Old.").wait_for()
    page.get_by_text("No runs match.").wait_for()
    assert not run.path.exists()
    assert "Undo" in page.evaluate("() => document.activeElement.textContent"), "the keyboard is at the way back"
    page.keyboard.press("Enter")
    wait_for(page, 1)
    assert run.marks_json.exists()
    row.locator(".run-menu > summary").click()
    row.get_by_role("button", name="Save as a file …").first.click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save", exact=True).click()
    assert waiting.value.suggested_filename == "Old.luthier.zip"
    page.locator('[data-f="file"]').set_input_files(waiting.value.path())
    page.locator(".run-from:visible").wait_for()
    page.wait_for_function("() => document.activeElement.textContent === 'Old'")
    assert page.get_by_label("Tag", exact=True).input_value() == "", "it is seen whatever was searched for"
    opened = page.locator(".run", has=page.locator(".run-from:visible"))
    assert opened.get_by_role("button", name="kept").is_visible()
    house.store_delete(opened.locator("a").get_attribute("href").rpartition("=")[2])
    page.locator('[data-f="file"]').set_input_files(run.run_yaml)
    page.get_by_text("run.yaml does not hold a run.").wait_for()
    assert len(page.faults) == 1, "the answer that it is none"


def test_a_failed_run_says_why_and_its_button_does_something_about_it(house: House) -> None:
    for _ in range(2):  # and again after a refresh
        page = house.page()
        row = page.locator(".run", has_text="Failed")
        row.get_by_role("button", name="More about").click()
        row.get_by_text("Choose less.").wait_for()
        mend = row.get_by_role("button", name="Run again with gradient checkpointing: in every layer")
        mend.wait_for()
        if _:
            mend.click()
            page.wait_for_url(f"{house.studio.root}/", wait_until="commit")
    draft = json.loads(house.locations.draft.read_text())["config"]
    assert (draft["train"]["checkpointing"], draft["train"]["max_length"]) == ("recompute", 512)
    assert draft["data"]["path"] == "/data/good.jsonl"


def test_a_run_goes_out_as_yaml_and_as_a_command_line(house: House) -> None:
    page = house.page()
    row = page.locator(".run", has_text="Failed")
    row.get_by_role("button", name="More about").click()
    row.get_by_text("Settings").click()
    row.get_by_text("max_length: 512").wait_for()
    assert f"launcher.py train {house.folder(FAILED).run_yaml}" in row.locator("code").inner_text()
    with page.expect_download() as waiting:
        row.get_by_role("link", name="Download as YAML").click()
    assert waiting.value.suggested_filename == f"{FAILED}.yaml"
    assert yaml.safe_load(Path(waiting.value.path()).read_text())["train"]["max_length"] == 512
    assert page.faults == []


def test_three_runs_are_compared_and_asked_the_same(house: House) -> None:
    page = house.page()
    page.get_by_label("Model", exact=True).select_option("Qwen3-4B")
    for run_id in (GOOD, FAST, FAILED):
        page.locator(f'.run:has(a[href$="{run_id}"]) [type=checkbox]').check()
    page.get_by_role("link", name="Compare 3 runs").click()
    page.wait_for_function("() => document.querySelectorAll('.chart-compare .line').length === 6")
    lines = "[...document.querySelectorAll('.chart-compare .line')]"
    page.wait_for_function(f"() => {lines}.every((line) => line.getAttribute('d')?.length > 20)")
    differing = page.locator('[data-f="differing"] tr')
    shown = {row.split("\n")[0] for row in differing.all_inner_texts()}
    assert {line.split("\t")[0] for line in shown} == {
        "Max length", "Learning rate", "Save every",
    }  # fmt: skip
    assert page.locator('[data-f="finals"]').get_by_text("Failed").is_visible()
    asked: list[dict[str, Any]] = []

    def answer(route: Any) -> None:
        question = json.loads(route.request.post_data)
        asked.append(question)
        lines = [{"side": side, "text": f"{side} {question['run']}", "done": True} for side in question["sides"]]
        route.fulfill(content_type="application/x-ndjson", body="".join(json.dumps(line) + "\n" for line in lines))

    intercept(page, "**/studio/ask", answer)
    page.get_by_label("Question").fill("Who are you?")
    page.keyboard.press("Control+Enter")
    page.get_by_text(f"tuned {FAILED}").wait_for()
    assert [(one["run"], one["sides"]) for one in asked] == [
        (GOOD, ["base", "tuned"]), (FAST, ["tuned"]), (FAILED, ["tuned"]),
    ]  # fmt: skip
    assert len({one["messages"][0]["content"] for one in asked}) == 1
    assert page.locator(".answer").count() == 4
    assert page.get_by_label("Answer to be scored").is_hidden()

    def scored(route: Any) -> None:
        """The first as a reward model, the second as a classifier."""
        told = route.fetch().json()
        for run, kind in zip(told["runs"], ("answer", "label"), strict=False):
            run["kind"] = kind
        route.fulfill(json=told)

    intercept(page, "**/studio/compare?*", scored)
    page.reload()
    asked.clear()
    page.get_by_label("Question").fill("Who are you?")
    page.get_by_label("Answer to be scored").wait_for()
    page.keyboard.press("Control+Enter")
    page.get_by_text("It scores an answer").wait_for()
    page.get_by_text(f"tuned {FAILED}").wait_for()
    page.get_by_role("button", name="Ask all").wait_for()
    assert [one["run"] for one in asked] == [FAST, FAILED], "a reward model has nothing to score"
    asked.clear()
    page.get_by_label("Answer to be scored").fill("A starter.")
    page.get_by_role("button", name="Ask all").click()
    page.get_by_text(f"tuned {GOOD}").wait_for()
    page.wait_for_function("() => !document.querySelector('[data-wait]')")
    assert [[turn["content"] for turn in one["messages"]] for one in asked] == [
        ["Who are you?", "A starter."], ["Who are you?"], ["Who are you?"],
    ]  # fmt: skip
    assert [(one["second"], one["sides"]) for one in asked] == [
        ("", ["tuned"]), ("", ["tuned"]), ("", ["base", "tuned"]),
    ]  # fmt: skip
    assert page.faults == []


def test_the_queue_is_put_in_order_by_keyboard_and_by_dragging(house: House) -> None:
    page = house.page()
    order = "() => [...document.querySelectorAll('.queue-list a')].map((link) => link.href.slice(-21))"
    tails = {run_id: run_id[-21:] for run_id in WAITING}
    items = page.locator(".queue-list > li")
    items.nth(2).wait_for()
    down = items.nth(0).get_by_role("button", name="Move down")
    down.focus()
    page.keyboard.press("Enter")
    moved = [tails[WAITING[1]], tails[WAITING[0]], tails[WAITING[2]]]
    page.wait_for_function(f"(wanted) => `${{({order})()}}` === `${{wanted}}`", arg=moved)
    assert "Move down" in page.evaluate("() => document.activeElement.getAttribute('aria-label')")
    held = page.evaluate("() => document.activeElement.closest('li').querySelector('a').href")
    assert held.endswith(WAITING[0]), "the keyboard stays with the run that it moves"
    assert JobQueue(house.locations).order() == [WAITING[1], WAITING[0], WAITING[2]]
    items.nth(2).drag_to(items.nth(0))
    page.wait_for_function(f"(wanted) => ({order})()[0] === wanted", arg=tails[WAITING[2]])
    items.nth(0).get_by_role("button", name="Remove").click()
    page.get_by_text("was taken out").wait_for(state="attached")
    assert '"stop"' in house.folder(WAITING[2]).commands.read_text()
    assert page.faults == []


def test_all_of_it_by_keyboard(house: House) -> None:
    """Nothing but Tab, arrows, Space and Enter: the search, a run's choice, its name, the comparison."""
    page = house.page()
    wait_for(page, 50)
    # Where nothing has the focus the body has it, and its text holds every word of the page.
    focus = """() => document.activeElement === document.body ? 'nothing' :
        document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent.trim()"""

    def tab_to(words: str, most: int) -> None:
        for _ in range(most):
            page.keyboard.press("Tab")
            if (
                words in (page.evaluate(focus) or "")
                or page.evaluate("() => document.activeElement.placeholder") == words
            ):
                return
        raise AssertionError(f"{words!r} is not reached by {most} Tabs; at {page.evaluate(focus)!r}")

    tab_to("name, model, data, note", 25)
    page.keyboard.type("qwen3 finished")
    wait_for(page, 2)
    tab_to("Compare: ", 16)
    page.keyboard.press("Space")
    tab_to("Compare: ", 16)
    page.keyboard.press("Space")
    tab_to("Compare 2 runs", 10)
    page.keyboard.press("Enter")
    page.wait_for_url("**/history?compare=*")
    page.locator('[data-f="differing"] tr').first.wait_for()


def test_whoever_asked_for_it_is_told_of_the_end(browser: Any, house: House) -> None:
    """In a browser context of its own: a clock of ours stays in every page of one, and under load it calls what a page
    waits for out of turn."""
    with closing(let_in(browser, house.studio, 30)) as context:
        page = context.new_page()
        page.add_init_script("""
            window.told = [];
            window.Notification = class { constructor(title, more) { window.told.push([title, more.tag]); } };
            window.Notification.permission = 'default';
            window.Notification.requestPermission = async () => (window.Notification.permission = 'granted');
        """)
        page.clock.install()
        page.goto(house.studio.root + "/history")
        page.clock.run_for(9_000)
        assert page.evaluate("() => [Notification.permission, told.length]") == ["default", 0], "nobody asked yet"
        page.get_by_role("button", name="Tell me when it is done").click()
        page.get_by_role("button", name="You will be told", pressed=True).wait_for()
        with page.expect_response("**/studio/now*"):
            page.clock.run_for(9_000)
        append(house.folder(HOLDER), [Finished(at=time.time(), attempt=1, step=100)])

        def is_told() -> bool:
            """The clock goes on: an answer that was on its way may be of a moment before the end."""
            page.clock.run_for(9_000)
            page.wait_for_timeout(50)
            return bool(page.evaluate("() => told.length"))

        until(is_told)
        assert page.evaluate("() => told.length") == 1
        assert page.locator('[data-now="said"]').inner_text().endswith("has ended."), "its end is read out"
        title, tag = page.evaluate("() => told[0]")
        assert title.startswith("Finished: good.jsonl on Qwen3-4B")
        assert tag == HOLDER
