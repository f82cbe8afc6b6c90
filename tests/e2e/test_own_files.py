"""A new user with files that nobody prepared: raw rows at once, columns proposed, edited in place, and trained on.

Clicks are counted as the browser hears them; a drop counts as one.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from driving import RunningStudio
from visiting import intercept, shows
from waiting import until

from core.machine.locations import Locations
from core.runs.control.store import RunStore

pytestmark = pytest.mark.browser
PATIENCE = 30_000
COUNT = "#data-table [data-f=count]"
CLICKS = """() => {
    if (window.clicks === undefined) addEventListener('click', (event) => (window.clicks += event.isTrusted), true);
    window.clicks = 0;
}"""
SHOWN = "(name) => document.querySelector('#data-rows [data-state]')?.dataset.state.includes(name)"
ROLES = "all => all.map((one) => one.value).filter(Boolean)"
WIDE_ENOUGH = """(least) => {
    const widths = [...document.querySelectorAll('.rows-head select')].map((one) => one.offsetWidth);
    return widths.length > 0 && Math.min(...widths) >= least;
}"""
"""Whether each column's role can be read; asked until it is so, since the head is drawn anew with its rows."""
COUNTS = range(1, 41)
ANSWER = "It is on its way and will be with you on day {}, as the carrier tells us."


def table_of(file: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return file


def lines_of(file: Path, rows: Sequence[Any]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file


def support(folder: Path) -> Path:
    rows = [
        {
            "Ticket": f"T-{n}",
            "Customer Message": f"Where is my order {n}? I need it soon.",
            "Agent Reply": ANSWER.format(n),
        }
        for n in COUNTS
    ]
    return table_of(folder / "support.csv", rows)


def nested(folder: Path) -> Path:
    rows = [{"id": n, "data": {"question": f"What is {n} plus one?", "answer": f"It is {n + 1}."}} for n in COUNTS]
    (folder / "nested.json").write_text(json.dumps(rows), "utf-8")
    return folder / "nested.json"


def parts(folder: Path) -> Path:
    """Content in parts; two rows have a picture."""
    rows = []
    for n in COUNTS:
        asked: list[Any] = [{"type": "text", "text": f"Describe the number {n}."}]
        if n in (3, 9):
            asked.append({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}})
        answer = [{"type": "text", "text": f"It comes after {n - 1}."}]
        rows.append({"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]})
    return lines_of(folder / "parts.jsonl", rows)


def pairs(folder: Path) -> Path:
    rows = [
        {
            "customer_query": f"May I return item {n}?",
            "preferred_reply": f"Yes, item {n} within 30 days.",
            "worse_reply": "No.",
        }
        for n in COUNTS
    ]
    return lines_of(folder / "pairs.jsonl", rows)


def labels(folder: Path) -> Path:
    rows = [
        {"Ticket text": f"Message {n}: the {('screen', 'parcel')[n % 2]} is broken again, please help me with it.",
         "Department": ("repairs", "shipping")[n % 2]}
        for n in COUNTS
    ]  # fmt: skip
    return table_of(folder / "labels.csv", rows)


def clicks_to_start(page: Any, file: Path, roles: Sequence[str], proposed: bool = True) -> int:
    """Drops a file and does what the page asks for, until its columns have these roles and Start can be pressed, which
    counts too; ``proposed``: roles are proposed, to be taken. Start by itself may still be that of the file before."""
    page.evaluate(CLICKS)
    page.locator("#data-file").set_input_files(file)
    page.wait_for_function(SHOWN, arg=f"/{file.name}")
    if proposed:
        page.get_by_role("button", name="Use this").click()
    page.wait_for_function(
        f"(roles) => ({ROLES})([...document.querySelectorAll('.rows-head select')]).sort().join() === roles",
        arg=",".join(sorted(roles)),
    )
    assert page.locator("#data-report .fault").count() == 0, "never a red box for want of a mapping"
    page.wait_for_function("() => !document.querySelector('#start').disabled")
    page.locator(".rows-row:not(.away)").nth(4).wait_for()
    return int(page.evaluate("() => window.clicks")) + 2


@pytest.mark.parametrize(
    ("make", "clicks", "roles"),
    [
        (support, 3, ["question", "answer"]),
        (nested, 3, ["question", "answer"]),
        (parts, 2, ["conversation"]),
        pytest.param(pairs, 3, ["question", "chosen", "rejected"], marks=pytest.mark.slow),
        pytest.param(labels, 3, ["text", "label"], marks=pytest.mark.slow),
    ],
)
def test_a_file_that_nobody_prepared_is_ready_in_three_clicks(
    page: Any, tmp_path: Path, make: Any, clicks: int, roles: list[str]
) -> None:
    if make is pairs:  # a file that is dropped while the page is still being drawn was lost
        page.reload(wait_until="commit")
    assert clicks_to_start(page, make(tmp_path), roles, proposed=clicks == 3) == clicks
    page.locator("#data-preview .token").first.wait_for()
    page.wait_for_function(WIDE_ENOUGH, arg=94)
    if make is parts:
        shows(page, "#data-report", "38 of 40 rows can be used")
        page.get_by_role("button", name="Show these rows").click()
        shows(page, COUNT, "2 of 40 rows")
        page.get_by_role("button", name="Show all rows").click()


def test_an_alpaca_file_takes_two_clicks_and_a_role_is_changed_in_its_header(page: Any, tmp_path: Path) -> None:
    rows = [{"instruction": f"Count to {n}.", "input": "", "output": f"{n}", "source": "by hand"} for n in COUNTS]
    roles = ["question", "context", "answer"]
    assert clicks_to_start(page, lines_of(tmp_path / "alpaca.jsonl", rows), roles, proposed=False) == 2
    page.get_by_label("What output is").select_option("")
    shows(page, "#start", "Which column is the answer?")
    assert page.locator(".rows-row").count() > 5, "the rows stay"
    page.get_by_label("What source is").select_option("answer")
    page.locator("#data-preview .token.trained", has_text="by hand").wait_for()
    assert "also answer" in page.get_by_label("What output is").inner_text()
    page.get_by_label("What output is").select_option("answer")
    until(lambda: page.get_by_label("What source is").locator("option:checked").inner_text() == "answer 2 of 2", 20)
    page.wait_for_function("() => !document.querySelector('#start').disabled")


def test_several_files_at_once_become_a_mixture(page: Any, tmp_path: Path) -> None:
    rows = [{"instruction": f"Spell {n}.", "output": f"number {n}"} for n in COUNTS]
    page.locator("#data-file").set_input_files([support(tmp_path), lines_of(tmp_path / "more.jsonl", rows)])
    shows(page, "#data-report", "Mixed from support.csv × 1, more.jsonl × 1")
    shows(page, COUNT, "80 rows")


def test_rows_are_edited_excluded_and_undone_and_the_run_has_the_made_set(
    page: Any, studio: RunningStudio, tmp_path: Path, card_is_held: None
) -> None:
    file = support(tmp_path)
    clicks_to_start(page, file, ["question", "answer"])
    cell = page.get_by_role("gridcell", name="on day 3,")
    cell.dblclick()
    page.locator(".cell-edit textarea").fill("Left as it was")
    page.keyboard.press("Escape")
    assert page.evaluate("() => document.activeElement.role") == "gridcell", "the keyboard is back in the cell"
    cell.dblclick()
    page.locator(".cell-edit textarea").fill("It is <b>here</b>.")
    page.keyboard.press("Control+Enter")
    shows(page, "#data-table [data-f=changes]", "1 change")
    page.get_by_role("gridcell", name="Where is my order 5?").click()
    page.keyboard.press("Delete")
    shows(page, "#data-table [data-f=changes]", "2 changes")
    page.get_by_role("gridcell", name="Where is my order 4?").click()
    page.keyboard.press("Delete")
    shows(page, "#data-table [data-f=changes]", "3 changes")
    page.keyboard.press("Control+z")
    shows(page, "#data-table [data-f=changes]", "2 changes")
    assert page.locator(".rows-row.excluded").count() == 1
    shows(page, "#data-report", "support.csv with your changes: 1 row edited, 1 row excluded.")
    shows(page, "#data-report", "39 of 39 rows can be used")
    page.get_by_role("gridcell", name="It is <b>here</b>.").click()
    page.locator("#data-preview .token.trained", has_text="It is <b>here</b>.").wait_for()
    page.reload()
    shows(page, "#data-table [data-f=changes]", "2 changes")
    page.wait_for_function("() => !document.querySelector('#start').disabled")
    page.get_by_role("gridcell", name="Where is my order 8?").click()
    on_their_way: list[Any] = []
    intercept(page, "**/studio/data/change", lambda route: on_their_way.append(route))
    with page.expect_request("**/studio/data/change"):
        page.keyboard.press("Delete")
    page.locator("#start").click()  # at once: Start waits for the change on its way, and for the made set
    page.wait_for_timeout(300)
    assert page.url.endswith("/"), "nothing starts without the change"
    on_their_way[0].continue_()
    page.unroute("**/studio/data/change")
    page.wait_for_url("**/watch?run=*")
    store, run_id = RunStore(Locations(studio.home)), page.url.split("run=")[1].split("&")[0]
    config = store.open(run_id).config()
    store.stop_now(run_id)
    rows = [json.loads(line) for line in Path(config.data.path).read_text("utf-8").splitlines() if line.strip()]
    assert [row["Ticket"] for row in rows] == [f"T-{n}" for n in COUNTS if n not in (5, 8)]
    assert rows[2]["Agent Reply"] == "It is <b>here</b>."
    assert "<b>" not in file.read_text("utf-8"), "the file is as it was"
    until(lambda: store.record(run_id).state in ("stopped", "failed", "finished"), 20)
    page.goto(studio.root)
