"""A visitor in a real browser: let in, looking at pages, hearing what their scripts complain of."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from driving import RunningStudio
from waiting import until

from core.machine.locations import Locations
from studio.shell.assets import asset

WINDOW = {"width": 1440, "height": 900}


def enter(page: Any, studio: RunningStudio) -> None:
    """Opens the address with the token and goes to New run; the page's browser context is let in from then on."""
    page.goto(studio.fresh_address())
    page.wait_for_url(lambda url: "/enter" not in url)
    if page.url != f"{studio.root}/":  # a run is at work: whoever comes is led to it
        page.goto(f"{studio.root}/")


def let_in(browser: Any, studio: RunningStudio, seconds: float = 60.0, **options: Any) -> Any:
    """A browser context that was let in: it has the cookie, and has shown no page yet, which ``enter`` does. Its pages
    wait for so many seconds, in a window of a desktop."""
    context = browser.new_context(**{"viewport": WINDOW, **options})
    context.set_default_timeout(1000 * seconds)
    assert context.request.get(studio.fresh_address()).ok
    return context


POLL_MS = 50
"""Playwright's own way is to look at every frame, which makes the browser draw sixty a second: a twelfth of a core."""


def listening(page: Any, console: bool = True) -> Any:
    """The page; its ``faults`` collect what its scripts complain of, and the errors that stand in its console. It is
    looked at every ``POLL_MS`` where a function is waited for."""
    page.faults = []
    page.wait_for_function = partial(page.wait_for_function, polling=POLL_MS)
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    if console:
        page.on("console", lambda said: page.faults.append(said.text) if said.type == "error" else None)
    return page


def complaints(page: Any) -> list[str]:
    """Its faults, but for what a browser says of an answer that is a refusal."""
    return [fault for fault in page.faults if "Failed to load resource" not in fault]


def shows(page: Any, selector: str, words: str) -> None:
    """Waits until a part of the page has these words. Gradio writes the parts of one answer one after another."""
    page.wait_for_function(
        "([selector, words]) => document.querySelector(selector)?.innerText.includes(words)",
        arg=[selector, words],
        polling=POLL_MS,
    )


def intercept(page: Any, addresses: str, answer: Callable[[Any], None]) -> None:
    """``page.route``, from which on no request slips through: the browser begins a moment later than Playwright
    believes, and of a request in between nobody ever hears."""
    nowhere = "**/intercepted"
    page.route(nowhere, lambda route: route.fulfill(body=""))
    until(lambda: page.evaluate("() => fetch('/intercepted').then((reply) => reply.ok)"))
    page.route(addresses, answer)
    page.unroute(nowhere)


def at_rest(page: Any, studio: RunningStudio) -> None:
    """Leaves what the tab shows for a picture of the same studio: on another site it would begin a fresh process."""
    page.goto(f"{studio.root}{asset('logo.svg')}")


def forget_draft(studio: RunningStudio) -> None:
    """From now on New run begins as at a first visit; no page of it may be open."""
    time.sleep(0.6)  # the last edit is written a moment later
    (studio.home / "draft.json").unlink(missing_ok=True)


@dataclass
class Visit:
    """A studio, and the browser context that was let in."""

    studio: RunningStudio
    context: Any

    def page(self, path: str) -> Any:
        """A page of the studio; its ``faults`` collect what it complains of. One tab shows them all, one after another:
        a tab of its own costs a browser as much as the page in it."""
        if not self.context.pages:
            listening(self.context.new_page())
        page = self.context.pages[0]
        at_rest(page, self.studio)
        page.unroute_all()
        page.set_viewport_size(WINDOW)
        page.faults.clear()
        page.goto(self.studio.root + path)
        return page

    def leave(self) -> None:
        """Closes the tab, and takes the made runs away: no process had a part in them."""
        for page in self.context.pages:
            page.close()
        for run in Locations(self.studio.home).runs.iterdir():
            shutil.rmtree(run)
