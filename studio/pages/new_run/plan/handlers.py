"""Events of the planner's lists: one click applies a proposal, the probe runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from core.contract.errors import ConfigError
from studio.pages.new_run.data.handlers import sent
from studio.pages.new_run.form import KNOBS
from studio.pages.new_run.model.model_list import list_view
from studio.pages.new_run.sheet import CHOICE, Answer, Sheet, window_of
from studio.pages.new_run.view import probe_key

__all__ = ["PlanHandlers"]


class PlanHandlers:
    """The handlers of the planner's lists over one sheet."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet

    # ── wires ────────────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, edit: Callable[[Any], Any]) -> None:
        """Connects the lists; ``edit`` follows a change."""
        sheet, fields = self.sheet, self.sheet.form.components
        parts = sheet.parts
        edit(parts.asked.change.change(self.changed, [parts.asked.change, *fields], fields, **CHOICE).then)
        self.list_models(parts.asked.models.change)
        parts.asked.probe.change(self.probed, fields, [*sheet.outputs()], **CHOICE)

    def list_models(self, event: Callable[..., Any]) -> None:
        """Fills the list of models after an event: the page has come, or the list is opened."""
        event(self.models, None, self.sheet.parts.model.listing, **CHOICE)

    # ── handlers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def changed(self, asked: str, *values: Any) -> list[Any]:
        """A proposal was taken: its values in the fields, as if a person had typed them."""
        base = self.sheet.drafts.load()
        with contextlib.suppress(ConfigError):  # a proposal may mend what was out of range
            base = self.sheet.form.session(values, base)
        changes = sent(asked)[0]
        known = {key: value for key, value in changes.items() if key in KNOBS or key == "model.name"}
        with contextlib.suppress(ConfigError):
            base = base.with_values(known)
        return self.sheet.form.values(base)

    def models(self, request: gr.Request) -> Any:
        """Every model by fit, under the window's newest choices; what is half typed into the field is none of them."""
        sheet = self.sheet
        view = sheet.current(window_of(request), sheet.drafts.load().config)
        asked = sheet.desk.asked(view)
        return list_view(sheet.by_fit.placed(asked), view.config.model.name, sheet.by_fit.proposed(asked), view.machine)

    def probed(self, request: gr.Request, *values: Any) -> Iterator[Answer]:
        """Ten seconds of the real thing, stage by stage."""
        sheet = self.sheet
        view = sheet.view(values, window_of(request))
        config = view.config
        key = ("probe", probe_key(config))
        work = sheet.long.start(key, lambda work: sheet.desk.probe(config, work.tell, work.stopped))
        yield {sheet.parts.probe: sheet.probed(view, "")}
        for stage in work.ticks():
            yield {sheet.parts.probe: sheet.probed(view, str(stage[0]) if stage else "")}
        view = sheet.current(window_of(request), config)
        yield sheet.said(view)
