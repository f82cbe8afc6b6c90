"""New run in a real browser: one click trains; a file is dropped, read and shown; edits are answered and survive.

To load the page costs more than what most tests do on it, so they stand in an order in which it is seldom loaded: those
that leave it come where the next one begins afresh. What is started waits for a card that is held, and trains nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import RunningStudio
from visiting import at_rest, complaints, enter, forget_draft, intercept, listening, shows
from waiting import until

from core.machine.locations import Locations
from core.models.catalog import STARTER
from core.runs.control.store import RunStore

pytestmark = pytest.mark.browser
PATIENCE = 60_000
ROWS = [{"question": f"What is {number} plus one?", "reply": f"It is {number + 1}."} for number in range(30)]


@pytest.fixture(scope="module")
def tab(bare_context: Any, studio: RunningStudio) -> Iterator[Any]:
    """New run in a tab for all tests."""
    opened = listening(bare_context.new_page())
    opened.asked = []
    opened.on("request", lambda request: opened.asked.append(request.url))
    enter(opened, studio)
    settled(opened, "300 rows")
    yield opened
    opened.close()


@pytest.fixture
def shown(tab: Any) -> Iterator[Any]:
    """New run as it was opened, for the tests that only look and stand before all others; the console must stay
    clean."""
    yield tab
    clean(tab)


@pytest.fixture
def page(tab: Any, studio: RunningStudio) -> Iterator[Any]:
    """New run as a first visit finds it; the console must stay clean."""
    afresh(tab, studio)
    yield tab
    clean(tab)


@pytest.fixture
def used(tab: Any, studio: RunningStudio) -> Iterator[Any]:
    """New run as the test before left it, for tests that begin with their own choice."""
    if tab.url != f"{studio.root}/":
        afresh(tab, studio)
    yield tab
    clean(tab)


def afresh(tab: Any, studio: RunningStudio) -> None:
    at_rest(tab, studio)
    forget_draft(studio)
    tab.faults.clear()
    tab.goto(f"{studio.root}/")
    settled(tab, "300 rows")


def clean(page: Any) -> None:
    assert complaints(page) == []


def settled(page: Any, words: str) -> None:
    """Waits until the table shows these words."""
    page.wait_for_function(
        "words => document.querySelector('#data-table')?.innerText.includes(words)",
        arg=words,
        timeout=PATIENCE,
    )


def draft(studio: RunningStudio) -> Any:
    return json.loads((studio.home / "draft.json").read_text("utf-8"))


def say_rows(folder: Path, name: str, rows: list[dict[str, Any]]) -> Path:
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file


def test_nothing_is_asked_of_another_machine(shown: Any, studio: RunningStudio) -> None:
    assert len(shown.asked) > 10
    assert [url for url in shown.asked if not url.startswith((studio.root, "data:", "blob:"))] == []


COPIES = """() => {
    const refused = (value) => { try { structuredClone(value) } catch (error) { return error.name } };
    const whole = { a: [1, "b"] }, copy = structuredClone(whole);
    return [copy !== whole && copy.a !== whole.a, copy, structuredClone("c"), structuredClone(null), refused(() => 0),
        refused({ call() {} }), refused(Symbol("d")), structuredClone(new Date(5)).getTime()];
}"""


def test_what_needs_no_copy_is_not_copied_and_all_else_as_the_browser_does(shown: Any) -> None:
    refused = "DataCloneError"
    assert shown.evaluate(COPIES) == [True, {"a": [1, "b"]}, "c", None, refused, refused, refused, 5]


def test_two_keys_lead_from_the_top_to_start(shown: Any) -> None:
    shown.wait_for_function("() => !document.querySelector('#start').disabled")
    shown.evaluate("() => { document.activeElement.blur(); scrollTo(0, 0) }")
    shown.keyboard.press("Tab")
    assert shown.evaluate("() => document.activeElement.innerText") == "Skip to Start"
    shown.keyboard.press("Enter")
    shown.wait_for_function("() => document.activeElement.id === 'start'")
    shown.evaluate("() => { document.activeElement.blur(); scrollTo(0, 0) }")


def test_the_whole_way_to_start_stands_on_the_first_screen(shown: Any) -> None:
    page = shown
    assert page.locator("gradio-app h1").is_visible()
    assert (page.locator("h1").count(), page.locator("main[data-outline]").count()) == (1, 0), "the outline gave way"
    page.locator("#data-preview .rows").wait_for(timeout=PATIENCE)
    for part in ("#block-data", "#block-model", "#block-train", "#start"):
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0, part
        assert box["y"] + box["height"] <= 900, part
    assert page.evaluate("() => document.documentElement.scrollWidth") == 1440
    tools, last = page.locator(".rows-tools").bounding_box(), page.locator("#tab-reading").bounding_box()
    assert last["x"] + last["width"] < tools["x"], "the tools stand beside the tabs, not over them"
    assert tools["height"] < 40, "in one line"
    fifth, grid = page.locator(".rows-row").nth(4).bounding_box(), page.locator(".rows-grid").bounding_box()
    assert fifth["y"] + fifth["height"] <= grid["y"] + grid["height"], "five rows can be read"
    assert page.locator("#summary .run-sentence").bounding_box()["y"] < 900


def test_one_click_trains_and_leads_to_the_run(used: Any, studio: RunningStudio, card_is_held: None) -> None:
    page = used
    assert page.locator("#start").inner_text().startswith("Start training")
    page.locator("#start").click()
    page.wait_for_url("**/watch?run=*", timeout=PATIENCE)
    run_id = page.url.split("run=")[1]
    store = RunStore(Locations(studio.home))
    try:
        config = store.open(run_id).config()
        assert (config.model.source, config.preset) == ("starter", "try-it")
        assert config.data.sha256
        assert config.train.save_steps > 0, "nothing automatic is left"
    finally:
        store.stop_now(run_id)
    until(lambda: store.record(run_id).state in ("stopped", "failed", "finished"), 20)


def test_a_value_out_of_range_is_named_and_start_waits(used: Any) -> None:
    used.locator("#train-max_length input").fill("3")
    used.locator("#summary .fault").get_by_text("Max length must be 32 to").wait_for(timeout=PATIENCE)
    used.locator("#start:disabled").wait_for(timeout=PATIENCE)  # the button comes after the words
    used.locator("#train-max_length input").fill("128")
    used.wait_for_function("() => !document.querySelector('#start').disabled", timeout=PATIENCE)


def test_a_goal_fills_in_its_settings(used: Any) -> None:
    used.get_by_role("radio", name="Follow a format").check()
    used.wait_for_function("() => document.querySelector('#train-learning_rate input').value === '0.0001'")
    used.wait_for_function("() => document.querySelector('#train-max_length input').value === '64'")  # by its rows
    used.locator("#preset-goal").get_by_text("one fixed shape").wait_for(timeout=PATIENCE)
    assert used.locator("#data-path textarea").input_value().endswith("instruction.jsonl")


def test_a_setting_is_found_by_search_and_given_back(used: Any, studio: RunningStudio) -> None:
    """What belongs to another method is not there, what is not called so steps aside, what was set is given back."""
    used.locator("#block-advanced > button, #block-advanced .label-wrap").first.click()
    used.locator("#train-seed").wait_for()
    assert not used.locator("#train-beta").is_visible(), "beta is for preferences alone"
    used.get_by_label("Find a setting").fill("save every")
    used.locator("#train-seed").wait_for(state="hidden")
    used.locator("#train-save_steps input").fill("50")
    used.locator("#train-save_steps input").press("Tab")
    back = used.get_by_role("button", name="Set automatically: Save every")
    back.click()
    used.wait_for_function("() => document.querySelector('#train-save_steps input').value === '0'")
    back.wait_for(state="detached")
    until(lambda: draft(studio)["config"]["train"]["save_steps"] == 0, 20)
    used.get_by_label("Find a setting").fill("no such thing")
    used.get_by_text("No setting has that name.").wait_for()
    used.get_by_label("Find a setting").fill("")
    used.locator("#train-seed").wait_for()
    used.locator("#train-sample_rows input").first.focus()
    header = used.locator("header.top").bounding_box()
    for _ in range(25):  # on the way back no field hides behind the header
        used.keyboard.press("Shift+Tab")
        top = used.evaluate("() => document.activeElement.getBoundingClientRect().top")
        assert top >= header["height"], used.evaluate("() => document.activeElement.outerHTML")


def test_an_empty_upload_and_a_foreign_ending_are_refused_in_the_zone(used: Any, tmp_path: Path) -> None:
    page = used
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with page.expect_response("**/studio/upload") as answer:
        page.locator("#data-file").set_input_files(empty)
    assert answer.value.status == 409
    page.wait_for_function("() => document.querySelector('.drop-line').textContent.includes('empty')")
    page.locator("#data-report").get_by_text("300 of 300 rows").wait_for()
    page.get_by_role("radio", name="Conversations").check()
    page.wait_for_function("() => !document.querySelector('.drop-line').textContent")  # it was of another file


def test_an_edit_is_answered_at_once_and_survives_a_refresh(used: Any, studio: RunningStudio) -> None:
    page = used
    page.get_by_role("radio", name="Conversations").check()
    settled(page, "200 rows")
    page.locator("#data-doctor :is(.clean, .data-findings)").wait_for(state="attached")  # the look has ended
    before = page.locator("#summary .figures").inner_text()
    page.locator("#train-num_train_epochs input").fill("1")
    page.wait_for_function(
        "before => document.querySelector('#summary .figures').innerText !== before", arg=before, timeout=PATIENCE
    )
    page.locator("#train-learning_rate input").fill("0.0005")
    until(lambda: draft(studio)["config"]["train"]["learning_rate"] == 0.0005, 20)
    page.reload()
    settled(page, "200 rows")
    # The page is drawn with the studio's first draft, and then gets the newest.
    page.wait_for_function("() => document.querySelector('#train-learning_rate input').value === '0.0005'")
    page.wait_for_function("() => document.querySelector('#train-num_train_epochs input').value === '1'")


def test_a_next_page_that_is_slow_to_come_comes_all_the_same(used: Any, studio: RunningStudio) -> None:
    """Also while an edit is on its way. Gradio takes its own closing for a lost connection, and would load New run
    again two seconds later."""
    page, on_their_way = used, list[Any]()
    intercept(page, "**/history", lambda route: on_their_way.append(route))
    with page.expect_request("**/queue/join*"):
        page.locator("#train-num_train_epochs input").fill("6")
        page.keyboard.press("Tab")
    page.evaluate("() => location.assign('/history')")
    until(lambda: bool(on_their_way or page.wait_for_timeout(50)), 20)
    page.wait_for_timeout(2500)
    on_their_way[0].continue_()
    page.wait_for_url("**/history")
    page.unroute("**/history")


WAITS = """() => {
    const look = () => {
        const start = document.querySelector("#start");
        if (start.disabled && start.innerText.includes("Reading your file")) window.waited = true;
    };
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true });
}"""
"""Notes that Start waited until the settings followed the file."""


def test_settings_follow_an_own_file_and_what_a_person_set_stays(
    page: Any, studio: RunningStudio, tmp_path: Path
) -> None:
    """Another file, another model, a person's own value, the way back to the proposal, undo, and a refresh."""
    rows = [{"question": f"Count {number}?", "reply": "one two three four " * 90} for number in range(400)]
    page.evaluate(WAITS)
    page.locator("#data-file").set_input_files(say_rows(tmp_path, "long.jsonl", rows))
    more, epochs, length = (page.locator(part) for part in (
        "#summary-more", "#train-num_train_epochs input", "#train-max_length input"))  # fmt: skip
    more.get_by_text("Changed with the new file: Max length 256 →").wait_for(timeout=PATIENCE)
    proposed = length.input_value()
    assert int(proposed) > 256
    assert page.evaluate("() => window.waited")
    page.locator("#summary .run-sentence").get_by_text("400 question-answer pairs, 3 epochs, up to").wait_for()
    assert page.locator("#start").bounding_box()["y"] < 850, "Start is on the first screen with all that is said"
    more.get_by_text("Why these settings?").click()
    more.get_by_text("no row is longer.").wait_for()
    epochs.fill("7")
    more.get_by_text("1 set by you").wait_for(timeout=PATIENCE)
    mark = (
        "() => getComputedStyle(document.querySelector('#train-num_train_epochs span[data-testid]'), '::after').content"
    )
    assert "set by you" in page.evaluate(mark)
    folder = tmp_path / "larger"
    shutil.copytree(STARTER, folder)
    model = page.locator("#model-name input")
    model.fill(str(folder))
    model.press("Enter")
    until(lambda: draft(studio)["config"]["model"]["name"] == str(folder), 20)
    more.get_by_text("2 set by you").wait_for(timeout=PATIENCE)
    assert epochs.input_value() == "7"
    more.get_by_role("button", name="Epochs: Use 3").click()
    page.wait_for_function("() => document.querySelector('#train-num_train_epochs input').value === '3'")
    model.fill("starter")
    model.press("Enter")
    more.get_by_text("twice the rank").wait_for(timeout=PATIENCE)  # the tiny model's again
    page.get_by_role("radio", name="Chat style").check()
    more.get_by_text("Changed with the goal:").wait_for(timeout=PATIENCE)
    assert length.input_value() == proposed, "the goal says 2,048; these rows are shorter"
    more.get_by_role("button", name="Undo").click()
    more.get_by_text("Changed with").wait_for(state="detached", timeout=PATIENCE)
    until(lambda: draft(studio)["own"], 20)
    kept = {field: page.locator(f"#train-{field} input").input_value() for field in ("learning_rate", "max_length")}
    page.reload()
    settled(page, "400 rows")
    for key, value in kept.items():  # the page is drawn with the studio's first draft, and then gets the newest
        page.wait_for_function(
            "([key, value]) => document.querySelector(`#train-${key} input`).value === value", arg=[key, value]
        )


def test_an_own_file_is_read_mapped_and_shown_as_the_model_sees_it(
    used: Any, studio: RunningStudio, tmp_path: Path
) -> None:
    page = used
    page.locator("#data-file").set_input_files(say_rows(tmp_path, "sums <b>.jsonl", ROWS))
    settled(page, "30 rows")
    report = page.locator("#data-report").inner_text()
    assert "30 of 30 rows can be used" in report
    page.locator("#data-preview .token.trained", has_text="It is 1.").wait_for()
    until(lambda: draft(studio)["config"]["data"]["path"].startswith(str(studio.home / "data")), 20)
    page.wait_for_function("() => !document.querySelector('#start').disabled")
    shows(page, "#start", "Start training")  # one's own file: drop, Start
    page.get_by_role("gridcell", name="What is 2 plus one?").click()
    page.locator("#data-preview .token.trained", has_text="It is 3.").wait_for()


def test_a_model_folder_that_is_none_is_said_under_the_model(used: Any, tmp_path: Path) -> None:
    page = used
    model = page.locator("#model-name input")
    model.click()
    model.fill(str(tmp_path))
    model.press("Enter")
    page.locator("#model-about .fault").wait_for(timeout=PATIENCE)
    shows(page, "#start", "Choose another model")
    assert page.locator("#start").inner_text() == "Choose another model"
    shutil.copytree(STARTER, tmp_path, dirs_exist_ok=True)
    model.press("Enter")
    page.locator("#model-about .fault").wait_for(state="detached", timeout=PATIENCE)


def test_a_file_that_is_no_data_is_one_line_where_it_was_chosen(used: Any, tmp_path: Path) -> None:
    page = used
    file = tmp_path / "broken.jsonl"
    file.write_text('{"instruction": "a", "output": "b"}\n{"instruction": \n', "utf-8")
    page.locator("#data-file").set_input_files(file)
    page.wait_for_selector("#data-report :is(.fault, .left-out)", timeout=PATIENCE)
    words = page.locator("#data-report").inner_text()
    assert "Traceback" not in words
    assert "1 of 2 rows can be used" in words
    assert "no JSON" in words
    page.get_by_role("button", name="Show these rows").click()
    page.locator(".rows-row.flawed").wait_for()
    page.wait_for_function("() => document.querySelectorAll('.rows-row').length === 1")
    assert "no JSON" in page.locator(".rows-row [role=rowheader]").get_attribute("title")


def test_a_typed_path_and_a_missing_file(used: Any, tmp_path: Path) -> None:
    page = used
    typed = page.locator("#data-typed input")
    typed.fill("/nowhere/at/all.jsonl")
    typed.blur()  # leaving the field counts as much as Enter does
    page.locator("#data-report .fault").get_by_text("/nowhere/at/all.jsonl").wait_for(timeout=PATIENCE)
    page.wait_for_function("() => document.querySelector('#start').disabled")
    shows(page, "#start", "Fix the data file")
    assert page.locator("#start").inner_text() == "Fix the data file"
    typed.fill(str(say_rows(tmp_path, "typed.jsonl", ROWS)))
    typed.press("Enter")
    settled(page, "30 rows")
    page.wait_for_function("() => !document.querySelector('#start').disabled")


def test_the_keyboard_starts(used: Any, studio: RunningStudio, card_is_held: None) -> None:
    page = used
    page.locator("#train-learning_rate input").press("Control+Enter")
    page.wait_for_url("**/watch?run=*", timeout=PATIENCE)
    run_id = page.url.split("run=")[1]
    store = RunStore(Locations(studio.home))
    store.stop_now(run_id)
    until(lambda: store.record(run_id).state in ("stopped", "failed", "finished"), 20)
