"""New run's events: edits, looks and Start. What the panels and lists send is in ``wires_data`` and ``wires_plan``.

An edit is answered at once from what is remembered (``edited``); where it touches rows or model, ``looked`` then finds
out what is missing, and says it bit by bit: the first rows, then their lengths, then what the doctor finds.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

import gradio as gr
from gradio.context import Context

from core.contract.config import RunConfig
from core.contract.errors import ConfigError, StudioError
from core.models.catalog import apply_preset, preset
from core.runs.control.prepare import prepare
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import note_asked
from studio.pages.new_run.data.handlers import DataHandlers
from studio.pages.new_run.data.preview import Asked
from studio.pages.new_run.data.upload import taken
from studio.pages.new_run.form import KNOBS
from studio.pages.new_run.layout import Parts
from studio.pages.new_run.plan.handlers import PlanHandlers
from studio.pages.new_run.sheet import CHOICE, EVENT, Answer, Sheet, answering, window_of
from studio.services.services import Studio
from studio.services.session import Session, home_written_out, sample_of, sample_path
from studio.shell.markup import Markup, fault, tag
from studio.words.text import say

__all__ = ["Handlers"]

_LOOKS = ("data.", "method", "train.max_length", "role.")
_LOOKS_AGAIN = 8


class Handlers:
    """The page's handlers over one sheet."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self.sheet = Sheet(studio)
        self.form, self.drafts = self.sheet.form, self.sheet.drafts
        self.data = DataHandlers(self.sheet)
        self.plan = PlanHandlers(self.sheet)

    # ── wires ────────────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, parts: Parts) -> None:
        """Connects every field and button."""
        self.sheet.parts = parts
        fields = self.form.components
        self._connect_fields(parts)
        self._connect_files(parts)
        chosen = parts.train.preset.input(self.preset_chosen, [parts.train.preset, *fields], fields, **CHOICE)
        self._look(self._glance(chosen.then))
        self.data.connect(self._look)
        self.plan.connect(lambda event: self._edit(event, looks=True))
        parts.start.click(
            self.begin, [parts.data.typed, *fields], [parts.start, parts.outcome], **EVENT, trigger_mode="once"
        )
        page = Context.root_block
        if page is not None:
            restored = page.load(self.restored, None, [*fields, parts.data.sample], **EVENT)
            self._look(self._glance(restored.then))
            back = parts.asked.draft.change(self.taken_back, None, [*fields, parts.data.sample], **EVENT)
            self._look(self._glance(back.then))
            self.plan.list_models(restored.then)

    def _connect_fields(self, parts: Parts) -> None:
        for key, field in self.form.fields.items():
            if key in KNOBS and key != "preset":
                self._edit(field.input, looks=key.startswith(_LOOKS))
        self._edit(self.form.fields["name"].input, looks=False)
        for role in parts.data.roles:
            taken = role.input(lambda shown: shown, parts.data.shown_roles, self.form.fields["roles"], **EVENT)
            self._look(self._glance(taken.then))

    def _connect_files(self, parts: Parts) -> None:
        block, fields = parts.data, self.form.components
        outputs = [*self.sheet.another_file_outputs(), block.report]
        sampled = block.sample.input(self.sampled, [block.sample, *fields], outputs, **CHOICE)
        self._look(self._glance(sampled.then))
        for written in (block.typed.submit, block.typed.blur):
            self._look(written(self.typed, [block.typed, *fields], outputs, **CHOICE).success)
        self._look(block.upload.change(self.dropped, [block.upload, *fields], outputs, **CHOICE).success)

    def _edit(self, event: Any, looks: bool) -> None:
        """Answers an edit at once, and looks up what it asks for; ``looks``: it asks for another look by itself."""
        self._look(self._glance(event), self.looked if looks else self.looked_again)

    def _glance(self, event: Any) -> Any:
        # One after the other, in the order in which they were made: an older edit never answers over a newer one.
        in_order = {**CHOICE, "concurrency_id": "edits", "concurrency_limit": 1}
        outputs = [*self.sheet.outputs(), self.sheet.parts.outcome]
        return event(self.edited, self.form.components, outputs, **in_order).then

    def _look(self, event: Any, handler: Any = None) -> None:
        search = self.sheet.parts.data.preview.search
        outputs = [*self.sheet.outputs(), *self.sheet.file_outputs()]
        event(handler or self.looked, [search, *self.form.components], outputs, **CHOICE)

    # ── handlers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def restored(self, request: gr.Request) -> list[Any]:
        """The draft, as the fields show it."""
        return self._put(self.drafts.load(), request)

    def taken_back(self, request: gr.Request) -> list[Any]:
        """What gave way to other choices, as the fields show it."""
        return self._put(self.drafts.take_back(), request)

    def _put(self, session: Session, request: gr.Request) -> list[Any]:
        self.drafts.show(window_of(request), session)
        return [*self.form.values(session), sample_of(session.config.data.path) or None]

    def edited(self, request: gr.Request, *values: Any) -> Answer:
        """An edit, answered at once from what is remembered. A fault under Start was that of other choices."""
        view = self.sheet.view(values, window_of(request))
        return {**self.sheet.said(view), self.sheet.parts.outcome: Markup()}

    @answering
    def looked(self, request: gr.Request, search: str, *values: Any) -> Iterator[Answer]:
        """The same, after looking up what was missing; the preview stays at the rows that the window turned to.

        Looking takes time, and the next choice does not wait for it: what is shown is always the newest choice.
        """
        sheet, window = self.sheet, window_of(request)
        view = sheet.view(values, window)
        if view.form_fault is not None:
            yield {**sheet.said(view), **sheet.file(view, Asked.read("", search))}
            return
        look = sheet.windows.begin(window)
        for _ in range(_LOOKS_AGAIN):
            config = sheet.newest(window, view.config)
            yield from self._found(window, config, search)
            answered = not sheet.overtaken(window, config) and not sheet.current(window, config).waiting
            if answered or not sheet.windows.is_last(window, look):
                return  # a later look says the rest

    @answering
    def looked_again(self, request: gr.Request, search: str, *values: Any) -> Iterator[Answer]:
        """After an edit that asks for no look by itself: what was forgotten since, or never asked of a studio that was
        started again beneath an open page, is looked up, so that nothing waits for what nobody looks for."""
        view = self.sheet.view(values, window_of(request))
        if view.waiting and view.form_fault is None:
            yield from self.looked(request, search, *values)

    def _found(self, window: str, config: RunConfig, search: str) -> Iterator[Answer]:
        """One look, said bit by bit; it ends early where the window has chosen anew."""
        sheet = self.sheet
        view = sheet.desk.read(config)
        if sheet.overtaken(window, config):
            return
        yield {**sheet.said(view), **sheet.file(view, sheet.windows.asked(window, config.data, search))}
        yield from self.data.checked(window, config, search)
        yield from self.data.measured(window, config)
        yield from self.data.examined(window, config)
        yield from self.data.turned_to(window, config, search)

    def sampled(self, key: str | None, *values: Any) -> Answer:
        """A sample was chosen."""
        return self.sheet.another_file(str(sample_path(key)) if key else "", values, key)

    def typed(self, path: str, *values: Any) -> Answer:
        """A path was typed, or the field was left; whether it can be read is said by the report."""
        chosen = home_written_out(path)
        if not chosen or chosen == dict(zip(self.form.fields, values, strict=True))["data.path"]:
            return {self.sheet.parts.data.report: gr.skip()}
        return self.sheet.another_file(chosen, values, sample_of(chosen) or None, path)

    def dropped(self, key: str, *values: Any) -> Answer:
        """A file was uploaded: it is kept under its content's hash."""
        try:
            kept = taken(self.studio, key)
        except StudioError as error:
            return {self.sheet.parts.data.report: fault(error)}
        return self.sheet.another_file(str(kept.path), values)

    def preset_chosen(self, key: str, *values: Any) -> list[Any]:
        """A preset's values in all fields; data, model and name stay."""
        base = self.drafts.load()
        with contextlib.suppress(ConfigError):  # the preset mends what was out of range
            base = self.form.session(values, base)
        config = apply_preset(base.config, preset(key))
        return self.form.values(Session(config, base.draft_id))

    def begin(self, request: gr.Request, typed: str, *values: Any) -> Iterator[list[Any]]:
        """Start: resolves everything, starts the run, and leads to its page."""
        yield [gr.update(value=say("start.preparing"), interactive=False), Markup()]
        try:
            session = self.form.session(values, self.drafts.of(window_of(request)))
            if home_written_out(typed) not in ("", session.config.data.path):  # typed, and not read yet
                raise ConfigError("start.unread", say("start.unread"), say("start.unread.do"))
            ready = prepare(session.to_run_config(), self.studio.locations, self.studio.data)
            run_id = self.studio.store.start(ready.config, session.start_id)
            note_asked(JobFolder(self.studio.locations.runs / run_id), ready.asked, ready.estimate.seconds)
        except StudioError as error:
            yield [self._start(values), fault(error)]
            return
        except Exception:  # noqa: BLE001 - whatever it was: the person can try again, and the terminal has the whole story
            traceback.print_exc()
            yield [gr.update(value=say("start.now"), interactive=True), fault(say("start.fault"))]
            return
        self.drafts.renew(session)
        link = tag("a", say("start.follow"), href=f"/watch?run={run_id}", data_goto=True)
        yield [gr.update(value=say("start.started"), interactive=False), tag("p", link, role="status")]

    def _start(self, values: Any) -> Any:
        words, ready = self.sheet.start_words(values)
        return gr.update(value=words, interactive=ready)
