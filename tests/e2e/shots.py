"""Takes screenshots of every screen (``screens.py``) at both sizes and in both themes:

    .venv/bin/python tests/e2e/shots.py [--to DIR] [--only SCREEN ...] [--size SIZE] [--theme THEME] [--whole] [--cards]

They land in ``tests/e2e/shots/`` (not in the repository) as SCREEN-SIZE-THEME.png, and whatever the browser's console
complained about is printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from driving import launch, running_studio
from playwright.sync_api import sync_playwright

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("..", "", "unit/studio")]

from screens import PICTURES, SIZES, THEMES, Screen, furnished
from stand_in_card import stand_in_card
from visiting import enter, forget_draft

from core.machine.locations import Locations


def main() -> None:
    """Parses and shoots."""
    parser = argparse.ArgumentParser(description="Screenshots of the studio's pages.")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "shots")
    parser.add_argument("--only", nargs="*", choices=list(PICTURES), default=list(PICTURES))
    parser.add_argument("--size", choices=list(SIZES), action="append")
    parser.add_argument("--theme", choices=list(THEMES), action="append")
    parser.add_argument("--cards", action="store_true", help="as on a machine with two unlike cards")
    parser.add_argument("--whole", action="store_true", help="the whole page, not the first screen")
    chosen = parser.parse_args()
    chosen.to.mkdir(exist_ok=True, parents=True)
    with (
        tempfile.TemporaryDirectory() as home,
        furnished(Locations(Path(home))),
        running_studio(Path(home), **_stand_ins(Path(home), chosen.cards)) as studio,
        sync_playwright() as playwright,
    ):
        browser = launch(playwright)
        for size in chosen.size or SIZES:
            for theme in chosen.theme or THEMES:
                _shoot(browser, studio, chosen, size, theme)
        browser.close()


def _stand_ins(home: Path, cards: bool) -> dict[str, str]:
    (folder := home / "stand-ins").mkdir()
    return stand_in_card(folder, 12, "NVIDIA GeForce RTX 3060", ("NVIDIA GeForce RTX 4090", 24)) if cards else {}


def _shoot(browser: Any, studio: Any, chosen: argparse.Namespace, size: str, theme: str) -> None:
    width, height = SIZES[size]
    pages = {}
    for inside in (True, False):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
        pages[inside] = page = context.new_page()
        page.on("console", lambda said: said.type in ("error", "warning") and print("console:", said.text[:300]))
        page.on("pageerror", lambda error: print("page error:", str(error)[:300]))
    enter(pages[True], studio)
    for name in chosen.only:
        screen: Screen = PICTURES[name]
        page = pages[screen.inside]
        page.goto("about:blank")  # screens of one page begin each anew
        page.goto(studio.root + screen.path)
        page.locator(screen.ready).first.wait_for()
        screen.then(page)
        page.wait_for_timeout(600)
        target = chosen.to / f"{name}-{size}-{theme}.png"
        page.screenshot(path=target, full_page=chosen.whole)
        print(target)
    for page in pages.values():
        page.context.close()
    forget_draft(studio)  # a screen may leave choices that the next theme's pages would begin with


if __name__ == "__main__":
    main()
