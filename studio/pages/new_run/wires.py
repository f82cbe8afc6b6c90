"""New run's events. Each handler reads the form, asks the desk, and returns views."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import gradio as gr
from gradio.context import Context

from core.catalog import apply_preset, preset
from core.contract.config import RunConfig
from core.contract.data import Preview
from core.contract.errors import ConfigError, StudioError
from core.data.keep import keep_file
from core.prepare import prepare
from studio.house import Studio
from studio.markup import Markup, fault, tag
from studio.pages.new_run import data, model, summary, train
from studio.pages.new_run.desk import ROWS_A_PAGE, Desk, View
from studio.pages.new_run.form import KNOBS, Form
from studio.pages.new_run.layout import Parts
from studio.pages.new_run.outline import head_view
from studio.session import Drafts, Session, home_written_out, sample_of, sample_path
from studio.text import say
from studio.upload import uploaded

__all__ = ["Wires"]

_EVENT: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": 4}
_CHOICE = {**_EVENT, "trigger_mode": "always_last"}
_LOOKS = ("data.", "model.name", "train.max_length", "role.")
_READING = ("data.layout", "roles")
_LOOKS_AGAIN = 8
_WINDOWS_KEPT = 64


class Newest:
    """The newest choices of each open window, so that a look that took long can tell that it was overtaken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, RunConfig] = OrderedDict()

    def note(self, window: str, config: RunConfig) -> None:
        """The window's choices are now these."""
        with self._lock:
            self._known[window] = config
            self._known.move_to_end(window)
            while len(self._known) > _WINDOWS_KEPT:
                self._known.popitem(last=False)

    def of(self, window: str, otherwise: RunConfig) -> RunConfig:
        """The window's newest choices."""
        with self._lock:
            return self._known.get(window, otherwise)


class Wires:
    """The page's handlers over one desk and one form."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self.form = Form()
        self.drafts = Drafts(studio.locations)
        self.desk = Desk(studio)
        self._newest = Newest()

    # ── wires ────────────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, parts: Parts) -> None:
        """Connects every field and button."""
        self._parts = parts
        fields = self.form.components
        block, file = parts.data, self.form.fields["data.path"]
        reading = [file, block.sample, block.typed, *(self.form.fields[key] for key in _READING)]
        for key, field in self.form.fields.items():
            if key in KNOBS and key != "preset":
                self._edit(field.input, looks=key.startswith(_LOOKS))
        self._edit(self.form.fields["model.name"].input, looks=True)
        self._edit(self.form.fields["name"].input, looks=False)
        for role in block.roles:
            taken = role.input(lambda shown: shown, block.shown_roles, self.form.fields["roles"], **_EVENT)
            self._look(self._glance(taken.then))
        self._look(block.sample.input(self.sampled, block.sample, reading, **_CHOICE).then)
        for written in (block.typed.submit, block.typed.blur):
            said = written(self.typed, [block.typed, file], [*reading, block.report], **_CHOICE)
            self._look(said.success)
        self._look(block.upload.change(self.dropped, block.upload, [*reading, block.report], **_CHOICE).success)
        chosen = parts.train.preset.input(self.preset_chosen, [parts.train.preset, *fields], fields, **_CHOICE)
        self._look(self._glance(chosen.then))
        block.later.click(self.paged(ROWS_A_PAGE), [block.offset, *fields], self._preview(), **_EVENT)
        block.earlier.click(self.paged(-ROWS_A_PAGE), [block.offset, *fields], self._preview(), **_EVENT)
        parts.start.click(
            self.begin, [block.typed, *fields], [parts.start, parts.outcome], **_EVENT, trigger_mode="once"
        )
        page = Context.root_block
        if page is not None:
            restored = page.load(self.restored, None, [*fields, block.sample, parts.model.name], **_EVENT)
            self._look(self._glance(restored.then))

    def _edit(self, event: Any, looks: bool) -> None:
        after = self._glance(event)
        if looks:
            self._look(after)

    def _glance(self, event: Any) -> Any:
        outputs = self._answers()
        # One after the other, in the order in which they were made: an older edit never answers over a newer one.
        in_order = {**_CHOICE, "concurrency_id": "edits", "concurrency_limit": 1}
        return event(self.edited, self.form.components, outputs, **in_order).then

    def _look(self, event: Any) -> None:
        block = self._parts.data
        outputs = [*self._answers(), block.report, *self._preview(), block.shown_roles, *block.roles]
        event(self.looked, self.form.components, outputs, **_CHOICE)

    def _answers(self) -> list[Any]:
        parts = self._parts
        return [
            parts.summary, parts.bar, parts.start, parts.auto, parts.model.about, parts.train.goal, parts.machine,
        ]  # fmt: skip

    def _preview(self) -> list[Any]:
        block = self._parts.data
        return [block.preview, block.offset, block.earlier, block.later]

    # ── handlers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def restored(self) -> list[Any]:
        """The draft, as the fields show it; models anew, since the cache and free memory may have changed."""
        session = self.drafts.load()
        choices = model.model_choices(session.config, self.studio.machine())
        sample = sample_of(session.config.data.path) or None
        return [*self.form.values(session), sample, gr.update(choices=choices, value=session.config.model.name)]

    def edited(self, request: gr.Request, *values: Any) -> list[Any]:
        """An edit, answered at once from what is remembered."""
        return self._said(self._view(values, _window(request)))

    def looked(self, request: gr.Request, *values: Any) -> list[Any]:
        """The same, after looking up what was missing; the preview starts at the first row.

        Looking takes time, and the next choice does not wait for it: what is shown is always the newest choice.
        """
        window = _window(request)
        view = self._view(values, window)
        if view.form_fault is None:
            view = self.desk.look(view.config)
            for _ in range(_LOOKS_AGAIN):
                newest = self._newest.of(window, view.config)
                if newest == view.config:
                    break
                view = self.desk.look(newest)
        shown, roles = data.mapping(view, self.desk.columns(view))
        return [*self._said(view), data.report_view(view), *self._page(view, 0), shown, *roles]

    def sampled(self, key: str | None) -> list[Any]:
        """A sample was chosen: its path, and a reading from scratch."""
        return [str(sample_path(key)) if key else "", key, "", "auto", ""]

    def typed(self, path: str, held: str) -> list[Any]:
        """A path was typed, or the field was left; whether it can be read is said by the report."""
        chosen = home_written_out(path)
        if not chosen or chosen == held:
            return [gr.skip() for _ in range(6)]
        return [chosen, None, path, "auto", "", gr.update()]

    def dropped(self, key: str) -> list[Any]:
        """A file was uploaded: it is kept under its content's hash."""
        try:
            kept = keep_file(uploaded(self.studio.locations, key), self.studio.locations)
        except StudioError as error:
            return [gr.update() for _ in range(5)] + [fault(error)]
        return [str(kept.path), None, "", "auto", "", gr.update()]

    def preset_chosen(self, key: str, *values: Any) -> list[Any]:
        """A preset's values in all fields; data, model and name stay."""
        base = self.drafts.load()
        with contextlib.suppress(ConfigError):  # the preset mends what was out of range
            base = self.form.session(values, base)
        config = apply_preset(base.config, preset(key))
        return self.form.values(Session(config, base.draft_id))

    def paged(self, step: int) -> Any:
        """A handler that turns the preview's page."""

        def turn(offset: int, *values: Any) -> list[Any]:
            view = self._view(values)
            return self._page(view, max(0, int(offset or 0) + step))

        return turn

    def begin(self, typed: str, *values: Any) -> Iterator[list[Any]]:
        """Start: resolves everything, starts the run, and leads to its page."""
        yield [gr.update(value=say("start.preparing"), interactive=False), Markup()]
        try:
            session = self.form.session(values, self.drafts.load())
            if home_written_out(typed) not in ("", session.config.data.path):  # typed, and not read yet
                raise ConfigError("start.unread", say("start.unread"), say("start.unread.do"))
            ready = prepare(session.to_run_config(), self.studio.locations, self.studio.data)
            run_id = self.studio.store.start(ready.config, session.start_id)
        except StudioError as error:
            yield [self._start(self._view(values)), fault(error)]
            return
        except Exception:  # noqa: BLE001 - whatever it was: the person can try again, and the terminal has the whole story
            traceback.print_exc()
            yield [gr.update(value=say("start.now"), interactive=True), fault(say("start.fault"))]
            return
        self.drafts.save(session.renewed())
        self.drafts.flush()
        link = tag("a", say("start.follow"), href=f"/watch?run={run_id}", data_goto=True)
        yield [gr.update(value=say("start.started"), interactive=False), tag("p", link, role="status")]

    # ── views ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _view(self, values: Any, window: str = "") -> View:
        base = self.drafts.load()
        try:
            session = self.form.session(values, base)
        except ConfigError as error:
            return View(base.config, self.studio.machine(), form_fault=error)
        self.drafts.save(session)
        if window:
            self._newest.note(window, session.config)
        return self.desk.glance(session.config)

    def _said(self, view: View) -> list[Any]:
        line = view.figures.sentence if view.figures else ""
        body = summary.summary_view(view)
        goal = train.goal_view(view.config.preset)
        return [
            body,
            tag("p", line, class_="bar-line"),
            self._start(view),
            train.auto_view(view),
            model.model_view(view),
            goal,
            head_view(view.machine),
        ]

    def _start(self, view: View) -> Any:
        words, ready = summary.start_words(view)
        return gr.update(value=words, interactive=ready)

    def _page(self, view: View, offset: int) -> list[Any]:
        found = self.desk.preview(view, offset)
        total = found.total if isinstance(found, Preview) else 0
        seen = data.preview_view(found, offset)
        return [seen, offset, gr.update(interactive=offset > 0), gr.update(interactive=offset + ROWS_A_PAGE < total)]


def _window(request: gr.Request) -> str:
    return str(request.session_hash or "")
