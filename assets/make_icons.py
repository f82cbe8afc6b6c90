"""Draws the application's icons from ``logo.svg``:   .venv/bin/python assets/make_icons.py

They are files of the repository; this is run again when the logo changes. The browser of the browser tests draws them:
``icon-192.png`` and ``icon-512.png`` on a rounded sheet, ``icon-mask.png`` with the margin of a fifth that a system may
cut off in whatever shape it likes (w3.org/TR/appmanifest, purpose "maskable").
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests" / "e2e"))

SHEET = "#fffefc"
ICONS = (("icon-192.png", 192, 0.12, "22%"), ("icon-512.png", 512, 0.12, "22%"), ("icon-mask.png", 512, 0.2, "0"))
PAGE = """<!doctype html><style>
* {{ margin: 0 }} html {{ background: transparent }}
div {{ width: {size}px; height: {size}px; background: {sheet}; border-radius: {radius};
  display: grid; place-items: center }}
svg {{ width: {inner}px; height: {inner}px }}
</style><div>{logo}</div>"""


def main() -> None:
    """Draws all of them."""
    from driving import launch

    logo = (HERE / "logo.svg").read_text(encoding="utf-8")
    (HERE / "icons").mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for name, size, margin, radius in ICONS:
            page = browser.new_page(viewport={"width": size, "height": size})
            inner = round(size * (1 - 2 * margin))
            page.set_content(PAGE.format(size=size, sheet=SHEET, radius=radius, inner=inner, logo=logo))
            page.screenshot(path=HERE / "icons" / name, omit_background=True)
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
