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

from core.catalog import apply_preset, preset
from core.contract.config import RunConfig
from core.contract.errors import ConfigError, StudioError
from core.data.keep import keep_file
from core.prepare import prepare
from core.runs.asked import note_asked
from core.runs.folder import JobFolder
from studio.house import Studio
from studio.markup import Markup, fault, tag
from studio.pages.new_run.form import KNOBS
from studio.pages.new_run.layout import Parts
from studio.pages.new_run.preview import Asked
from studio.pages.new_run.sheet import CHOICE, EVENT, Answer, Sheet, window_of
from studio.pages.new_run.wires_data import DataWires
from studio.pages.new_run.wires_plan import PlanWires
from studio.session import Session, home_written_out, sample_of, sample_path
from studio.text import say
from studio.upload import uploaded

__all__ = ["Wires"]

_LOOKS = ("data.", "train.max_length", "role.")
_READING = ("data.layout", "roles")
_LOOKS_AGAIN = 8


class Wires:
    """The page's handlers over one sheet."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self.sheet = Sheet(studio)
        self.form, self.drafts = self.sheet.form, self.sheet.drafts
        self.data = DataWires(self.sheet)
        self.plan = PlanWires(self.sheet)

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
        self.plan.connect(lambda event: self._look(self._glance(event)), self._glance)
        parts.start.click(
            self.begin, [parts.data.typed, *fields], [parts.start, parts.outcome], **EVENT, trigger_mode="once"
        )
        page = Context.root_block
        if page is not None:
            restored = page.load(self.restored, None, [*fields, parts.data.sample], **EVENT)
            self._look(self._glance(restored.then))
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
        block, file = parts.data, self.form.fields["data.path"]
        reading = self.reading()
        sampled = block.sample.input(self.sampled, block.sample, reading, **CHOICE)
        self._look(self._glance(sampled.then))
        for written in (block.typed.submit, block.typed.blur):
            said = written(self.typed, [block.typed, file], [*reading, block.report], **CHOICE)
            self._look(said.success)
        self._look(block.upload.change(self.dropped, block.upload, [*reading, block.report], **CHOICE).success)

    def reading(self) -> list[Any]:
        """The fields that another file sets: its path, where it was chosen, and a reading from scratch."""
        block, fields = self.sheet.parts.data, self.form.fields
        return [
            fields["data.path"], block.sample, block.typed, *(fields[key] for key in _READING), block.preview.search,
        ]  # fmt: skip

    def _edit(self, event: Any, looks: bool) -> None:
        after = self._glance(event)
        if looks:
            self._look(after)

    def _glance(self, event: Any) -> Any:
        # One after the other, in the order in which they were made: an older edit never answers over a newer one.
        in_order = {**CHOICE, "concurrency_id": "edits", "concurrency_limit": 1}
        return event(self.edited, self.form.components, self.sheet.outputs(), **in_order).then

    def _look(self, event: Any) -> None:
        search = self.sheet.parts.data.preview.search
        outputs = [*self.sheet.outputs(), *self.sheet.file_outputs()]
        event(self.looked, [search, *self.form.components], outputs, **CHOICE)

    # ── handlers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def restored(self) -> list[Any]:
        """The draft, as the fields show it."""
        session = self.drafts.load()
        return [*self.form.values(session), sample_of(session.config.data.path) or None]

    def edited(self, request: gr.Request, *values: Any) -> Answer:
        """An edit, answered at once from what is remembered."""
        return self.sheet.said(self.sheet.view(values, window_of(request)))

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
            if not sheet.overtaken(window, config) or not sheet.windows.is_last(window, look):
                return  # a later look says the rest

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
        yield from self.data.found_again(window, config, search)

    def sampled(self, key: str | None) -> list[Any]:
        """A sample was chosen: its path, and a reading from scratch."""
        return [str(sample_path(key)) if key else "", key, "", "auto", "", ""]

    def typed(self, path: str, held: str) -> list[Any]:
        """A path was typed, or the field was left; whether it can be read is said by the report."""
        chosen = home_written_out(path)
        if not chosen or chosen == held:
            return [gr.skip() for _ in range(7)]
        return [chosen, None, path, "auto", "", "", gr.update()]

    def dropped(self, key: str) -> list[Any]:
        """A file was uploaded: it is kept under its content's hash."""
        try:
            sent = uploaded(self.studio.locations, key)
            kept = keep_file(sent.path, self.studio.locations, sent.name)
        except StudioError as error:
            return [gr.update() for _ in range(6)] + [fault(error)]
        return [str(kept.path), None, "", "auto", "", "", gr.update()]

    def preset_chosen(self, key: str, *values: Any) -> list[Any]:
        """A preset's values in all fields; data, model and name stay."""
        base = self.drafts.load()
        with contextlib.suppress(ConfigError):  # the preset mends what was out of range
            base = self.form.session(values, base)
        config = apply_preset(base.config, preset(key))
        return self.form.values(Session(config, base.draft_id))

    def begin(self, typed: str, *values: Any) -> Iterator[list[Any]]:
        """Start: resolves everything, starts the run, and leads to its page."""
        yield [gr.update(value=say("start.preparing"), interactive=False), Markup()]
        try:
            session = self.form.session(values, self.drafts.load())
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
