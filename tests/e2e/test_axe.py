"""axe-core over every screen: none of its rules is broken, of WCAG 2.2 A and AA or of good practice, at any grade, none
switched off; and no text is too small to read.

By default each page is seen in its fullest states, each in one theme at one size, each pair of them in turn; ``-m
slow`` sees every screen in every theme at every size. axe is put into the page by the browser's debugger, past its
content policy, which stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from driving import RunningStudio
from screens import SCREENS, SIZES, THEMES
from visiting import at_rest, forget_draft

pytestmark = pytest.mark.browser

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
RUN = """async () => {
    const found = await axe.run(document, { resultTypes: ["violations"] });
    const why = (node) => node.any.concat(node.all, node.none).map((one) => one.message).join("; ");
    return found.violations.flatMap((rule) =>
        rule.nodes.map((node) => `${rule.id}: ${node.target.join(" ")} (${why(node)})`));
}"""
STILL = """async () => {
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    await Promise.all(document.getAnimations().map((one) => one.finished.catch(() => {})));
}"""
SMALLEST_PX = 14
SMALL = """(smallest) => {
    const found = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const parent = walk.currentNode.parentElement;
        const words = walk.currentNode.textContent.trim();
        const seen = parent.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: false });
        if (!words || !seen || parent.closest("script, style, noscript, option")) continue;
        const box = parent.getBoundingClientRect();
        if (box.width <= 1 || box.height <= 1) continue;
        const size = parseFloat(getComputedStyle(parent).fontSize);
        const name = `${parent.tagName}.${parent.className.baseVal ?? parent.className}`;
        if (size < smallest) found.push(`${size} ${name}: ${words.slice(0, 40)}`);
    }
    return [...new Set(found)];
}"""
"""Text that is smaller than it may be."""
SHOWN = """() => [...document.querySelectorAll("main [hidden], gradio-app [hidden]")]
    .filter((one) => one.checkVisibility() && one.getBoundingClientRect().height > 0)
    .map((one) => `hidden, and seen: ${one.outerHTML.slice(0, 80)}`)"""
"""What a rule of the layout shows although it is hidden."""
NAMES = list(SCREENS)
OFTEN = (
    "new", "new-columns", "watch-running", "watch-stop", "watch-failed", "watch-sorting", "try", "try-four",
    "try-scores", "take-options", "report", "history-open", "history-file", "history-compare", "history-delete",
    "doctor", "menu", "settings", "proof", "glossary", "new-words", "locked",
)  # fmt: skip
"""Of every page the states that show most of it, and every dialog: what is seen in the default run."""


@pytest.fixture(scope="module")
def pages(browser: Any, furnished_context: Any, furnished_studio: RunningStudio) -> Iterator[dict[bool, Any]]:
    """A page that was let in, and one that was not; New run is afterwards as a first visit finds it."""
    outside = browser.new_context()
    found = {True: furnished_context.new_page(), False: outside.new_page()}
    for page in found.values():
        page.set_default_timeout(60_000)
    yield found
    at_rest(found[True], furnished_studio)
    found[True].close()
    outside.close()
    forget_draft(furnished_studio)


def seen(pages: dict[bool, Any], studio: RunningStudio, name: str, ways: list[tuple[str, str]]) -> list[str]:
    """What axe finds on a screen; it is opened once and then shown in every theme and size that is asked for."""
    screen = SCREENS[name]
    page, found = pages[screen.inside], []
    page.set_viewport_size(dict(zip(("width", "height"), SIZES[ways[0][1]], strict=True)))
    page.emulate_media(color_scheme=ways[0][0], reduced_motion="reduce")
    if page.url != studio.root + screen.path or name == "locked":
        page.goto(studio.root + screen.path)  # screens of one page follow each other on it
    page.locator(screen.ready).first.wait_for()
    screen.then(page)
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE)
    for theme, size in ways:
        page.set_viewport_size(dict(zip(("width", "height"), SIZES[size], strict=True)))
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        page.evaluate(STILL)
        looked = [*page.evaluate(RUN), *(page.evaluate(SMALL, SMALLEST_PX) if screen.inside else ())]
        looked += page.evaluate(SHOWN)
        found += [f"{theme} {size} {words}" for words in looked]
    return found


def test_every_page_is_among_those_that_are_seen_often() -> None:
    pages = {name: re.split("[?#]", screen.path)[0] for name, screen in SCREENS.items()}
    assert {pages[name] for name in OFTEN} == set(pages.values())


@pytest.mark.parametrize("name", OFTEN)
def test_a_screen_has_no_violation(pages: dict[bool, Any], furnished_studio: RunningStudio, name: str) -> None:
    ways = [(theme, size) for theme in THEMES for size in SIZES]
    assert seen(pages, furnished_studio, name, [ways[NAMES.index(name) % len(ways)]]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_screen_has_no_violation_in_any_theme_at_any_size(
    pages: dict[bool, Any], furnished_studio: RunningStudio, name: str
) -> None:
    ways = [(theme, size) for theme in THEMES for size in SIZES]
    assert seen(pages, furnished_studio, name, ways) == []
