"""See before you train, in a real browser: the rows, their lengths, the data doctor, and the plan's proposals.

One studio and one page for all of it; each test begins with the file that it needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from driving import RunningStudio
from visiting import WINDOW, intercept, shows
from waiting import until

pytestmark = pytest.mark.browser
PATIENCE = 40_000
PLACES = ("attic", "barn", "cellar", "dock", "engine room", "ferry", "garden", "harbour", "island", "jetty")
LARGE_ROWS = 60_000
COUNT = "#data-table [data-f=count]"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """45 rows of growing length, three of which repeat another one."""
    made = [row(number) for number in range(42)]
    return written(tmp_path_factory.mktemp("rows") / "rows.jsonl", [*made, made[3], made[5], made[7]])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that takes some seconds to read."""
    line = json.dumps({"instruction": "Which row is this?", "output": "It is one of very many rows. " * 8})
    file = tmp_path_factory.mktemp("large") / "large.jsonl"
    file.write_text(f"{line}\n" * LARGE_ROWS, "utf-8")
    return file


def row(number: int) -> dict[str, str]:
    place = PLACES[number % len(PLACES)]
    return {
        "instruction": f"What stands in the {place} number {number}, and who put it there?",
        "output": " ".join(f"Thing {number * 7 + part} of the {place}." for part in range(1 + number)),
    }


def written(file: Path, found: Sequence[Mapping[str, str]]) -> Path:
    file.write_text("".join(json.dumps(one) + "\n" for one in found), "utf-8")
    return file


def chosen(page: Any, file: Path, count: str) -> None:
    """Drops a file, where it is not chosen already, and waits for its rows."""
    page.locator("#data-file").set_input_files(file)
    shows(page, "#data-report", file.name)
    shows(page, "#data-report", f"{count} rows can be used")
    shows(page, COUNT, f"{count.split(' ')[-1]} rows")
    page.locator("#data-preview .rows").wait_for(state="attached")


def opened(page: Any, panel: str) -> None:
    page.locator(f"#tab-{panel}").click()
    page.locator(f"#panel-{panel}").wait_for()


def test_rows_are_searched_sorted_and_reached_by_keys(page: Any, rows: Path) -> None:
    chosen(page, rows, "45 of 45")
    head = page.locator("#data-preview .row-head").first.inner_text()
    assert re.search(r"Row 1\s+\d+ tokens, \d+ learned", head)
    for kind in ("trained", "read", "special"):
        assert page.locator(f"#data-preview .rows .token.{kind}").count()
    page.get_by_role("gridcell", name="attic number 0").click()
    page.keyboard.press("Control+End")
    at = "() => [document.activeElement.parentElement.ariaRowIndex, document.activeElement.ariaColIndex]"
    assert page.evaluate(at) == ["46", "4"], "rows count the header, columns number and tokens"
    shows(page, "#data-preview .row-head", "Row 45")
    page.keyboard.press("Control+Home")
    for key in ("ArrowDown", "Shift+ArrowDown", "Shift+PageDown"):
        page.keyboard.press(key)
    picked = page.locator('.rows-row[aria-selected="true"]')
    shows(page, COUNT, f"{picked.count()} selected")
    assert picked.count() > 3
    page.keyboard.press("Escape")
    assert picked.count() == 0
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.closest('[role=grid]')") is None, "one stop of the Tab key"
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("() => Boolean(document.activeElement.closest('[role=grid]'))")
    page.get_by_label("Search in the rows").fill("harbour number 17")
    shows(page, COUNT, "1 of 45 rows")
    shows(page, "#data-preview", "harbour number 17")
    page.get_by_label("Search in the rows").fill("no such words")
    shows(page, "#data-table .only", "No row matches.")
    page.get_by_role("button", name="Show all rows").click()
    shows(page, COUNT, "45 rows")
    page.get_by_text("Filter", exact=True).click()
    page.get_by_label("Order").select_option("longest")
    longest = "() => parseInt(document.querySelector('.rows-row[aria-rowindex=\"2\"] > *')?.innerText) > 30"
    page.wait_for_function(longest)
    page.get_by_label("Order").select_option("file")
    page.get_by_role("button", name="Full height").click()
    high = """([least, most]) => {
        const { height } = document.querySelector('.rows-grid').getBoundingClientRect();
        return least < height && height < most;
    }"""
    page.wait_for_function(high, arg=[600, 900])
    page.keyboard.press("Escape")
    page.locator("#data-whole").wait_for(state="hidden")
    page.wait_for_function(high, arg=[50, 300])


def test_a_pair_its_marks_and_labels_are_seen_as_what_they_are(page: Any, tmp_path: Path) -> None:
    """Pairs beside each other with what differs, labels as chips with their counts, marks in words."""
    same = "You need {} eggs; bake each side for {} minutes until it is {}."
    asked = [f"How many eggs for {number} pancakes?" for number in range(24)]
    pair = {"chosen": same.format(2, "two", "golden"), "rejected": same.format(9, "twenty", "black")}
    chosen(page, written(tmp_path / "pairs.jsonl", [{"prompt": one, **pair} for one in asked]), "24 of 24")
    sides = page.locator("#data-preview .rows > li").first.locator(".answer")
    assert [side.locator(".differs").all_inner_texts() for side in sides.all()] == [
        [" 2", " two", " golden"],
        [" 9", " twenty", " black"],
    ]
    page.get_by_role("button", name="Full height").click()
    page.locator("dialog.rows-whole #data-preview .rows > li").first.wait_for()
    left, right = (side.bounding_box() for side in sides.all())
    assert left["x"] + left["width"] <= right["x"]
    assert left["y"] == right["y"]
    page.get_by_role("button", name="Back to the page").click()
    assert page.locator("#data-preview .rows > li").first.inner_text().count("pancakes") == 1, "the prompt stands once"
    assert sides.last.locator(".token.avoided").count()
    page.set_viewport_size({"width": 390, "height": 844})
    left, right = (side.bounding_box() for side in sides.all())
    assert left["x"] == pytest.approx(right["x"], abs=1)
    assert left["y"] + left["height"] <= right["y"]
    page.set_viewport_size(WINDOW)
    topics = [{"text": one, "label": ("food", "Food", "cooking <b>")[number % 3]} for number, one in enumerate(asked)]
    chosen(page, written(tmp_path / "topics.jsonl", topics), "24 of 24")
    assert page.locator(".label-counts li").all_inner_texts() == [
        f"{name}\n8 rows" for name in ("food", "Food", "cooking <b>")
    ]
    page.get_by_role("gridcell", name="cooking <b>").first.click()
    shows(page, "#data-preview .row-head .chip", "cooking <b>")
    opened(page, "doctor")
    finding = page.locator(".data-finding", has_text="Labels spelled differently")
    finding.get_by_role("button", name="Write 8 rows like the others").click()
    shows(page, "#data-report", "given the usual spelling of their label")
    shows(page, "#data-report", "16 rows")
    opened(page, "rows")
    marks = [
        {"prompt": one, "completion": same, "label": "👎" if number > 21 else "👍"} for number, one in enumerate(asked)
    ]
    page.locator("#data-file").set_input_files(written(tmp_path / "marks.jsonl", marks))
    shows(page, "#data-report", "Read as good: 👍; as bad: 👎.")
    shows(page, "#data-report", "22 (92%)")
    shows(page, "#data-preview .row-head .chip", "good")


def test_the_slider_sets_the_longest_example_and_all_numbers_follow(page: Any, rows: Path) -> None:
    chosen(page, rows, "45 of 45")
    opened(page, "lengths")
    shows(page, "#lengths-figures", "of 45")
    slider = page.get_by_role("slider", name="Max length")
    slider.focus()
    slider.press("Home")
    page.wait_for_function("() => document.querySelector('#train-max_length input').value !== '256'")
    least = page.locator("#train-max_length input").input_value()
    page.wait_for_function("(least) => document.querySelector('.length-figures dd')?.innerText === least", arg=least)
    page.wait_for_function("(least) => document.querySelector('.lengths')?.dataset.limit === least", arg=least)
    shows(page, "#summary", f"are longer than {least} tokens")
    cut = int(page.locator("#lengths-figures .warned dd").first.inner_text().split(" of ")[0])
    assert f"{cut} of 45 rows are longer than {least} tokens" in page.locator("#summary").inner_text()
    assert f"limit of {least} tokens cuts {cut} rows" in page.locator(".histogram").get_attribute("aria-label")
    took, answered = page.evaluate(MOVED, 3)
    assert min(took) < 100, f"milliseconds from the slider to the limit in numbers: {took}"
    assert min(answered) < 600, f"milliseconds from the slider to what follows from it: {answered}"
    assert page.locator("#train-max_length input").input_value() != least
    slider.press("End")
    shows(page, "#lengths-figures", "0 of 45")
    assert "tokens" in slider.get_attribute("aria-valuetext")


MOVED = """async (times) => {
  const slider = document.getElementById('length-slider'), took = [], answered = [];
  const limit = () => document.querySelector('.length-figures dd').innerText.replaceAll(',', '');
  const until = async (held) => { while (!held()) await new Promise((done) => setTimeout(done, 5)); };
  for (let step = 0; step < times; step += 1) {
    const before = limit(), start = performance.now();
    slider.value = String(Number(slider.value) + 2);
    slider.dispatchEvent(new Event('input', { bubbles: true }));
    await until(() => limit() !== before);
    took.push(Math.round(performance.now() - start));
    await until(() => document.querySelector('.lengths').dataset.limit === limit());
    answered.push(Math.round(performance.now() - start));
    await new Promise((done) => setTimeout(done, 400));
  }
  return [took, answered];
}"""
"""The limit's own figure is there at once; the picture is drawn with it by the studio's answer."""


def test_a_finding_leads_to_its_rows_and_its_fix_to_a_new_set_and_back(page: Any, rows: Path) -> None:
    chosen(page, rows, "45 of 45")
    opened(page, "doctor")
    finding = page.locator(".data-finding", has_text="Duplicate rows")
    finding.get_by_role("button", name="Show").click()
    shows(page, "#data-table .only", "Only rows with “Duplicate rows”: 3")
    assert page.locator("#panel-rows").is_visible(), "the rows are one click away"
    assert page.locator(".rows-row [role=rowheader]").all_inner_texts() == ["43\n•", "44\n•", "45\n•"]
    assert "repeat" in page.locator(".rows-row [role=rowheader]").first.get_attribute("title")
    page.get_by_role("button", name="Show all rows").click()
    shows(page, COUNT, "45 rows")
    opened(page, "doctor")
    finding.get_by_role("button", name="Leave out").click()
    shows(page, "#data-report", "42 of 42 rows can be used")
    shows(page, "#data-report", "Your file is unchanged.")
    page.get_by_role("button", name="Back to the file").click()
    shows(page, "#data-report", "45 of 45 rows can be used")
    assert len(rows.read_text("utf-8").splitlines()) == 45


def test_two_files_become_one_by_weight(page: Any, rows: Path, tmp_path: Path) -> None:
    chosen(page, rows, "45 of 45")
    page.get_by_text("Mix files, or use").click()
    page.locator("#mix-file").set_input_files(written(tmp_path / "more.jsonl", [row(n) for n in range(100, 110)]))
    page.get_by_label("Weight of more.jsonl").wait_for()
    assert page.locator(".mix-parts .share").all_inner_texts() == ["82%", "18%"], "45 and 10 rows"
    page.get_by_label("Weight of more.jsonl").fill("2")
    assert page.locator(".mix-parts .share").all_inner_texts() == ["69%", "31%"], "of 65 rows"
    page.get_by_role("button", name="Make the mixed data set").click()
    shows(page, "#data-report", "65 of 65 rows can be used")
    shows(page, "#data-report", "more.jsonl × 2")
    page.get_by_text("Mix files, or use").click()


def test_a_file_that_is_dropped_while_a_goal_is_answered_stays(page: Any, rows: Path, tmp_path: Path) -> None:
    """The goal's event is held back until the file is shown: its answer is of the fields as they were before."""
    chosen(page, rows, "45 of 45")
    goal, held = page.get_by_role("radio", name="Follow a format"), []
    key = goal.get_attribute("value")

    def is_the_goals(request: Any) -> bool:
        """An event begins with its own field's value."""
        return "/queue/join" in request.url and request.post_data_json["data"][:1] == [key]

    intercept(
        page, "**/queue/join*", lambda route: held.append(route) if is_the_goals(route.request) else route.continue_()
    )
    with page.expect_request(is_the_goals):
        goal.check()
    chosen(page, written(tmp_path / "later.jsonl", [row(n) for n in range(30)]), "30 of 30")
    shows(page, "#start", "Start training")  # its settings have followed
    with page.expect_response(lambda answer: is_the_goals(answer.request)):
        held[0].continue_()
    page.unroute("**/queue/join*")
    page.reload()  # at once: what was put down for later is of the new file too
    shows(page, "#data-report", "30 of 30 rows can be used")
    until(lambda: page.locator("#data-path textarea").input_value().endswith("later.jsonl"), 20)
    until(goal.is_checked, 20)
    page.get_by_role("radio", name="Try it").check()


CANCELLED = """() => {
  const report = document.getElementById('data-report');
  const rows = [...document.querySelectorAll('.rows-row')].some((row) => row.innerText.includes('Which row is this?'));
  if (!rows || !report.innerText.includes('Checking the whole file')) return false;
  if (!document.getElementById('start').disabled) throw new Error('Start does not wait for the check');
  [...report.querySelectorAll('button')].find((button) => button.innerText === 'Cancel').click();
  return true;
}"""
"""Its rows are there while it is checked, and Start waits; in one look, as the check lasts about a second."""


def test_a_large_file_is_checked_with_progress_and_can_be_cancelled(page: Any, large: Path) -> None:
    page.locator("#data-file").set_input_files(large)
    page.wait_for_function(CANCELLED)
    shows(page, "#data-report", "A run needs the whole file checked.")
    shows(page, "#start", "Check the whole file first")
    assert page.locator("#start").inner_text() == "Check the whole file first"
    page.get_by_role("button", name="Check the whole file", exact=True).click()
    shows(page, "#data-report", f"{LARGE_ROWS:,} of {LARGE_ROWS:,} rows can be used")
    opened(page, "lengths")
    count = page.get_by_role("button", name=f"Count all {LARGE_ROWS:,} rows")
    count.click()
    page.locator("#lengths-figures").get_by_role("button", name="Cancel").click()
    count.wait_for()


def test_one_click_makes_it_fit(page: Any, large: Path) -> None:
    chosen(page, large, f"{LARGE_ROWS:,} of {LARGE_ROWS:,}")
    page.get_by_role("button", name="Advanced settings").click()
    for knob, value in (("per_device_train_batch_size", "4096"), ("gradient_accumulation_steps", "64")):
        page.locator(f"#train-{knob} input").fill(value)
    page.locator("#train-tokens_per_pass input").fill("9000000")  # all rows in one pass: more than 100 GB
    page.locator("#train-checkpointing input").click()
    page.get_by_role("option", name="never: keep everything").click()
    page.locator("#summary .verdict.too_large").wait_for()
    way = page.locator("#summary .fit li", has=page.locator(".need.fits")).first
    way.get_by_role("button").click()
    page.locator("#summary .run-sentence", has_text="Fits, with").wait_for()
    assert page.locator("#summary .fit").count() == 0
    page.get_by_role("button", name="Advanced settings").click()
    page.get_by_role("radio", name="Try it").check()


@pytest.mark.parametrize(("panel", "most"), [
    ("reading", 22), *(pytest.param(name, 15, marks=pytest.mark.slow) for name in ("rows", "lengths", "doctor")),
])  # fmt: skip
def test_start_is_at_most_fifteen_tabs_away(page: Any, rows: Path, panel: str, most: int) -> None:
    """From the page's beginning, and on the panels beside; correcting how a file is read has a field for each role.

    Before the page stand two ways past the menu, and the menu's five.
    """
    chosen(page, rows, "45 of 45")
    opened(page, panel)
    page.wait_for_function("() => !document.querySelector('#start').disabled")
    page.locator("#page").first.focus()
    stops = []
    for _ in range(most):
        page.keyboard.press("Tab")
        stops.append(
            page.evaluate("() => document.activeElement.id || document.activeElement.textContent.slice(0, 30)")
        )
        on_body = "() => document.activeElement === document.body"
        assert not page.evaluate(on_body), f"after these the keyboard was nowhere: {stops}"
        if stops[-1] == "start":
            break
    assert stops[-1] == "start", stops


def test_kept_tokens_are_listed_and_cleared(page: Any, studio: RunningStudio) -> None:
    page.goto(f"{studio.root}/settings")
    page.locator("[data-f=kept] tbody tr").first.wait_for(state="attached")
    page.get_by_role("button", name="Clear: Tokenized rows").click()
    page.locator("[data-f=kept]").wait_for(state="detached")
    page.reload()
    page.get_by_role("button", name="Clear: Tokenized rows").wait_for()
    assert page.locator("[data-f=kept]").count() == 0
