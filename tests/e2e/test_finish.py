"""The finish: nothing moves while a page fills, Start is near for the keyboard, and what Settings keeps is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from driving import RunningStudio
from screens import SCREENS, SIZES
from visiting import at_rest, listening, shows

from core.machine.locations import Locations
from core.machine.settings import read_settings

pytestmark = pytest.mark.browser

MOST = 0.02
"""A page's shift, as browsers count it: what moved, by how far, as a share of the window."""
MOVED = """(() => {
    window.moved = [];
    const told = ({ node, previousRect, currentRect }) =>
        `${node?.id || node?.className || node?.nodeName} ${previousRect.y} > ${currentRect.y}`;
    const seen = (list) => list.getEntries().filter((one) => !one.hadRecentInput)
        .forEach((one) => window.moved.push([one.value, one.sources.map(told)]));
    new PerformanceObserver(seen).observe({ type: "layout-shift", buffered: true });
})()"""
FILLED = {
    "watch-running": ".chart-loss .line", "watch-unknown": '[data-f="fault"]', "take": ".job", "try": '[data-f="some"]',
    "report": ".report", "history": ".run", "doctor": ".finding", "proof": ".proofs > li",
    "history-compare": '[data-f="finals"] tr', "glossary": "#rank", "settings": "[data-size]",
    "new": "#data-preview .token",
}  # fmt: skip
"""What is there when a page is full. Every third is looked at on a phone: those on which something has moved there."""


@pytest.fixture(scope="module")
def page(furnished_context: Any) -> Iterator[Any]:
    opened = listening(furnished_context.new_page())
    opened.add_init_script(MOVED)
    yield opened
    opened.close()


def moved(page: Any) -> list[Any]:
    """What moved by more than the allowed sum; empty where it is less."""
    page.wait_for_timeout(300)
    found = page.evaluate("() => window.moved")
    return found if sum(share for share, _ in found) > MOST else []


def test_nothing_moves_while_a_page_fills(page: Any, furnished_studio: RunningStudio) -> None:
    for place, (name, ready) in enumerate(FILLED.items()):
        page.set_viewport_size(dict(zip(("width", "height"), list(SIZES.values())[place % 3], strict=True)))
        at_rest(page, furnished_studio)
        page.goto(furnished_studio.root + SCREENS[name].path)
        page.locator(ready).first.wait_for()
        assert moved(page) == [], name


def test_start_is_eight_tabs_from_the_top(page: Any, furnished_studio: RunningStudio) -> None:
    """Without the skip link, and with a run at work in the header; on New run where a test before left it as it was
    opened."""
    page.set_viewport_size({"width": 1440, "height": 900})
    if page.url != f"{furnished_studio.root}/":
        page.goto(f"{furnished_studio.root}/")
    page.evaluate("() => document.activeElement.blur()")
    page.wait_for_function("() => document.querySelector('gradio-app #start')?.disabled === false")
    presses = 0
    while page.evaluate("() => document.activeElement.id") != "start" and presses < 20:
        page.keyboard.press("Tab")
        presses += 1
    assert presses <= 8


def test_what_settings_keeps_is_kept_and_what_it_clears_is_gone(page: Any, furnished_studio: RunningStudio) -> None:
    locations = Locations(furnished_studio.home)
    kept = locations.cache / "data" / "found.json"
    kept.parent.mkdir(exist_ok=True)
    kept.write_bytes(bytes(3000))
    page.set_viewport_size({"width": 1440, "height": 900})
    page.faults.clear()  # of the addresses that lead nowhere, which a test before opened
    page.goto(f"{furnished_studio.root}/settings")
    page.wait_for_function("() => /\\d/.test(document.querySelector('[data-size=home]').textContent)")
    page.get_by_role("button", name="Clear: What was found in data").click()
    shows(page, '[data-f="said-folders"]', "freed")
    assert not kept.exists()
    page.get_by_role("checkbox", name="Tell me on the desktop").check()
    shows(page, '[data-f="said-tell"]', "Saved.")
    page.get_by_label("Price per kWh").fill("0.34")
    page.keyboard.press("Enter")
    shows(page, '[data-f="said-power"]', "Saved.")
    assert (read_settings(locations).notify, read_settings(locations).kwh_price) == (True, 0.34)
    page.locator(".segments").get_by_label("dark", exact=True).check()
    assert page.locator('.more-list input[value="dark"]').is_checked(), "both switches show one choice"
    page.reload()
    assert page.locator(".segments").get_by_label("dark", exact=True).is_checked()
    assert page.get_by_role("checkbox", name="Tell me on the desktop").is_checked()
    page.locator(".segments").get_by_label("as the system").check()
    page.get_by_role("checkbox", name="Tell me on the desktop").uncheck()
    shows(page, '[data-f="said-tell"]', "Saved.")
    page.get_by_role("textbox", name="Token").fill("hf_of_a_group\u00e9")
    page.get_by_role("button", name="Save token").click()
    shows(page, '[data-f="said-hub"]', "does not know this token")
    assert page.faults == [] or all("409" in fault for fault in page.faults)
