"""Events of the Data block's panels: what their columns are, long checks and examinations, and data sets made here."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr

from core.contract.config import DataChoice, RunConfig
from core.contract.errors import DataError, Fault
from core.data.files.keep import KeptFile
from core.machine.hardware import Machine
from studio.pages.new_run.data import roles, sources
from studio.pages.new_run.data.lengths import lengths_view
from studio.pages.new_run.data.looking import Look
from studio.pages.new_run.data.sources import Part
from studio.pages.new_run.data.upload import taken
from studio.pages.new_run.form import CHOSEN, Answer, sent, shown_columns
from studio.pages.new_run.page import ASKED, Page
from studio.pages.new_run.view import View, path_of
from studio.pages.new_run.windows import Windows
from studio.pages.new_run.words import say
from studio.services.long_work import Work
from studio.services.services import Studio
from studio.services.session import home_written_out, sample_of
from studio.shell.markup import Markup, fault

EVENT: dict[str, Any] = {
    "show_progress": "hidden",
    "show_progress_on": [],
    "api_visibility": "private",
    "concurrency_limit": 4,
}
CHOICE = {**EVENT, "trigger_mode": "always_last"}


def window_of(request: gr.Request) -> str:
    """The window that asks."""
    return str(request.session_hash or "")


def answering(handler: Callable[..., Iterator[Answer]]) -> Callable[..., Iterator[Answer]]:
    """A handler that answers in steps. A step is on its way for 30 to 90 ms, and an edit that came since it was drawn
    may be answered before it arrives: then what it says is said once more, as it is now.

    The last step says nothing: Gradio empties all outputs of a handler that never answers, and writes the last answer
    once more when it ends, over what another has answered meanwhile.
    """

    @functools.wraps(handler)
    def saying(self: Any, request: gr.Request, *given: Any) -> Iterator[Answer]:
        window, steps = window_of(request), handler(self, request, *given)
        before = self.windows.edits.get(window)
        for step in steps:
            yield step
            while (newest := self.windows.edits.get(window)) is not before:
                before = newest
                yield _as_it_is(self.page, self.windows, window, step)
        yield self.page.shown(summary=gr.skip())

    return saying


def _as_it_is(page: Page, windows: Windows, window: str, step: Answer) -> Answer:
    """What a step of an answer said, as it is now: all but the file's outputs, and the fields that it wrote."""
    now = windows.drafts.of(window)
    fields = dict(zip(page.form.components, page.form.values(now), strict=True))
    written = {field: fields[field] for field in fields if field in step}
    return {**page.said(windows.current(window, now.config)), **written}


class DataHandlers:
    """The handlers of the Data block's panels."""

    def __init__(self, studio: Studio, page: Page, windows: Windows) -> None:
        self.studio, self.page, self.windows, self.cache = studio, page, windows, windows.cache
        nothing = View(RunConfig(), Machine((), 0, 0, 0, None, "", False))
        self.said_outputs = [*page.said(nothing)]
        self.whole_outputs = [*self.said_outputs, *page.file(nothing)]
        chosen = [*page.another_file("", None, "any"), *map(page.form.fields.__getitem__, CHOSEN)]
        chosen += map(page.parts.__getitem__, ("mix-form", "outcome", "look"))
        self.chosen_outputs = list(dict.fromkeys([*self.said_outputs, *chosen]))
        """All that another file may answer."""

    def connect(self) -> None:
        """Connects panels and buttons."""
        parts, fields, whole = self.page.parts, self.page.form.components, self.whole_outputs
        asked = {name: parts[f"act-{name}"] for name in ASKED}
        asked["check"].change(self.check_again, fields, [*whole, parts["look"]], **CHOICE)
        asked["examine"].change(self.examine_now, fields, whole, **CHOICE)
        asked["count"].change(self.count_all, fields, whole, **CHOICE)
        asked["stop"].change(self.stop, asked["stop"], None, **EVENT)
        mixed = [parts["mix-form"], parts["source-outcome"]]
        asked["mix"].change(self.mixed, [asked["mix"], *fields], mixed, **CHOICE)
        for name, handler in (("edited", self.edited), ("source", self.made)):
            asked[name].change(handler, [asked[name], *fields], self.chosen_outputs, **CHOICE)

    def look(self, request: gr.Request, values: Sequence[Any]) -> Look:
        """A look at the fields as they were sent."""
        window = window_of(request)
        return Look(self.page, self.windows, window, self.windows.sent(values, window).config)

    def another_file(
        self, request: gr.Request, values: Sequence[Any], path: str, sample: str | None = None, typed: str = ""
    ) -> Answer:
        """The window's file from now on."""
        goal = self.page.form.sent("preset", self.windows.as_chosen(values, window_of(request)))
        return self.chosen(request, values, self.page.another_file(path, goal, sample, typed))

    def chosen(self, request: gr.Request, values: Sequence[Any], answer: Answer) -> Answer:
        """A choice that sets fields, with what is known of it; the rest is looked up."""
        changes = {key: answer[field] for key, field in self.page.form.fields.items() if field in answer}
        view = self.windows.chose(values, window_of(request), changes)
        return {**self.page.said(view), **self.page.shown(outcome=Markup()), **answer, **self.page.look()}

    def edited(self, request: gr.Request, asked: str, *values: Any) -> Answer:
        """The data set with a person's changes takes the place of the file; its format and columns stay."""
        wish, _ = sent(asked)
        if self._of_another_file(request, wish, values):
            return self.page.shown(summary=gr.skip())
        path = {self.page.form.fields["data.path"]: str(wish.get("path", ""))}
        return self.chosen(request, values, path | self.page.shown(data_typed=""))

    def _of_another_file(self, request: gr.Request, wish: dict[str, Any], values: Sequence[Any]) -> bool:
        """Whether the window has chosen another file than that whose table asks."""
        now = self.page.form.sent("data.path", self.windows.as_chosen(values, window_of(request)))
        return self.cache.file_of(now) != wish.get("file")

    # ── columns, checks and counts ───────────────────────────────────────────────────────────────────────────────

    def role_given(self, request: gr.Request, asked: str, *values: Any) -> Answer:
        """A column's role was chosen in its header, or the proposed ones were taken: the format follows from them."""
        view, (wish, _) = self.cache.ready(self.look(request, values).config), sent(asked)
        if wish.get("use"):
            data = roles.taken(view.guess, view.config.data) if view.guess else view.config.data
        elif self._of_another_file(request, wish, values):
            return self.page.shown(summary=gr.skip())
        else:
            data = roles.given(view, str(wish.get("column", "")), str(wish.get("word", "")))
        fields = self.page.form.fields
        answer = {fields["data.layout"]: data.layout, fields["columns"]: shown_columns(data.columns)}
        return self.chosen(request, values, answer)

    @answering
    def check_again(self, request: gr.Request, *values: Any) -> Iterator[Answer]:
        """Resumes a stopped check; what follows from it is looked up."""
        yield from self.look(request, values).checked(again=True)
        yield self.page.look()

    @answering
    def examine_now(self, request: gr.Request, *values: Any) -> Iterator[Answer]:
        """Examines a large file."""
        look = self.look(request, values)
        yield from look.known_again()
        yield from look.examined(wanted=True)

    @answering
    def count_all(self, request: gr.Request, *values: Any) -> Iterator[Answer]:
        """Counts every row of a large file, where the lengths are those of a sample."""
        look = self.look(request, values)
        yield from look.known_again()
        view = self.windows.view(look.config)
        if view.facts is None or not view.facts.sampled:
            return
        counting = self.cache.begin("count", view)
        yield from look.work("count", view, lambda view: self.page.shown(lengths_figures=lengths_view(view)[1]))
        if counting.fault is not None:
            yield self.page.shown(lengths_figures=fault(counting.fault))
        elif not look.overtaken():
            yield from look.measured()

    def stop(self, asked: str) -> None:
        """Stops long work of one kind."""
        self.cache.works.stop(str(sent(asked)[0].get("kind", "")))

    # ── other sources of rows ────────────────────────────────────────────────────────────────────────────────────

    def mixed(self, request: gr.Request, asked: str, *values: Any) -> Answer:
        """Adds a file to the mixture or removes one. The chosen file is its first part."""
        wish, form = sent(asked)
        try:
            parts: Sequence[Part] = sources.parts_of(form)
            data = self.look(request, values).config.data
            if wish.get("mix") == "remove":
                parts = [part for index, part in enumerate(parts) if index != wish.get("index")]
            else:
                kept = taken(self.studio, str(wish.get("upload", "")))
                if not parts and data.path:
                    file = home_written_out(data.path)
                    parts = [Part(DataChoice(path=file, layout=data.layout, columns=data.columns))]
                parts = [*parts, Part(DataChoice(path=str(kept.path)))][: sources.MOST_PARTS]
        except Fault as error:
            return self.page.shown(source_outcome=fault(error))
        drawn = sources.mix_view([self._counted(part) for part in parts])
        return self.page.shown(mix_form=drawn, source_outcome=Markup())

    @answering
    def made(self, request: gr.Request, asked: str, *values: Any) -> Iterator[Answer]:
        """Another source of rows: a fix, a mixture, a hub data set, or the way back; long work shows its progress."""
        page = self.page
        view = self.windows.sent(values, window_of(request))
        wish, form = sent(asked)
        if back := str(wish.get("back", "")):
            yield self.another_file(request, values, back, sample_of(back) or None)
            return
        try:
            parts = self._dropped(wish.get("uploads") or ())
            if parts:
                yield page.shown(mix_form=sources.mix_view(parts))
            work = self.cache.works.start(("make", asked), self._maker(wish, form, view, parts))
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
        yield self.another_file(request, values, str(work.result.path))

    def _counted(self, part: Part) -> Part:
        """The part with its number of usable rows, where that is quickly read; its share depends on it."""
        try:
            report = self.studio.data.first_look(path_of(part.file), part.file)
        except Fault:
            return part  # what is wrong with the file is said when the mixture is made
        return replace(part, rows=report.usable if report.complete else 0)

    def _dropped(self, uploads: Sequence[str]) -> list[Part]:
        """Files that were dropped at once, each row to be seen once; unknown columns as they are proposed."""
        parts = []
        for key in uploads[: sources.MOST_PARTS]:
            path = taken(self.studio, str(key)).path
            view = self.cache.read(RunConfig(data=DataChoice(path=str(path))))
            data = roles.taken(view.guess, view.config.data) if view.unmapped and view.guess else view.config.data
            parts.append(Part(data, rows=view.report.usable if view.report and view.report.complete else 0))
        return parts

    def _maker(
        self, wish: dict[str, Any], form: dict[str, Any], view: View, dropped: Sequence[Part]
    ) -> Callable[[Work], KeptFile]:
        """The long work that makes the source.

        Raises:
            DataError: invalid values in the form.
        """
        service, config = self.studio.data, view.config
        if wish.get("hub"):
            hub = sources.hub_wish(form)
            return lambda work: service.from_hub(*hub, work.tell, work.stopped)
        if wish.get("mix"):
            parts = [(Path(part.file.path), part.file, part.weight) for part in dropped or sources.parts_of(form)]
            name, seed = say("mix.name"), config.train.seed
            return lambda work: service.mix(parts, name, seed, work.tell, work.stopped)
        finding = view.finding(str(wish.get("fix", "")))
        if finding is None:
            raise DataError("doctor.stale")
        return lambda _: service.fix(path_of(config.data), config.data, [(finding.code, ())])
