"""New run's events: edits, looks, proposals and Start; those of the Data block's panels are in ``data/handlers``.

An edit is answered at once from what is kept (``edited``). Where it touches rows, or something is missing, it asks for
a look, an event of its own (``looked``): what is missing is looked up in steps, the first rows, their lengths, the
doctor's findings.

What an event costs the browser grows with its inputs: Gradio copies every input's properties at each word of the queue.
So an edit is one event, and a look has no inputs.
"""

import contextlib
import functools
import itertools
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.context import Context

from core.contract.config import RunConfig
from core.contract.errors import ConfigError, Fault
from core.estimate.by_fit import known_models, placed, proposed
from core.estimate.fit import chosen
from core.estimate.propose import goals_key
from core.models.catalog import apply_preset, preset
from core.runs.control.prepare import prepare
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import note_asked
from studio.pages.new_run.data.handlers import CHOICE, EVENT, DataHandlers, answering, window_of
from studio.pages.new_run.data.looking import Look
from studio.pages.new_run.data.recipe import is_recipe, taken_over
from studio.pages.new_run.data.upload import is_waiting, taken, uploaded
from studio.pages.new_run.form import KNOBS, Answer, sent
from studio.pages.new_run.model import list_view
from studio.pages.new_run.page import Page, lay_out
from studio.pages.new_run.plan import probe_view
from studio.pages.new_run.windows import Windows
from studio.pages.new_run.words import say
from studio.services.proposing import as_it_is
from studio.services.services import Studio
from studio.services.session import Session, home_written_out, sample_of, sample_path
from studio.services.standing import every_setting, source_of, touched
from studio.shell.markup import Markup, fault, tag

_LOOKS = ("data.", "method", "train.max_length")
"""Settings whose edits change what has to be looked up."""
_LOOKS_AGAIN = 8
_TOLD = ("draft_id", "data.path", "columns")
"""Fields beside the settings that an edit answers where the window has not been told of them: nobody types there."""
_IN_ORDER = {**CHOICE, "concurrency_id": "edits", "concurrency_limit": 1}
"""One after another, whatever was set: an edit on its way would write older fields over a newer choice, and a choice
that overtook it would be answered with them."""


def build(studio: Studio) -> None:
    """Puts the page into the open Blocks and connects it."""
    Handlers(studio, lay_out(studio, studio.drafts.load())).connect()


class Handlers:
    """The page's handlers."""

    def __init__(self, studio: Studio, page: Page) -> None:
        self.studio, self.page, self.form, self.parts = studio, page, page.form, page.parts
        self.drafts = studio.drafts
        self.windows = Windows(studio, page.form)
        self.cache = self.windows.cache
        self.data = DataHandlers(studio, page, self.windows)

    # ── connecting ───────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self) -> None:
        """Connects every field and button."""
        form, parts, fields = self.form, self.parts, self.form.components
        for key, field in form.fields.items():
            if (key in KNOBS and key != "preset") or key == "name":
                self._edits(field.input, key)
        sample, typed, upload = (parts[f"data-{name}"] for name in ("sample", "typed", "upload"))
        goal, roles = form.fields["preset"], parts["act-roles"]
        self._sets(goal.input, self.preset_chosen, goal)
        self._sets(parts["act-change"].change, self.changed, parts["act-change"])
        self._sets(parts["act-draft"].change, self.taken_back, parts["act-draft"])
        outputs = self._answered(parts["data-report"], *self.data.chosen_outputs)
        sample.input(self.sampled, [sample, *fields], outputs, **_IN_ORDER)
        roles.change(self.data.role_given, [roles, *fields], outputs, **_IN_ORDER)
        for written, handler in ((typed.submit, self.typed), (typed.blur, self.left)):
            written(handler, [typed, *fields], outputs, **_IN_ORDER)
        upload.change(self.dropped, [upload, *fields], outputs, **CHOICE)
        self.data.connect()
        # After the edits on their way: whoever opens the list has chosen them before.
        parts["act-models"].change(self.models, None, parts["model-list"], **_IN_ORDER)
        parts["act-probe"].change(self.probed, fields, self.data.said_outputs, **CHOICE)
        started = [parts["start"], parts["outcome"], parts["look"]]
        wanted = [parts["data-typed"], upload, *fields]
        parts["start"].click(self.begin, wanted, started, **EVENT, trigger_mode="once")
        if Context.root_block is not None:
            begun = [*fields, sample, *self.data.whole_outputs, parts["look"]]
            restored = Context.root_block.load(self.restored, None, begun, **EVENT)
            restored.then(self.models, None, parts["model-list"], **CHOICE)
        looked = [*self.data.whole_outputs, *fields]
        at_once = {**EVENT, "trigger_mode": "multiple", "concurrency_limit": None}  # an older one ends by itself
        parts["look"].change(self.looked, None, looked, **at_once)

    def _edits(self, event: Callable[..., Any], by_hand: str) -> None:
        """A setting whose field is typed into."""

        def typed(request: gr.Request, *values: Any) -> Answer:
            return self.edited(request, *values, by_hand=by_hand)

        event(typed, self.form.components, self._answered(), **_IN_ORDER)

    def _sets(self, event: Callable[..., Any], handler: Callable[..., Answer], asked: Any) -> None:
        """A choice that sets fields, which are answered as if they had been sent: that as an event of its own would
        cost as much as the choice."""
        fields = self.form.components

        @functools.wraps(handler)
        def setting(request: gr.Request, wish: Any, *values: Any) -> Answer:
            answer = handler(request, wish, *values)
            now = dict(zip(fields, values, strict=True))
            now |= {field: value for field, value in answer.items() if field in now and value != gr.skip()}
            return {**answer, **self.edited(request, *now.values())}

        event(
            setting, [asked, *fields], self._answered(self.parts["data-sample"], self.parts["data-typed"]), **_IN_ORDER
        )

    def _answered(self, *more: Any) -> list[Any]:
        """All that an answered edit may show."""
        said = [*self.data.said_outputs, self.parts["outcome"], self.parts["look"], *self.form.components, *more]
        return list(dict.fromkeys(said))

    # ── edits and looks ──────────────────────────────────────────────────────────────────────────────────────────

    def restored(self, request: gr.Request) -> Answer:
        """The draft's fields that the page was not made with already, and what is known of it: Start waits for no
        second answer."""
        now, made = self._put(self.drafts.load(), request), self._drafted(self.page.made)
        fields = [*self.form.components, self.parts["data-sample"]]
        differing = {field: value for field, value, was in zip(fields, now, made, strict=True) if value != was}
        view = self.windows.view(self.drafts.of(window_of(request)).config)
        return {**differing, **self.page.said(view), **self.page.file(view), **self.page.look()}

    def taken_back(self, request: gr.Request, *_: Any) -> Answer:
        """The fields of the draft before the last replacement."""
        now = self._put(self.drafts.take_back(), request)
        fields = dict(zip([*self.form.components, self.parts["data-sample"]], now, strict=True))
        return fields | self.page.shown(data_typed="")

    def _put(self, session: Session, request: gr.Request) -> list[Any]:
        self.drafts.shown.put(window_of(request), session.config)
        return self._drafted(session)

    def _drafted(self, session: Session) -> list[Any]:
        return [*self.form.values(session), sample_of(session.config.data.path) or None]

    def edited(self, request: gr.Request, *values: Any, by_hand: str = "") -> Answer:
        """An edit, answered from what is kept. It clears the fault under Start. What is missing, or hangs on the rows,
        is looked up next; a proposal that waits for no look is made at once. Where one crossed the edit on its way to
        the window, both are shown as they stand now. No proposal writes over what was a person's own before: to show
        that again could only take back what is typed meanwhile."""
        window = window_of(request)
        mended = self.windows.faults.get(window) is not None
        base = self.drafts.of(window)
        written_over = by_hand not in base.own and not self.form.told(values, base)
        view = self.windows.sent(values, window, by_hand)
        answer = {**self.page.said(view), **self.page.shown(outcome=Markup())}
        self.windows.edits.put(window, object())  # after the draft has it: what is drawn from now on does
        if view.form_fault is not None:
            return answer
        if not by_hand:
            return answer | self.page.look()
        session = self.drafts.of(window)
        crossed = self.form.differing(session, values)
        fields = {key: field for key, field in self.form.fields.items() if goals_key(key) or key in _TOLD}
        answer |= {field: crossed[field] for field in fields.values() if field in crossed}
        if self.form.fields["data.path"] in crossed:  # an answer that says so may write over what the layout was set to
            answer[self.form.fields["data.layout"]] = session.config.data.layout
        if written_over and by_hand in fields:
            answer[fields[by_hand]] = chosen(session.config, by_hand)
        looks = by_hand.startswith(_LOOKS) or view.waiting or mended
        return answer | (self.page.look() if looks else self._proposed(window, view.config))

    @answering
    def looked(self, request: gr.Request) -> Iterator[Answer]:
        """What is missing of the window's newest choices is looked up; an event before this one has answered them. A
        newer choice does not wait."""
        windows, window, began = self.windows, window_of(request), object()
        config = windows.newest(window, self.drafts.load().config)
        windows.looks.put(window, began)
        for _ in range(_LOOKS_AGAIN):
            look = Look(self.page, windows, window, windows.newest(window, config), began)
            for answer in look.whole():
                yield {**answer, **self._proposed(window, look.config)}
            answered = not look.overtaken() and not windows.current(window, look.config).waiting
            if answered or windows.looks.get(window) is not began:
                return

    def _proposed(self, window: str, config: RunConfig) -> Answer:
        """The fields under a new proposal, as soon as what it depends on is known; none where it stands."""
        made = self.windows.propose(window, config)
        if made is None:
            return {}
        before, now = made
        fields = self.form.differing(now, self.form.values(before))
        return {**fields, **self.page.said(self.windows.current(window, now.config))}

    # ── what is chosen ───────────────────────────────────────────────────────────────────────────────────────────

    def sampled(self, request: gr.Request, key: str | None, *values: Any) -> Answer:
        """A sample was chosen."""
        return self.data.another_file(request, values, str(sample_path(key)) if key else "", key)

    def typed(self, request: gr.Request, path: str, *values: Any) -> Answer:
        """A path was typed; whether it can be read is said by the report. One that stands already is read again: it may
        be there again, or be written anew."""
        chosen = home_written_out(path)
        if self._stands(request, chosen, values):
            return self.page.look()
        if is_recipe(chosen):
            return self._recipe(request, Path(chosen), values)
        return self.data.another_file(request, values, chosen, sample_of(chosen) or None, path)

    def left(self, request: gr.Request, path: str, *values: Any) -> Answer:
        """The path's field was left: what is new there counts as typed."""
        if self._stands(request, home_written_out(path), values):
            return self.page.shown(data_report=gr.skip())
        return self.typed(request, path, *values)

    def _stands(self, request: gr.Request, path: str, values: Sequence[Any]) -> bool:
        """Whether this path is none, the window's, or the one that it was sent with."""
        newest = self.windows.as_chosen(values, window_of(request))
        return path in ("", *(self.form.sent("data.path", sent) for sent in (newest, values)))

    def dropped(self, request: gr.Request, key: str, *values: Any) -> Answer:
        """A file was uploaded: it is kept under its content's hash; a recipe is read."""
        try:
            if is_recipe(path := uploaded(self.studio.locations, key).path):
                return self._recipe(request, path, values)
            return self.data.another_file(request, values, str(taken(self.studio, key).path))
        except Fault as error:
            return self.page.shown(data_report=fault(error))

    def _recipe(self, request: gr.Request, path: Path, values: Sequence[Any]) -> Answer:
        """Another program's recipe: its values in the fields, and what of it is lost."""
        window = window_of(request)
        try:
            base = self.form.session(self.windows.as_chosen(values, window), self.drafts.of(window))
            session, told = taken_over(path, base, set(self.form.fields))
        except Fault as error:
            return self.page.shown(outcome=fault(error))
        self.drafts.edit(replace(session, own=every_setting(session.config)), window)
        fields = self.form.differing(session, values)
        answer = self.edited(request, *self.form.values(session))
        return {**answer, **fields, **self.page.shown(outcome=told, data_typed="")}

    def preset_chosen(self, request: gr.Request, key: str, *values: Any) -> Answer:
        """A goal's values in their fields, in place of what a person set before; data, model and name stay. What
        follows the rows is refined at once, where they are known."""
        base, window = self._as_far_as_it_holds(request, values), window_of(request)
        own = frozenset(key for key in base.own if not goals_key(key))
        return self._put_down(replace(base, config=apply_preset(base.config, preset(key)), own=own), window, values)

    def changed(self, request: gr.Request, asked: str, *values: Any) -> Answer:
        """A proposal was taken: its values in the fields, as if a person had typed them."""
        base, (wish, _) = self._as_far_as_it_holds(request, values), sent(asked)
        changes = {key: wish[key] for key in wish if key in KNOBS or key == "model.name"}
        name = str(changes.get("model.name", ""))
        named = {"model.source": source_of(name), "model.revision": ""} if name else {}
        with contextlib.suppress(ConfigError):
            now = base.with_values(changes | named)
            values_now = {key: chosen(now.config, key) for key in changes}
            other = {  # a model's field holds its name already, when it was chosen from the list
                key: value for key, value in values_now.items()
                if key == "model.name" or value != chosen(base.config, key)
            }  # fmt: skip
            now = replace(now, own=touched(base.own, base.standing, other))
            together = len(other) > 1 and "model.name" not in other and bool(now.own - base.own)
            base = as_it_is(now) if together or wish.get("undo") else now
        return self._put_down(base, window_of(request), values)

    def _put_down(self, session: Session, window: str, values: Any) -> Answer:
        """The session as the draft, and the fields that it changes. Gradio takes no answer that names none."""
        self.drafts.edit(session, window)
        made = self.windows.propose(window, session.config)
        changed = self.form.differing(made[1] if made else session, values)
        return changed or {self.form.fields["draft_id"]: gr.skip()}

    def _as_far_as_it_holds(self, request: gr.Request, values: Any) -> Session:
        """The fields, else what the window chose last: a preset or a proposal may fix what was out of range."""
        window = window_of(request)
        base = self.drafts.of(window)
        with contextlib.suppress(ConfigError):
            return self.form.session(self.windows.as_chosen(values, window), base)
        return base

    def models(self, request: gr.Request) -> Markup:
        """Every model by fit, under the window's newest choices; what is half typed into the field is none of them."""
        view = self.windows.current(window_of(request), self.drafts.load().config)
        asked = self.cache.asked(view)
        listed = placed(asked, known_models())
        encoders = any(one.spec.encoder for one in listed)
        return list_view(listed, view.config.model.name, proposed(asked), view.machine, encoders)

    # ── probe and Start ──────────────────────────────────────────────────────────────────────────────────────────

    @answering
    def probed(self, request: gr.Request, *values: Any) -> Iterator[Answer]:
        """Ten seconds of the real thing, stage by stage."""
        window = window_of(request)
        view = self.windows.view(self.cache.ready(self.windows.sent(values, window).config).config)
        if view.spec is not None:
            work = self.cache.begin("probe", view)
            for stage in itertools.chain([()], work.ticks()):
                going = probe_view(replace(view, progress={"probe": stage}))
                yield self.page.shown(summary_probe=going)
        yield self.page.said(self.windows.current(window, view.config))

    def begin(self, request: gr.Request, typed: str, upload: str, *values: Any) -> Iterator[Answer]:
        """Start: resolves everything, starts the run, and leads to its page. After a fault the button is looked up once
        more: a look may have ended meanwhile, and said that it can be pressed."""
        yield self.page.shown(start=gr.update(value=say("start.preparing"), interactive=False), outcome=Markup())
        window = window_of(request)
        try:
            session = self.form.session(self.windows.as_chosen(values, window), self.drafts.of(window))
            if home_written_out(typed) not in ("", session.config.data.path):  # typed, and not read yet
                raise ConfigError("start.unread")
            if is_waiting(self.studio.locations, upload):
                raise ConfigError("start.unread/dropped")
            if self.windows.view(session.config).unsettled:  # the button could still be pressed for a moment
                raise ConfigError("start.unread/settling")
            ready = prepare(session.config, self.studio.locations, self.studio.data)
            run_id = self.studio.store.start(ready.config, session.start_id)
            note_asked(JobFolder(self.studio.locations.runs / run_id), ready.asked, ready.estimate.seconds)
        except Fault as error:
            now = self.page.said(self.windows.current(window, self.drafts.load().config))
            start = now[self.parts["start"]]
            yield {**self.page.shown(start=start, outcome=fault(error)), **self.page.look()}
            return
        except Exception:  # noqa: BLE001 - the person can try again, and the terminal has the traceback
            traceback.print_exc()
            start = gr.update(value=say("start.now"), interactive=True)
            yield self.page.shown(start=start, outcome=fault(say("start.fault")))
            return
        self.drafts.renew(session)
        link = tag("a", say("start.follow"), href=f"/watch?run={run_id}", data_goto=True)
        start = gr.update(value=say("start.started"), interactive=False)
        yield self.page.shown(start=start, outcome=tag("p", link, role="status"))
