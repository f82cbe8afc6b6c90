"""Looks up what a window has chosen, in steps: rows, their lengths, the doctor's findings."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from core.contract.config import RunConfig
from core.contract.data import Checkup
from studio.pages.new_run.data.block import report_view
from studio.pages.new_run.form import Answer
from studio.pages.new_run.page import Page
from studio.pages.new_run.view import View
from studio.pages.new_run.windows import Windows

EXAMINED_BYTES, EXAMINED_ROWS = 4 << 20, 20_000
"""Files up to this size are examined automatically."""


class Look:
    """One look-up. Each step ends early where the window has chosen something else, or a later look began."""

    def __init__(
        self, page: Page, windows: Windows, window: str, config: RunConfig, began: object | None = None
    ) -> None:
        self.page, self.windows, self.cache = page, windows, windows.cache
        self.window, self.config, self.began = window, config, began

    def overtaken(self) -> bool:
        """Whether a later look says the rest, or the window has chosen other rows, another model or another length."""
        if self.began is not None and self.windows.looks.get(self.window) is not self.began:
            return True
        newest = self.windows.newest(self.window, self.config)
        asked, now = ((one.data, one.model, one.train.max_length) for one in (self.config, newest))
        return asked != now

    def whole(self) -> Iterator[Answer]:
        """Everything, as it becomes known."""
        self.cache.read(self.config)
        for part in (self.shown, self.checked, self.measured, self.examined):
            if self.overtaken():
                return
            for answer in part():
                if self.overtaken():  # while it was drawn
                    return
                yield answer

    def shown(self) -> Iterator[Answer]:
        """All that is known of the newest choices."""
        yield self.drawn(self.page.file)

    def drawn(self, shows: Callable[[View], Answer]) -> Answer:
        """What the newest choices come to, with some of the file's outputs."""
        view = self.windows.current(self.window, self.config)
        return {**self.page.said(view), **shows(view)}

    def checked(self, again: bool = False) -> Iterator[Answer]:
        """Reads the whole of a large file; a stopped one only ``again``."""
        view = self.cache.ready(self.config)
        if view.spec is None or view.report is None or view.report.complete:
            return
        view = self.windows.view(self.config)
        if not ("check" in view.progress or again):
            return
        yield from self.work("check", view, self.reported)
        if not self.overtaken():
            yield from self.shown()

    def measured(self) -> Iterator[Answer]:
        """Counts the tokens of all rows."""
        if self.cache.ready(self.config).measurable:
            yield from self.work("measure", self.windows.view(self.config), self.reported)

    def known_again(self) -> Iterator[Answer]:
        """File and lengths, where they are not kept."""
        yield from self.checked()
        if self.cache.ready(self.config).waiting:
            yield from self.measured()

    def examined(self, wanted: bool = False) -> Iterator[Answer]:
        """Examines small files, and large ones where ``wanted``."""
        view = self.cache.ready(self.config)
        if view.report is None or not view.measurable:
            return
        small = view.report.bytes <= EXAMINED_BYTES and view.report.usable <= EXAMINED_ROWS
        if isinstance(view.checkup, Checkup):
            yield self.page.examined(view)
        elif wanted or small:
            yield from self.work("examine", view, self.page.examined)

    def reported(self, view: View) -> Answer:
        """The file's lines."""
        return self.page.shown(data_report=report_view(view))

    def work(self, kind: str, view: View, shows: Callable[[View], Answer]) -> Iterator[Answer]:
        """The progress of long work until it has ended; then what is known."""
        for progress in self.cache.begin(kind, view).ticks():
            if self.overtaken():
                return
            yield shows(replace(view, progress={kind: progress}))
        if not self.overtaken():
            yield self.drawn(shows)
