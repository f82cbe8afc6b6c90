"""Events of the Data block's panels: rows searched and paged, long checks and examinations, and data sets made here."""

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr

from core.contract.config import RunConfig
from core.contract.errors import DataError, Fault
from core.contract.findings import Checkup
from core.data.files.keep import KeptFile
from core.machine.hardware import Machine
from studio.pages.new_run.data import sources
from studio.pages.new_run.data.block import report_view
from studio.pages.new_run.data.lengths import lengths_view
from studio.pages.new_run.data.preview import Asked
from studio.pages.new_run.data.sources import Part
from studio.pages.new_run.data.upload import taken
from studio.pages.new_run.form import Answer, sent
from studio.pages.new_run.page import ASKED, Page
from studio.pages.new_run.view import View, path_of
from studio.pages.new_run.windows import Windows
from studio.pages.new_run.words import say
from studio.services.long_work import Work
from studio.services.services import Studio
from studio.services.session import home_written_out, sample_of
from studio.shell.markup import Markup, fault

EVENT: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": 4}
CHOICE = {**EVENT, "trigger_mode": "always_last"}
EXAMINED_BYTES, EXAMINED_ROWS = 4 << 20, 20_000
"""Files up to this size are examined without being asked."""


def window_of(request: gr.Request) -> str:
    """The window that asks."""
    return str(request.session_hash or "")


def answering(handler: Callable[..., Iterator[Answer]]) -> Callable[..., Iterator[Answer]]:
    """A handler that has something to say at least once: Gradio empties all outputs of one that ends without a word."""

    @functools.wraps(handler)
    def saying(self: Any, *given: Any) -> Iterator[Answer]:
        silent = True
        for answer in handler(self, *given):
            silent = False
            yield answer
        if silent:
            yield self.page.shown(summary=gr.skip())

    return saying


class DataHandlers:
    """The handlers of the Data block's panels."""

    def __init__(self, studio: Studio, page: Page, windows: Windows) -> None:
        self.studio, self.page, self.windows, self.cache = studio, page, windows, windows.cache
        nothing = View(RunConfig(), Machine((), 0, 0, 0, None, "", False))
        self.said_outputs = [*page.said(nothing)]
        self.whole_outputs = [*self.said_outputs, *page.file(nothing, (), None, Asked())]

    def connect(self, look: Callable[[Callable[..., Any]], None]) -> None:
        """Connects panels and buttons; ``look`` follows where another file was chosen."""
        parts, fields, whole = self.page.parts, self.page.form.components, self.whole_outputs
        search = parts["preview-search"]
        asked = {name: parts[f"act-{name}"] for name in ASKED}
        asked["preview"].change(self.turned, [asked["preview"], search, *fields], whole, **CHOICE)
        # Not ``input``: Gradio keeps the first one to itself after the field was written to.
        search.change(self.searched, [search, *fields], whole, **CHOICE)
        asked["check"].change(self.check_again, [search, *fields], whole, **CHOICE)
        asked["examine"].change(self.examine_now, fields, whole, **CHOICE)
        asked["count"].change(self.count_all, fields, whole, **CHOICE)
        asked["stop"].change(self.stop, asked["stop"], None, **EVENT)
        mixed = [parts["mix-form"], parts["source-outcome"]]
        asked["mix"].change(self.mixed, [asked["mix"], *fields], mixed, **CHOICE)
        outputs = self.page.another_file_outputs()
        look(asked["source"].change(self.made, [asked["source"], *fields], outputs, **CHOICE).then)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def file(self, window: str, view: View, search: str) -> Answer:
        """What the block says of a file, at the rows that the window turned to."""
        asked = self.windows.turned(window, view.config.data, search)
        return self.page.file(view, self.cache.columns(view), self.cache.preview(view, asked), asked)

    def shown(self, window: str, config: RunConfig, search: str) -> Iterator[Answer]:
        """All that is known of the newest choices."""
        view = self.windows.current(window, config)
        yield {**self.page.said(view), **self.file(window, view, search)}

    def checked(self, window: str, config: RunConfig, search: str = "", again: bool = False) -> Iterator[Answer]:
        """Reads the whole of a large file, with progress; one that was stopped only where it is asked for again."""
        self.cache.ready(config)
        view = self.windows.view(config)
        if view.spec is None or view.report is None or view.report.complete:
            return
        if "check" in view.progress or again:
            yield from self._long_work("check", window, view, self._reported)
            if not self.windows.overtaken(window, config):
                yield from self.shown(window, config, search)

    def measured(self, window: str, config: RunConfig) -> Iterator[Answer]:
        """Counts the tokens of all rows."""
        view = self.cache.ready(config)
        if view.measurable:
            yield from self._long_work("measure", window, view)
            if not self.windows.overtaken(window, config):
                view = self.windows.current(window, config)
                yield {**self.page.said(view), **self._reported(view)}

    def examined(self, window: str, config: RunConfig, wanted: bool = False) -> Iterator[Answer]:
        """Has small files examined unasked, and large ones where it is ``wanted``."""
        view = self.cache.ready(config)
        report = view.report
        if report is None or not view.measurable:
            return
        small = report.bytes <= EXAMINED_BYTES and report.usable <= EXAMINED_ROWS
        if isinstance(view.checkup, Checkup):
            yield self.page.examined(view)
        elif wanted or small:
            yield from self._long_work("examine", window, view, self.page.examined)
            if not self.windows.overtaken(window, config):
                view = self.windows.current(window, config)
                yield {**self.page.said(view), **self.page.examined(view)}

    def turned_to(self, window: str, config: RunConfig, search: str) -> Iterator[Answer]:
        """A finding's rows, where the window was turned to them before they were found anew."""
        asked = self.windows.turned(window, config.data, search)
        if asked.only and not self.windows.overtaken(window, config):
            yield self._rows(self.windows.current(window, config), asked)

    def _reported(self, view: View) -> Answer:
        return self.page.shown(data_report=report_view(view))

    def _counting(self, view: View) -> Answer:
        return self.page.shown(lengths_figures=lengths_view(view)[1])

    def _rows(self, view: View, asked: Asked) -> Answer:
        return self.page.rows(view, self.cache.preview(view, asked), asked)

    def _long_work(
        self, kind: str, window: str, view: View, shows: Callable[[View], Answer] | None = None
    ) -> Iterator[Answer]:
        """Work beside the page, and how far it is, until it has ended or the window has chosen anew."""
        for progress in self.cache.begin(kind, view).ticks():
            if self.windows.overtaken(window, view.config):
                return
            if shows is not None:
                yield shows(replace(view, progress={kind: progress}))

    # ── handlers ─────────────────────────────────────────────────────────────────────────────────────────────────

    @answering
    def turned(self, request: gr.Request, asked: str, search: str, *values: Any) -> Iterator[Answer]:
        """Another page, or a finding's rows. The findings on the page may be older than the choices: those of the
        choices are waited for."""
        window, wish = window_of(request), Asked.read(asked, search)
        view = self.windows.sent(values, window)
        self.windows.turn(window, view.config.data, wish)
        if not wish.only or view.finding(wish.only) is not None:
            yield self._rows(view, wish)
            return
        yield from self.measured(window, view.config)
        yield from self.examined(window, view.config, wanted=True)
        yield from self.turned_to(window, view.config, search)

    @answering
    def searched(self, request: gr.Request, search: str, *values: Any) -> Iterator[Answer]:
        """Other words to search for begin at the first row, and stay among a finding's rows."""
        window = window_of(request)
        only = self.windows.only(window, self.windows.sent(values, window).config.data)
        yield from self.turned(request, json.dumps({"value": {"only": only}}), search, *values)

    @answering
    def check_again(self, request: gr.Request, search: str, *values: Any) -> Iterator[Answer]:
        """Takes up a check that was stopped."""
        window = window_of(request)
        config = self.windows.sent(values, window).config
        yield from self.checked(window, config, search, again=True)
        yield from self.measured(window, config)

    @answering
    def examine_now(self, request: gr.Request, *values: Any) -> Iterator[Answer]:
        """Has the doctor look at a large file."""
        window = window_of(request)
        config = self.windows.sent(values, window).config
        yield from self._known_again(window, config)
        yield from self.examined(window, config, wanted=True)

    @answering
    def count_all(self, request: gr.Request, *values: Any) -> Iterator[Answer]:
        """Counts every row of a large file, where the lengths are those of a sample."""
        window = window_of(request)
        config = self.windows.sent(values, window).config
        yield from self._known_again(window, config)
        view = self.cache.ready(config)
        if view.facts is None or not view.facts.sampled:
            return
        work = self.cache.begin("count", view)
        yield from self._long_work("count", window, view, self._counting)
        if work.fault is not None:
            yield self.page.shown(lengths_figures=fault(work.fault))
        elif not self.windows.overtaken(window, config):
            yield self._counting(view)
            yield from self.measured(window, self.windows.newest(window, config))

    def stop(self, asked: str) -> None:
        """Ends what goes on, of one kind."""
        self.cache.works.stop(str(sent(asked)[0].get("kind", "")))

    def mixed(self, asked: str, *values: Any) -> Answer:
        """A file joins the mixture, or leaves it. The file that is chosen now is its first part."""
        wish, form = sent(asked)
        try:
            parts = self._mixture(wish, sources.parts_of(form), self.windows.sent(values).config)
        except Fault as error:
            return self.page.shown(source_outcome=fault(error))
        drawn = sources.mix_view([self._counted(part) for part in parts])
        return self.page.shown(mix_form=drawn, source_outcome=Markup())

    def made(self, request: gr.Request, asked: str, *values: Any) -> Iterator[Answer]:
        """Another source of rows: a fix, a mixture, a hub data set, or the way back. What takes long says how far."""
        page = self.page
        view = self.windows.sent(values, window_of(request))
        wish, form = sent(asked)
        if back := str(wish.get("back", "")):
            yield page.another_file(back, values, sample_of(back) or None)
            return
        try:
            work = self.cache.works.start(("make", asked), self._maker(wish, form, view))
        except Fault as error:
            yield page.shown(source_outcome=fault(error))
            return
        for progress in work.ticks():
            done, total, rows = progress or (0, 0, 0)
            words = say("made.running.rows", rows=f"{rows:,}") if rows else say("made.running")
            yield page.shown(source_outcome=sources.working_view(words, done, total, "make"))
        if work.stopped() or work.fault is not None:
            said = fault(work.fault) if work.fault is not None and not work.stopped() else Markup()
            yield page.shown(source_outcome=said)
            return
        if wish.get("fix"):
            self.cache.came_from[str(work.result.path)] = view.config.data.path
        yield page.another_file(str(work.result.path), values)

    def _known_again(self, window: str, config: RunConfig) -> Iterator[Answer]:
        """File and lengths, where they are not known any more."""
        yield from self.checked(window, config)
        if self.cache.glance(config).waiting:
            yield from self.measured(window, config)

    def _counted(self, part: Part) -> Part:
        """The part with its usable rows, where these are quickly read: what its weight comes to depends on them."""
        try:
            report = self.studio.data.first_look(path_of(part.choice), part.choice)
        except Fault:
            return part  # what is wrong with the file is said when the mixture is made
        return replace(part, rows=report.usable if report.complete else 0)

    def _mixture(self, wish: dict[str, Any], parts: Sequence[Part], config: RunConfig) -> Sequence[Part]:
        """The parts of a mixture after a file was added or removed."""
        if wish.get("mix") == "remove":
            return [part for index, part in enumerate(parts) if index != wish.get("index")]
        kept = taken(self.studio, str(wish.get("upload", "")))
        if not parts and config.data.path:
            columns = json.dumps(config.data.columns)
            parts = [Part(home_written_out(config.data.path), config.data.layout, columns=columns)]
        return [*parts, Part(str(kept.path))][: sources.MOST_PARTS]

    def _maker(self, wish: dict[str, Any], form: dict[str, Any], view: View) -> Callable[[Work], KeptFile]:
        """The long work behind a wish.

        Raises:
            DataError: the form holds what cannot be used.
        """
        service, config = self.studio.data, view.config
        if wish.get("hub"):
            hub = sources.hub_wish(form)
            return lambda work: service.from_hub(*hub, work.tell, work.stopped)
        if wish.get("mix"):
            parts = [(Path(part.path), part.choice, part.weight) for part in sources.parts_of(form)]
            name, seed = say("mix.name"), config.train.seed
            return lambda work: service.mix(parts, name, seed, work.tell, work.stopped)
        finding = view.finding(str(wish.get("fix", "")))
        if finding is None:
            raise DataError("doctor.stale")
        return lambda _: service.fix(path_of(config.data), config.data, [(finding.code, ())])
