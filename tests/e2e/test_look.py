"""The look, asserted: a theme that is remembered, and a keyboard whose place is seen.

What axe cannot see stands here: the keyboard's place, also when a button that it stands on goes away, and what is
announced. How large text is on every screen is looked at where axe looks (``test_axe.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from driving import RunningStudio
from screens import RUNNING

pytestmark = pytest.mark.browser

STILL_SEEN = """() => {
    const one = document.activeElement;
    const style = getComputedStyle(one);
    const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    return one !== document.body && one.checkVisibility() && ring;
}"""


@pytest.fixture(scope="module")
def page(furnished_context: Any) -> Iterator[Any]:
    opened = furnished_context.new_page()
    yield opened
    opened.close()


def test_the_chosen_theme_is_remembered_from_page_to_page(page: Any, furnished_studio: RunningStudio) -> None:
    page.emulate_media(color_scheme="light")
    paper = "() => getComputedStyle(document.documentElement).backgroundColor"
    page.goto(f"{furnished_studio.root}/doctor")
    light = page.evaluate(paper)
    page.locator(".more-menu > summary").click()
    page.get_by_label("dark", exact=True).check()
    dark = page.evaluate(paper)
    assert dark != light
    for path in ("/doctor", f"/watch?run={RUNNING}", "/"):
        page.goto(furnished_studio.root + path)
        assert page.evaluate(paper) == dark, f"{path}: before any other script has run"
    page.locator("#tab-rows").wait_for()
    assert page.evaluate("() => getComputedStyle(document.querySelector('#block-data h2')).color") != light
    page.locator(".more-menu > summary").click()
    assert page.get_by_label("dark", exact=True).is_checked()
    page.get_by_label("as the system").check()
    assert page.evaluate(paper) == light
    page.keyboard.press("Escape")
    assert page.evaluate("() => document.activeElement.textContent") == "More", "the keyboard is not lost"


def test_the_keyboards_place_is_seen_all_the_way_through_watch_and_proof(
    page: Any, furnished_studio: RunningStudio
) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    for path, ready in ((f"/watch?run={RUNNING}", '[data-f="some"]'), ("/proof", ".proofs > li")):
        page.goto(furnished_studio.root + path)
        page.locator(ready).first.wait_for()
        for presses in range(13):  # Proof has so many stops: behind the last the keyboard leaves the page
            page.keyboard.press("Tab")
            assert page.evaluate(STILL_SEEN), (path, presses, page.evaluate("() => document.activeElement.outerHTML"))


def test_a_proof_begun_by_the_keyboard_can_be_stopped_by_it(page: Any, furnished_studio: RunningStudio) -> None:
    page.goto(f"{furnished_studio.root}/proof")
    start = page.get_by_role("button", name="Measure one by one")
    start.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.dataset.stop === 'ladder'")
    page.wait_for_function("() => document.querySelector('[data-text=ladder]').textContent.trim()")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.dataset.start === 'ladder'")
    page.wait_for_function("() => document.querySelector('[data-f=said]').textContent.includes('Stopped')")
    assert page.locator(".proofs > li").count() == 4


def test_a_state_is_announced_and_a_step_is_not(page: Any, furnished_studio: RunningStudio) -> None:
    page.goto(f"{furnished_studio.root}/watch?run={RUNNING}")
    page.locator('[data-f="some"]').wait_for()
    live = page.locator('main [role="status"], main [aria-live]')
    words = " ".join(live.all_inner_texts())
    assert "You may close this page" in words
    assert "150" not in words, "what changes with every step is not read out"
