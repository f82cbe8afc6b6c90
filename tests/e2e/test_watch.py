"""Watch, history, try and take home in a real browser, over runs written as a worker writes them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from driving import RunningStudio
from made_runs import BEGAN, append, past, step, write_run
from visiting import Visit, intercept

from core.contract.events import (
    Acknowledged,
    Checkpoint,
    Correction,
    Evaluation,
    Failed,
    Finished,
    Paused,
    Queued,
    Starting,
    Stopped,
)
from core.machine.locations import Locations
from core.machine.locks import FileLock
from core.runs.folder.job_folder import JobFolder

pytestmark = pytest.mark.browser

LIVING, LONG, FAILED, PAUSED, FULL, SPIKED = (
    "2026-11-20_2243_living_k3f9",
    "2026-11-19_2243_long_k3f9",
    "2026-11-18_2243_failed_k3f9",
    "2026-11-17_2243_paused_k3f9",
    "2026-11-15_2243_full_k3f9",
    "2026-11-14_2243_spiked_k3f9",
)
NAMED = "<b>bold</b> & 'quoted'"


@dataclass
class House(Visit):
    """A studio over made runs, and the browser context that was let in."""

    living: JobFolder


@pytest.fixture(scope="module")
def house(bare_context: Any, studio: RunningStudio) -> Iterator[House]:
    locations = Locations(studio.home).make()
    living = write_run(locations, past(150, total=400), LIVING, "Living")
    write_run(locations, past(20_000, finished=True), LONG, "Long night", checkpoints=(20_000,))
    fault = Failed(at=1e9, attempt=1, code="disk.full", message="Expected 2 GB free, found 1 GB.", hint="Make room.")
    write_run(locations, [*past(120), fault], FAILED, NAMED, checkpoints=(100,))
    full = fault.model_copy(update={"code": "memory.gpu", "message": "The card's memory is full.", "hint": ""})
    write_run(locations, [*past(120), full], FULL, "Full", checkpoints=(100,))
    write_run(locations, [*past(30), Paused(at=1e9, attempt=1, step=30)], PAUSED, "Paused one")
    write_run(locations, spiked(), SPIKED, "Spiked")
    hold = FileLock(living.supervisor_lock)
    assert hold.acquire()  # somebody lives, so the run is not lost
    house = House(studio, bare_context, living)
    yield house
    house.leave()
    hold.release()


def spiked() -> list[Any]:
    """A stopped run with one loss of 40, a pause and a correction."""
    told = [
        one.model_copy(update={"loss": 40.0}) if one.kind == "step" and one.step == 60 else one for one in past(130)
    ]
    halved = Correction(at=1e9, attempt=1, step=120, key="train.learning_rate", old="2e-4", new="1e-4", reason="why")
    again = [
        Starting(at=BEGAN + 900, attempt=2, resumed_step=130),
        *(step(n, BEGAN + 900 + n, 2) for n in range(131, 151)),
    ]
    return [*told, halved, Paused(at=1e9, attempt=1, step=130), *again, Stopped(at=2e9, attempt=2, step=150)]


def wait_for_chart(page: Any) -> None:
    page.wait_for_function("() => document.querySelector('.chart-loss .line')?.getAttribute('d')?.length > 20")


def path_of(page: Any, chart: str, kind: str = "line") -> str:
    return str(page.eval_on_selector(f".chart-{chart} .{kind}", "(path) => path.getAttribute('d') ?? ''"))


def test_the_chart_appears_and_grows_with_the_run(house: House) -> None:
    page = house.page(f"/watch?run={LIVING}")
    wait_for_chart(page)
    assert page.get_by_role("heading", level=1).inner_text() == "Living"
    assert page.locator('[data-f="step"]').inner_text() == "150 of 400"
    assert page.title().startswith("Training 38%")
    before = path_of(page, "loss")
    append(house.living, [step(number, time.time()) for number in range(151, 171)])
    page.wait_for_function("() => document.querySelector('[data-f=step]').textContent === '170 of 400'")
    assert path_of(page, "loss") != before
    assert page.faults == []


def stands_out(page: Any) -> list[str]:
    """The words of all buttons that have the accent's colour."""
    found = page.evaluate("""() => {
        const accent = Object.assign(document.createElement('i'), { style: 'background: var(--accent)' });
        document.body.append(accent);
        const colour = getComputedStyle(accent).backgroundColor;
        accent.remove();
        return [...document.querySelectorAll('main .push')]
            .filter((push) => push.checkVisibility() && getComputedStyle(push).backgroundColor === colour)
            .map((push) => push.textContent);
    }""")
    return list(found)


def test_a_failure_says_cause_and_cure_and_has_one_button_for_it(house: House) -> None:
    page = house.page(f"/watch?run={FULL}")
    again = page.get_by_role("button", name="Run again with gradient checkpointing: in every layer")
    again.wait_for()
    assert stands_out(page) == [again.inner_text()], "resuming stands back"
    again.click()
    page.wait_for_url(f"{house.studio.root}/", wait_until="commit")
    page = house.page(f"/watch?run={FAILED}")
    page.get_by_text("Make room.").wait_for()
    assert page.get_by_text("Expected 2 GB free, found 1 GB.").is_visible()
    assert page.get_by_role("heading", level=1).inner_text() == NAMED
    assert stands_out(page) == ["Resume"]
    assert page.locator('[data-f="next-do"]').is_hidden()


def test_a_series_that_comes_late_is_drawn(house: House) -> None:
    page = house.page(f"/watch?run={LIVING}")
    wait_for_chart(page)
    assert page.locator(".chart-load").is_hidden()
    last = int(page.locator('[data-f="step"]').inner_text().split(" ")[0])
    late = [step(number, time.time()).model_copy(update={"gpu_load": 0.9}) for number in range(last + 1, last + 11)]
    append(house.living, late)
    page.locator(".chart-load").wait_for(state="visible")
    page.locator(".chart-load").scroll_into_view_if_needed()  # what is off the screen is not painted
    page.wait_for_function("() => document.querySelector('.chart-load .line')?.getAttribute('d')?.length > 20")
    assert "90%" in page.locator(".chart-load .chart-legend").inner_text()


def test_hovering_reads_every_chart_at_that_step(house: House) -> None:
    page = house.page(f"/watch?run={LONG}")
    wait_for_chart(page)
    page.hover(".chart-loss svg", position={"x": 400, "y": 80})
    page.wait_for_function("() => document.querySelector('.chart-loss .chart-at').textContent.startsWith('Step ')")
    assert page.locator(".chart-loss .cross").get_attribute("visibility") == "visible"
    assert page.locator(".chart-speed .chart-at").inner_text() == page.locator(".chart-loss .chart-at").inner_text()
    page.mouse.move(5, 5)
    page.wait_for_function("() => document.querySelector('.chart-loss .chart-at').textContent === ''")
    page.locator(".chart-loss svg.chart-svg").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator(".chart-loss [role=status]").inner_text().startswith("Step "), "it is announced too"


def test_a_chart_marks_what_happened_hides_a_line_and_is_kept_as_a_file(house: House) -> None:
    page = house.page(f"/watch?run={SPIKED}")
    wait_for_chart(page)
    loss = page.locator(".chart-loss")
    svg = loss.locator("svg.chart-svg")
    assert "Training: 2." in svg.get_attribute("aria-label")
    assert "best 1.210 at step 100" in svg.get_attribute("aria-label"), "start, best and last in words"
    assert page.locator('[data-f="marks"]').inner_text().split("\n") == ["Checkpoint", "Pause or restart", "Correction"]
    ticks = loss.locator('text.tick[text-anchor="end"]').all_text_contents()
    highest = max(float(tick) for tick in ticks if tick.replace(".", "").isdigit() and float(tick) < 50)
    assert highest < 5, "one spike of 40 does not press the line into the ground"
    assert loss.locator(".edge.tone-a").get_attribute("d").count("M") == 1
    for number, words in ((60, "off the scale: 40.0"), (100, "checkpoint saved"), (120, "Learning rate went from")):
        page.mouse.move(*page.evaluate(PLACE, number))
        page.wait_for_function(
            "(words) => document.querySelector('.chart-loss .chart-at').textContent.includes(words)", arg=words
        )
    held = loss.get_by_role("button", name="Held-out")
    assert held.get_attribute("aria-pressed") == "true"
    before = path_of(page, "loss")
    held.click()
    page.wait_for_function("() => !document.querySelectorAll('.chart-loss .dots')[1].getAttribute('d')")
    assert path_of(page, "loss") != before, "the scale follows what is left"
    held.click()
    starts = {"PNG": b"\x89PNG", "SVG": b'<?xml version="1.0"', "CSV": b"step,loss,evaluation\n0,,2.5\n1,"}
    for kind, start in starts.items():
        loss.locator(".chart-save > summary").click()
        with page.expect_download() as kept:
            loss.get_by_role("button", name=kind).click()
        content = Path(kept.value.path()).read_bytes()
        assert content.startswith(start), kind
        assert kept.value.suggested_filename == f"luthier-loss.{kind.lower()}" or kind == "CSV"
        if kind == "SVG":
            drawn = ElementTree.fromstring(content)
            assert "Loss" in "".join(drawn.itertext())
            assert b"class=" not in content
    assert page.faults == []


PLACE = """(step) => {
    const svg = document.querySelector('.chart-loss svg').getBoundingClientRect();
    const left = svg.left + 62, right = svg.right - 14;
    return [left + (right - left) * step / 150, svg.top + 60];
}"""


STEPS = """() => {
    const words = [...document.querySelectorAll('.chart-loss .tick')].map((tick) => tick.textContent.replace(',', ''));
    const steps = words.map(Number).filter((value) => value > 100);
    return steps"""


def test_zoom_shows_single_steps_and_goes_back(house: House) -> None:
    page = house.page(f"/watch?run={LONG}")
    wait_for_chart(page)
    box = page.locator(".chart-loss svg").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 310, box["y"] + 60, steps=4)
    page.mouse.move(box["x"] + 320, box["y"] + 60)
    page.mouse.up()
    whole = page.get_by_role("button", name="Whole run")
    whole.wait_for(state="visible")
    page.wait_for_function(STEPS + ".length > 1 && Math.max(...steps) - Math.min(...steps) < 2000; }")
    whole.click()
    whole.wait_for(state="hidden")


def test_log_scale_and_smoothing_redraw(house: House) -> None:
    page = house.page(f"/watch?run={LONG}")
    wait_for_chart(page)
    plain = path_of(page, "loss")
    page.locator(".chart-loss .chart-log").click()
    page.wait_for_function("(was) => document.querySelector('.chart-loss .line').getAttribute('d') !== was", arg=plain)
    assert page.locator(".chart-loss .chart-log").get_attribute("aria-pressed") == "true"
    log = path_of(page, "loss")
    page.get_by_label("Smoothing").select_option("0.98")
    page.wait_for_function("(was) => document.querySelector('.chart-loss .line').getAttribute('d') !== was", arg=log)
    assert path_of(page, "loss", "faint")
    page.get_by_label("Smoothing").select_option("0")
    page.wait_for_function("() => document.querySelector('.chart-loss .faint').getAttribute('d') === ''")


def test_the_table_has_the_same_numbers(house: House) -> None:
    page = house.page(f"/watch?run={LONG}")
    wait_for_chart(page)
    page.locator(".chart-loss").get_by_text("As a table").click()
    rows = page.locator(".chart-loss tbody tr")
    rows.first.wait_for()
    assert 10 <= rows.count() <= 42
    assert "–" not in rows.last.inner_text()


def test_fifty_polls_leave_the_page_as_large_as_it_was(house: House) -> None:
    page = house.page(f"/watch?run={LIVING}")
    wait_for_chart(page)
    page.wait_for_timeout(1_200)
    before = page.evaluate("() => document.getElementsByTagName('*').length")
    last = int(page.locator('[data-f="step"]').inner_text().split(" ")[0])
    polls = []
    page.on("response", lambda answer: polls.append(answer) if "/studio/points" in answer.url else None)
    page.evaluate("() => { for (let i = 0; i < 4; i += 1) document.dispatchEvent(new Event('visibilitychange')); }")
    for number in range(last + 1, last + 51):
        append(house.living, [step(number, time.time())])
        with page.expect_response(lambda answer: "/studio/points" in answer.url):
            page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(300)
    assert len(polls) >= 50
    assert page.evaluate("() => document.getElementsByTagName('*').length") == before


def test_buttons_ask_the_run_and_show_that_it_heard(house: House) -> None:
    page = house.page(f"/watch?run={LIVING}")
    wait_for_chart(page)
    page.get_by_role("button", name="Save now").click()
    deadline = time.monotonic() + 5
    commands = house.living.commands
    while time.monotonic() < deadline and not (commands.exists() and commands.read_text()):
        time.sleep(0.05)  # it is there a moment before its line is
    assert '"save"' in commands.read_text()
    append(house.living, [Acknowledged(at=time.time(), attempt=1, command_id="x", command="save")])
    page.get_by_text("Saving in a moment.").wait_for()
    assert page.get_by_role("button", name="Save now").is_hidden()
    saved = Checkpoint(at=time.time(), attempt=1, step=150, name="step-000150", bytes=1)
    append(house.living, [saved])
    page.get_by_role("button", name="Save now").wait_for()
    page.get_by_role("button", name="Stop …").click()
    page.get_by_role("button", name="Go on training").click()
    assert '"stop"' not in house.living.commands.read_text()


def test_without_an_id_the_living_run_is_shown(house: House) -> None:
    page = house.page("/watch")
    page.get_by_role("heading", level=1, name="Living").wait_for()
    assert page.url.endswith(f"run={LIVING}")


def titled(page: Any, titles: list[str]) -> None:
    """Waits until the history shows these runs, in this order."""
    seen = "[...document.querySelectorAll('.run-title')].filter((one) => one.checkVisibility())"
    shown = f"{seen}.map((one) => one.innerText)"
    page.wait_for_function(f"(titles) => JSON.stringify({shown}) === JSON.stringify(titles)", arg=titles)


def test_history_searches_filters_and_shows_settings(house: House) -> None:
    page = house.page("/history")
    everything = ["Living", "Long night", NAMED, "Paused one", "Full", "Spiked"]
    titled(page, everything)
    page.get_by_label("Search").fill("long")
    titled(page, ["Long night"])
    page.get_by_label("Search").fill("")
    titled(page, everything)
    page.get_by_label("State").select_option("failed")
    titled(page, [NAMED, "Full"])
    page.get_by_label("State").select_option("")
    titled(page, everything)
    page.locator(".run").nth(1).get_by_role("button", name="More about").click()
    page.locator(".run").nth(1).get_by_text("Settings").click()
    page.locator(".run").nth(1).get_by_text("learning_rate").wait_for()
    assert "launcher.py train" in page.locator(".run").nth(1).locator("code").inner_text()
    assert page.faults == []


def test_a_run_with_exports_is_deleted_only_after_a_question(house: House) -> None:
    (house.living.path.parent / PAUSED / "exports" / "adapter").mkdir(parents=True)
    page = house.page("/history")
    page.get_by_role("button", name="More about Paused one").click()
    button = page.get_by_role("button", name="Delete: Paused one")
    button.click()
    page.get_by_text("Exports that are deleted with it: 1.").wait_for()
    page.keyboard.press("Enter")  # once too often
    page.locator("dialog[open]").wait_for(state="hidden")
    assert (house.living.path.parent / PAUSED).is_dir()
    button.click()
    page.locator("dialog[open]").get_by_role("button", name="Delete").click()
    page.wait_for_function("() => document.querySelectorAll('.run').length === 5")
    assert not (house.living.path.parent / PAUSED).exists()


def test_take_home_offers_checkpoints_and_the_command(house: House) -> None:
    page = house.page(f"/take-home?run={LONG}")
    page.get_by_text("Adapter only").wait_for()
    page.wait_for_function("() => document.querySelector('[data-f=checkpoint]').options.length === 1")
    page.get_by_text("The same from the command line").click()
    page.get_by_text("Merged model").click()
    home = house.living.path.parents[1]
    command = f"python3 launcher.py export {LONG} --home {home} --form merged --checkpoint best --name merged"
    page.get_by_text(command).wait_for()
    assert page.faults == []


def test_pages_fit_a_phone(house: House) -> None:
    for path in (f"/watch?run={LONG}", f"/try?run={LONG}", f"/take-home?run={LONG}", "/history"):
        page = house.page(path)
        page.set_viewport_size({"width": 390, "height": 844})
        page.locator('[data-f="some"]').wait_for()
        page.wait_for_timeout(200)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390, path


def test_a_finished_run_leads_on(house: House) -> None:
    done = [Evaluation(at=time.time(), attempt=1, step=400, loss=1.0, rows=5), Finished(at=time.time(), attempt=1)]
    page = house.page(f"/watch?run={LIVING}")
    wait_for_chart(page)
    (house.living.checkpoints / "step-000100").mkdir(parents=True)
    (house.living.checkpoints / "step-000100" / "MANIFEST.json").write_text("{}")
    append(house.living, done)
    page.get_by_role("link", name="Try it against the original").wait_for()
    assert page.get_by_role("link", name="Take it home").get_attribute("href") == f"/take-home?run={LIVING}"
    assert page.locator('[data-f="word"]').inner_text() == "Finished"


def test_a_refused_command_stays_on_the_page_while_it_looks_on(house: House) -> None:
    page = house.page(f"/watch?run={FAILED}")
    page.locator('[data-verb="resume"]').wait_for()
    refusal = '{"code": "run.state", "message": "It cannot be resumed now.", "hint": ""}'
    intercept(page, "**/resume", lambda route: route.fulfill(status=409, content_type="application/json", body=refusal))
    page.locator('[data-verb="resume"]').click()
    page.locator('[data-f="fault"]').get_by_text("It cannot be resumed now.").wait_for()
    for _ in range(2):
        with page.expect_response(lambda answer: "/studio/points" in answer.url):
            page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(200)
    assert page.locator('[data-f="fault"]').is_visible()


def test_an_export_at_work_can_be_stopped(house: House) -> None:
    job = JobFolder(JobFolder(house.living.path.parent / FAILED).jobs / "merged")
    job.path.mkdir(parents=True)
    job.export_yaml.write_text("name: merged\nform: merged\n")
    append(job, [Queued(at=1.0), Starting(at=2.0, attempt=1)])
    hold = FileLock(job.supervisor_lock)
    assert hold.acquire()
    page = house.page(f"/take-home?run={FAILED}")
    page.get_by_role("button", name="Stop: merged").click()
    page.wait_for_timeout(500)
    assert '"verb":"stop"' in job.commands.read_text().replace(" ", "")
    append(job, [Stopped(at=3.0, attempt=1)])
    page.get_by_role("button", name="Stop: merged").wait_for(state="hidden")
    assert page.faults == []
    hold.release()
