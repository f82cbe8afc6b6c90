"""The glossary in a real browser: found by search, leapt to from elsewhere, told beside settings, not in the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from driving import RunningStudio
from visiting import listening

pytestmark = pytest.mark.browser

MOST_TABS = 15
AT = """() => {
    const one = document.activeElement;
    return one.closest("gradio-app") ? one.id || one.outerHTML.slice(0, 120) : "";
}"""
"""Where the keyboard is on the page itself; the skip link, the mark and the menu come before it on every page."""
HEADER = """() => [...Array(40).keys()].every((step) =>
    document.elementFromPoint(10 + 36 * step, 25).closest('.top'))"""
"""Whether the header lies above everything, all along it."""


@pytest.fixture(scope="module")
def page(bare_context: Any, studio: RunningStudio) -> Iterator[Any]:
    opened = listening(bare_context.new_page())
    yield opened
    opened.close()


def advanced_opened(page: Any, studio: RunningStudio) -> None:
    """New run with its advanced settings, all of them: as a test before left it, or loaded, which costs far more."""
    if page.url != f"{studio.root}/":
        page.goto(f"{studio.root}/")
    page.locator("#data-preview .rows").wait_for()
    if not page.locator("#advanced-search").is_visible():
        page.locator("#block-advanced > button, #block-advanced .label-wrap").first.click()
    page.locator("#advanced-search").fill("")


def words_in_sight(page: Any) -> int:
    return int(page.locator(".term:visible").count())


def test_the_glossary_stands_under_more_and_a_word_is_found_by_any_of_its_names(
    page: Any, studio: RunningStudio
) -> None:
    page.goto(f"{studio.root}/doctor")
    page.locator(".more-menu > summary").focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Glossary").press("Enter")
    page.wait_for_url("**/glossary")
    total = words_in_sight(page)
    assert total > 30
    search, count = page.get_by_role("searchbox", name="Find a word"), page.locator("[data-f=count]")
    search.fill("lora.r")
    assert page.locator("#rank").is_visible()
    search.fill("validation loss")
    assert (words_in_sight(page), page.locator("#held-out-loss").is_visible()) == (1, True)
    assert count.inner_text() == f"1 of {total} words"
    assert page.locator("[data-part]:visible").count() == 1, "a part without words steps aside"
    search.fill("zzz")
    assert count.inner_text() == "No word is called that, and none speaks of it."
    search.fill("")
    assert (words_in_sight(page), count.inner_text()) == (total, "")
    assert page.faults == []


def test_a_leap_to_a_word_that_the_search_hides_ends_the_search(page: Any, studio: RunningStudio) -> None:
    page.goto(f"{studio.root}/glossary#rank")
    page.get_by_role("searchbox", name="Find a word").fill("validation loss")
    page.locator("#held-out-loss").get_by_role("link", name="Best checkpoint").click()
    page.locator("#best").wait_for()
    box = page.locator("#best").bounding_box()
    assert 52 <= box["y"] < 900, "in sight, and not under the header"
    assert page.get_by_role("searchbox", name="Find a word").input_value() == ""


def test_the_words_of_a_group_are_told_beside_it_and_none_stands_before_start(page: Any, studio: RunningStudio) -> None:
    page.goto(f"{studio.root}/")
    page.wait_for_function("() => document.querySelector('#start') && !document.querySelector('#start').disabled")
    page.locator("#data-preview .rows").wait_for()
    page.evaluate("() => { document.activeElement.blur(); scrollTo(0, 0); }")
    passed: list[str] = []
    while "start" not in passed:
        page.keyboard.press("Tab")
        passed += [at] if (at := page.evaluate(AT)) else []
        assert len(passed) <= MOST_TABS, passed
    page.locator("#block-advanced > button, #block-advanced .label-wrap").first.click()
    words = page.locator(".group-words", has=page.get_by_label("What the words of “Adapter (LoRA)” mean"))
    words.locator("summary").focus()
    page.keyboard.press("Enter")
    words.get_by_text("8 to 32 is enough for a style or a format").wait_for()
    assert words.get_by_role("link", name="All words").get_attribute("href") == "/glossary"
    page.locator("#advanced-search").fill("seed")
    words.wait_for(state="hidden")


def test_nothing_of_new_run_shines_through_the_header(page: Any, studio: RunningStudio) -> None:
    advanced_opened(page, studio)
    label = page.locator("[data-testid=block-info]", has_text="Name of the run")
    label.wait_for()
    page.evaluate("(label) => scrollBy(0, label.getBoundingClientRect().top - 60)", label.element_handle())
    for _ in range(8):
        page.evaluate("() => scrollBy(0, 8)")
        assert page.evaluate(HEADER)
