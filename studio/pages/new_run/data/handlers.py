"""Events of the Data block's panels: rows searched and paged, long checks and examinations, and data sets made here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr

from core.contract.config import RunConfig
from core.contract.errors import DataError, StudioError
from core.contract.findings import Checkup
from core.data.files.keep import KeptFile
from studio.pages.new_run.data import sources
from studio.pages.new_run.data.preview import Asked
from studio.pages.new_run.data.sources import Part
from studio.pages.new_run.data.upload import taken
from studio.pages.new_run.long_work import Work
from studio.pages.new_run.sheet import CHOICE, EVENT, Answer, Sheet, answering, count_key, window_of
from studio.pages.new_run.view import View, checkup_key, facts_key, path_of, report_key
from studio.services.session import home_written_out, sample_of
from studio.shell.markup import Markup, fault
from studio.words.text import say

__all__ = ["DataHandlers", "sent"]

EXAMINED_BYTES, EXAMINED_ROWS = 4 << 20, 20_000
"""Files up to this size are examined without being asked."""
Make = Callable[[Work], KeptFile]


def sent(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a button of ours sent: its value and the fields of its form. What is none of ours is nothing."""
    try:
        raw = json.loads(text or "{}")
        value, form = raw.get("value"), raw.get("form")
    except (ValueError, AttributeError):
        return {}, {}
    return value if isinstance(value, dict) else {}, form if isinstance(form, dict) else {}


class DataHandlers:
    """The handlers of the Data block's panels over one sheet."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet

    # ── wires ────────────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, look: Callable[[Any], None]) -> None:
        """Connects panels and buttons; ``look`` follows where another file was chosen."""
        sheet, fields = self.sheet, self.sheet.form.components
        block, asked = sheet.parts.data, sheet.parts.asked
        panel = block.preview
        whole = [*sheet.outputs(), *sheet.file_outputs()]
        panel.asked.change(self.turned, [panel.asked, panel.search, *fields], whole, **CHOICE)
        # Not ``input``: Gradio keeps the first one to itself after the field was written to.
        panel.search.change(self.turned, [panel.only_code, panel.search, *fields], whole, **CHOICE)
        asked.check.change(self.check_again, [panel.search, *fields], whole, **CHOICE)
        asked.examine.change(self.examine_now, fields, whole, **CHOICE)
        asked.count.change(self.count_all, fields, whole, **CHOICE)
        asked.stop.change(self.stop, asked.stop, None, **EVENT)
        asked.mix.change(self.mixed, [asked.mix, *fields], [block.sources.mix, block.sources.outcome], **CHOICE)
        made = asked.source.change(self.made, [asked.source, *fields], sheet.another_file_outputs(), **CHOICE)
        look(made.then)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def checked(self, window: str, config: RunConfig, search: str = "", again: bool = False) -> Iterator[Answer]:
        """Reads the whole of a large file, with progress; one that was stopped only where it is asked for again."""
        sheet, view = self.sheet, self.sheet.desk.ready(config)
        key = ("check", report_key(config.data))
        before = sheet.long.of(key)
        if view.report is None or view.report.complete or (before and before.stopped() and not again):
            return
        work = sheet.long.start(key, lambda work: sheet.desk.check(config, work.tell, work.stopped))
        for progress in work.ticks():
            if sheet.overtaken(window, config):
                return
            yield {sheet.parts.data.report: sheet.report(view, progress)}
        view = sheet.current(window, config)
        yield {**sheet.said(view), **sheet.file(view, sheet.windows.asked(window, config.data, search))}

    def measured(self, window: str, config: RunConfig) -> Iterator[Answer]:
        """Counts the tokens of all rows."""
        sheet, view = self.sheet, self.sheet.desk.ready(config)
        if not view.measurable or view.spec is None:
            return
        work = sheet.long.start(facts_key(config, view.spec), lambda _: sheet.desk.measure(config))
        for _ in work.ticks():
            if sheet.overtaken(window, config):
                return
        yield sheet.said(sheet.current(window, config))

    def examined(self, window: str, config: RunConfig, wanted: bool = False) -> Iterator[Answer]:
        """Has small files examined unasked, and large ones where it is ``wanted``."""
        sheet, view = self.sheet, self.sheet.desk.ready(config)
        if not view.measurable or view.spec is None or not (wanted or _is_small(view)):
            return
        if isinstance(view.checkup, Checkup):
            yield sheet.examined(view)
            return
        key = ("examine", checkup_key(config, view.spec))
        work = sheet.long.start(key, lambda work: sheet.desk.examine(config, work.tell, work.stopped))
        for progress in work.ticks():
            if sheet.overtaken(window, config):
                return
            yield sheet.examined(view, progress)
        view = sheet.current(window, config)
        yield {**sheet.said(view), **sheet.examined(view)}

    def turned_to(self, window: str, config: RunConfig, search: str) -> Iterator[Answer]:
        """A finding's rows, where the window was turned to them before they were found anew."""
        sheet = self.sheet
        asked = sheet.windows.asked(window, config.data, search)
        if asked.only and not sheet.overtaken(window, config):
            yield sheet.rows(sheet.current(window, config), asked)

    def counted(self, window: str, config: RunConfig) -> Iterator[Answer]:
        """Counts every row, where the lengths are those of a sample."""
        sheet, view = self.sheet, self.sheet.desk.ready(config)
        if view.spec is None or view.facts is None or not view.facts.sampled:
            return
        key = count_key(config, view.spec)
        work = sheet.long.start(key, lambda work: sheet.desk.count(config, work.tell, work.stopped))
        for _ in work.ticks():
            if sheet.overtaken(window, config):
                return
            yield sheet.lengths(view)
        if work.fault is not None:
            yield {sheet.parts.data.lengths.figures: fault(work.fault)}
            return
        yield sheet.lengths(view)
        yield from self.measured(window, sheet.newest(window, config))

    # ── handlers ─────────────────────────────────────────────────────────────────────────────────────────────────

    @answering
    def turned(self, request: gr.Request, asked: str, search: str, *values: Any) -> Iterator[Answer]:
        """Another page, other words to search for, or a finding's rows. Other words begin at the first row.

        The findings on the page may be older than the choices: those of the choices are waited for.
        """
        sheet, window = self.sheet, window_of(request)
        wish = Asked.read(asked, search)
        view = sheet.view(values, window)
        sheet.windows.wish(window, view.config.data, wish)
        if not wish.only or view.finding(wish.only) is not None:
            yield sheet.rows(view, wish)
            return
        yield from self.measured(window, view.config)
        yield from self.examined(window, view.config, wanted=True)
        yield from self.turned_to(window, view.config, search)

    @answering
    def check_again(self, request: gr.Request, search: str, *values: Any) -> Iterator[Answer]:
        """Takes up a check that was stopped."""
        window = window_of(request)
        config = self.sheet.view(values, window).config
        yield from self.checked(window, config, search, again=True)
        yield from self.measured(window, config)

    @answering
    def examine_now(self, request: gr.Request, *values: Any) -> Iterator[Answer]:
        """Has the doctor look at a large file."""
        window = window_of(request)
        config = self.sheet.view(values, window).config
        yield from self._known_again(window, config)
        yield from self.examined(window, config, wanted=True)

    @answering
    def count_all(self, request: gr.Request, *values: Any) -> Iterator[Answer]:
        """Counts every row of a large file."""
        window = window_of(request)
        config = self.sheet.view(values, window).config
        yield from self._known_again(window, config)
        yield from self.counted(window, config)

    def stop(self, asked: str) -> None:
        """Ends what goes on, of one kind."""
        self.sheet.long.stop(str(sent(asked)[0].get("kind", "")))

    def mixed(self, asked: str, *values: Any) -> Answer:
        """A file joins the mixture, or leaves it. The file that is chosen now is its first part."""
        block = self.sheet.parts.data
        wish, form = sent(asked)
        try:
            parts = self._changed(wish, sources.parts_of(form), self.sheet.view(values).config)
        except StudioError as error:
            return {block.sources.outcome: fault(error)}
        return {
            block.sources.mix: sources.mix_view([self._counted(part) for part in parts]),
            block.sources.outcome: Markup(),
        }

    def made(self, request: gr.Request, asked: str, *values: Any) -> Iterator[Answer]:
        """Another source of rows: a fix, a mixture, a hub data set, or the way back. What takes long says how far."""
        outcome = self.sheet.parts.data.sources.outcome
        view = self.sheet.view(values, window_of(request))
        wish, form = sent(asked)
        try:
            if back := wish.get("back"):
                yield self.sheet.another_file(str(back), values, sample_of(str(back)) or None)
                return
            work = self.sheet.long.start(("make", asked), self._making(wish, form, view))
            for progress in work.ticks():
                yield {outcome: _making_view(progress)}
            if work.stopped():
                yield {outcome: Markup()}
                return
            if work.fault is not None:
                raise work.fault
            if wish.get("fix"):
                self.sheet.came_from[str(work.found.path)] = view.config.data.path
        except StudioError as error:
            yield {outcome: fault(error)}
            return
        yield self.sheet.another_file(str(work.found.path), values)

    def _known_again(self, window: str, config: RunConfig) -> Iterator[Answer]:
        """File and lengths, where they are not known any more."""
        yield from self.checked(window, config)
        if self.sheet.desk.glance(config).waiting:
            yield from self.measured(window, config)

    def _counted(self, part: Part) -> Part:
        """The part with its usable rows, where these are quickly read: what its weight comes to depends on them."""
        try:
            found = self.sheet.studio.data.first_look(path_of(part.choice), part.choice)
        except StudioError:
            return part  # what is wrong with the file is said when the mixture is made
        return replace(part, rows=found.usable if found.complete else 0)

    def _changed(self, wish: dict[str, Any], parts: Sequence[Part], config: RunConfig) -> Sequence[Part]:
        if wish.get("mix") == "remove":
            return [part for index, part in enumerate(parts) if index != wish.get("index")]
        kept = taken(self.sheet.studio, str(wish.get("upload", "")))
        if not parts and config.data.path:
            columns = json.dumps(config.data.columns)
            parts = [Part(home_written_out(config.data.path), config.data.layout, columns=columns)]
        return [*parts, Part(str(kept.path))][: sources.MOST_PARTS]

    def _making(self, wish: dict[str, Any], form: dict[str, Any], view: View) -> Make:
        """The long work behind a wish.

        Raises:
            DataError: the form holds what cannot be used.
        """
        service, config = self.sheet.studio.data, view.config
        if wish.get("hub"):
            hub = sources.hub_wish(form)
            return lambda work: service.from_hub(hub.name, hub.subset, hub.split, hub.rows, work.tell, work.stopped)
        if wish.get("mix"):
            parts = [(Path(part.path), part.choice, part.weight) for part in sources.parts_of(form)]
            name, seed = say("mix.name"), config.train.seed
            return lambda work: service.mix(parts, name, seed, work.tell, work.stopped)
        finding = view.finding(str(wish.get("fix", "")))
        if finding is None:
            raise DataError("doctor.stale", say("doctor.stale"), say("doctor.stale.do"))
        return lambda _: service.fix(path_of(config.data), config.data, [(finding.code, ())])


def _is_small(view: View) -> bool:
    report = view.report
    return report is not None and report.bytes <= EXAMINED_BYTES and report.usable <= EXAMINED_ROWS


def _making_view(progress: tuple[Any, ...]) -> Markup:
    done, total, rows = progress or (0, 0, 0)
    words = say("made.running.rows", rows=f"{rows:,}") if rows else say("made.running")
    return sources.working_view(words, done, total, "make")
