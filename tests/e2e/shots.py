"""Takes screenshots of every page at both sizes and in both themes:

    .venv/bin/python tests/e2e/shots.py [--home DIR] [--to DIR] [--only PAGE ...] [--size SIZE] [--theme THEME]

They land in ``tests/e2e/shots/`` (not in the repository) as PAGE-SIZE-THEME.png, and whatever the browser's console
complained about is printed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from driving import launch, running_studio
from playwright.sync_api import sync_playwright

SIZES = {"wide": (1440, 900), "phone": (390, 844)}
PAGES = {
    "new": "/", "watch": "/watch", "try": "/try", "take": "/take-home", "history": "/history", "doctor": "/doctor",
}  # fmt: skip
SETTLED = {"new": "#data-preview .rows, #data-report .fault"}


def main() -> None:
    """Parses and shoots."""
    parser = argparse.ArgumentParser(description="Screenshots of the studio's pages.")
    parser.add_argument("--home", type=Path, help="root folder with runs to show (default: a fresh one)")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "shots")
    parser.add_argument("--only", nargs="*", choices=list(PAGES), default=list(PAGES))
    parser.add_argument("--size", choices=list(SIZES), action="append")
    parser.add_argument("--theme", choices=["light", "dark"], action="append")
    parser.add_argument("--whole", action="store_true", help="the whole page, not the first screen")
    chosen = parser.parse_args()
    chosen.to.mkdir(exist_ok=True, parents=True)
    with (
        tempfile.TemporaryDirectory() as fresh,
        running_studio(chosen.home or Path(fresh)) as studio,
        sync_playwright() as playwright,
    ):
        browser = launch(playwright)
        for size in chosen.size or SIZES:
            for theme in chosen.theme or ("light", "dark"):
                _shoot(browser, studio, chosen, size, theme)
        browser.close()


def _shoot(browser: Any, studio: Any, chosen: argparse.Namespace, size: str, theme: str) -> None:
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    page = context.new_page()
    page.on("console", lambda message: message.type in ("error", "warning") and print("console:", message.text[:300]))
    page.on("pageerror", lambda error: print("page error:", str(error)[:300]))
    page.goto(studio.fresh_address())
    page.wait_for_url(studio.root + "/")
    for name in chosen.only:
        page.goto(studio.root + PAGES[name])
        page.wait_for_selector("main.plain:not([data-outline]) h1, gradio-app h1", timeout=30_000)
        if name in SETTLED:
            page.wait_for_selector(SETTLED[name], timeout=60_000)
        page.wait_for_timeout(800)
        target = chosen.to / f"{name}-{size}-{theme}.png"
        page.screenshot(path=target, full_page=chosen.whole)
        print(target)
    context.close()


if __name__ == "__main__":
    main()
