"""What every handler of New run needs: the fields, the draft, the desk, long work, and what the page then shows.

The page itself is the state: every event sends all fields, and ``view`` reads them. Answers are dictionaries of
components to values, so that a handler says only what it changes.
"""

from __future__ import annotations

import functools
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from core.contract.catalogue import ModelSpec
from core.contract.config import DataChoice, RunConfig
from core.contract.data import Preview
from core.contract.errors import ConfigError
from core.data.files.made import origin_of
from core.models.catalog import presets
from studio.figures.queueing import card_taken
from studio.pages.new_run.cache import PageCache
from studio.pages.new_run.data import block as data
from studio.pages.new_run.data import checkup, lengths, preview
from studio.pages.new_run.data.preview import Asked
from studio.pages.new_run.form import Form
from studio.pages.new_run.layout import Parts
from studio.pages.new_run.long_work import LongWork
from studio.pages.new_run.model import block as model
from studio.pages.new_run.model.by_fit import ByFit
from studio.pages.new_run.outline import draft_view, head_view
from studio.pages.new_run.plan import summary
from studio.pages.new_run.plan.proposals import probe_view
from studio.pages.new_run.train import block as train
from studio.pages.new_run.view import View, near_key, report_key
from studio.services.services import Studio
from studio.services.session import for_own_file
from studio.shell.markup import Markup, tag

__all__ = ["CHOICE", "EVENT", "Answer", "Sheet", "answering", "count_key", "window_of"]

EVENT: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": 4}
CHOICE = {**EVENT, "trigger_mode": "always_last"}
Answer = dict[Any, Any]
_WINDOWS_KEPT, _WINDOWS_SHOWN = 64, 8


def answering(handler: Callable[..., Iterator[Answer]]) -> Callable[..., Iterator[Answer]]:
    """A handler that has something to say at least once: Gradio empties all outputs of one that ends without a word."""

    @functools.wraps(handler)
    def saying(self: Any, *given: Any) -> Iterator[Answer]:
        silent = True
        for answer in handler(self, *given):
            silent = False
            yield answer
        if silent:
            yield {self.sheet.parts.summary: gr.skip()}

    return saying


class Newest:
    """The newest choices of each open window, so that a look that took long can tell that it was overtaken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, RunConfig] = OrderedDict()
        self._looks: dict[str, int] = {}
        self._wishes: dict[str, tuple[DataChoice, Asked]] = {}

    def note(self, window: str, config: RunConfig) -> None:
        """The window's choices are now these."""
        with self._lock:
            self._known[window] = config
            self._known.move_to_end(window)
            while len(self._known) > _WINDOWS_KEPT:
                gone, _ = self._known.popitem(last=False)
                self._looks.pop(gone, None)
                self._wishes.pop(gone, None)

    def begin(self, window: str) -> int:
        """Another look of the window begins; its number."""
        with self._lock:
            self._looks[window] = self._looks.get(window, 0) + 1
            return self._looks[window]

    def is_last(self, window: str, look: int) -> bool:
        """Whether no other look has begun since."""
        with self._lock:
            return self._looks.get(window, look) == look

    def wish(self, window: str, data: DataChoice, asked: Asked) -> None:
        """The window turned to these rows of this data."""
        with self._lock:
            self._wishes[window] = data, asked

    def asked(self, window: str, data: DataChoice, search: str) -> Asked:
        """The rows that the window turned to last; the first ones where it shows other data, or other words, now."""
        with self._lock:
            known, asked = self._wishes.get(window, (None, Asked()))
        return asked if known == data and asked.search == Asked.read("", search).search else Asked.read("", search)

    def shown(self) -> list[RunConfig]:
        """The choices of the windows that were used last."""
        with self._lock:
            return list(self._known.values())[-_WINDOWS_SHOWN:]

    def of(self, window: str, otherwise: RunConfig) -> RunConfig:
        """The window's newest choices."""
        with self._lock:
            return self._known.get(window, otherwise)


class Sheet:
    """One studio's New run. ``parts`` are its components, once they are laid out."""

    parts: Parts

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self.form = Form()
        self.drafts = studio.drafts
        self.windows = Newest()
        self.desk = PageCache(studio, self.windows.shown)
        self.by_fit = ByFit()
        self.long = LongWork()
        self.came_from: dict[str, str] = {}

    # ── state ────────────────────────────────────────────────────────────────────────────────────────────────────

    def view(self, values: Any, window: str = "") -> View:
        """The fields as they were sent, with what is known of them at once; they become the draft."""
        base = self.drafts.of(window)
        try:
            session = self.form.session(values, base)
        except ConfigError as error:
            return View(base.config, self.studio.machine(), form_fault=error)
        self.drafts.edit(session, window)
        if window:
            self.windows.note(window, session.config)
        return self.desk.glance(session.config)

    def newest(self, window: str, config: RunConfig) -> RunConfig:
        """What the window has chosen since, else ``config``."""
        return self.windows.of(window, config)

    def current(self, window: str, config: RunConfig) -> View:
        """What is known of the window's newest choices."""
        return self.desk.glance(self.newest(window, config))

    def overtaken(self, window: str, config: RunConfig) -> bool:
        """Whether the window has chosen other rows, another model or another length since."""
        return _asks(self.newest(window, config)) != _asks(config)

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def outputs(self) -> list[Any]:
        """Everything that ``said`` may answer."""
        parts = self.parts
        return [
            parts.draft, parts.summary, parts.bar, parts.start, parts.auto, parts.more, parts.probe, parts.machine,
            parts.model.about, parts.train.goal, parts.train.ends,
            parts.data.lengths.picture, parts.data.lengths.figures,
        ]  # fmt: skip

    def said(self, view: View) -> Answer:
        """What the page says of a view, but for the file itself."""
        parts = self.parts
        words, ready = summary.start_words(view, card_taken(self.studio.locations, view.machine))
        line = view.figures.sentence if view.figures else ""
        return {
            parts.draft: draft_view(self.drafts.load().before),
            parts.summary: summary.summary_view(view),
            parts.bar: tag("p", line, class_="bar-line"),
            parts.start: gr.update(value=words, interactive=ready),
            parts.auto: train.auto_view(view),
            parts.more: summary.more_view(view),
            parts.probe: self.probed(view),
            parts.machine: head_view(view.machine),
            parts.model.about: model.model_view(view, self.by_fit.proposed(self.desk.asked(view))),
            parts.train.goal: train.goal_view(view.config.preset),
            parts.train.ends: train.ends_view(view),
            **self.lengths(view),
        }

    def lengths(self, view: View) -> Answer:
        """The lengths' panel; while every row is counted, how far that is."""
        panel = self.parts.data.lengths
        work = self.long.of(count_key(view.config, view.spec)) if view.spec else None
        going = work is not None and work.living and not work.stopped()
        picture, figures = lengths.lengths_view(view, work.progress if work and going else None)
        return {panel.picture: picture, panel.figures: figures}

    def start_words(self, values: Any) -> tuple[str, bool]:
        """The words on Start, and whether it can be pressed."""
        view = self.view(values)
        return summary.start_words(view, card_taken(self.studio.locations, view.machine))

    def probed(self, view: View, stage: str | None = None) -> Any:
        """The probe: its button where a run could start, how far it is, or what it measured."""
        possible = view.figures is not None and view.facts is not None
        return probe_view(view.probe, view.figures, stage, possible) or ""

    def file_outputs(self) -> list[Any]:
        """Everything that ``file`` may answer."""
        block = self.parts.data
        return [*self.rows_outputs(), block.report, block.tabs, block.checkup.found, block.shown_roles, *block.roles]

    def file(self, view: View, asked: Asked) -> Answer:
        """What the Data block says of a file: report, the rows asked for, mapping and the doctor's findings."""
        block = self.parts.data
        shown, roles = data.mapping(view, self.desk.columns(view))
        return {
            block.report: self.report(view),
            **self.rows(view, asked),
            **self.examined(view),
            block.shown_roles: shown,
            **dict(zip(block.roles, roles, strict=True)),
        }

    def another_file_outputs(self) -> list[Any]:
        """Everything that ``another_file`` may answer."""
        block, fields = self.parts.data, self.form.fields
        of_samples = sorted({key for recipe in presets() for key in recipe.for_samples})
        return [
            *(fields[key] for key in ("data.path", "data.layout", "roles", "preset", *of_samples)),
            block.sample, block.typed, block.preview.search, block.sources.outcome, self.parts.outcome,
        ]  # fmt: skip

    def another_file(self, path: str, values: Any, sample: str | None = None, typed: str = "") -> Answer:
        """The fields under another file: it is read from scratch, and what was said of the one before it goes."""
        block, fields = self.parts.data, self.form.fields
        shown = dict(zip(fields, values, strict=True))
        changes = {} if sample else for_own_file(shown.get("preset") or "", shown)
        return {
            **{fields[key]: value for key, value in changes.items()},
            fields["data.path"]: path, fields["data.layout"]: "auto", fields["roles"]: "",
            block.sample: sample, block.typed: typed, block.preview.search: "",
            block.sources.outcome: Markup(), self.parts.outcome: Markup(),
        }  # fmt: skip

    def report(self, view: View, progress: tuple[int, ...] | None = None) -> Any:
        """The file's lines. A check that goes on is shown as going on."""
        work = self.long.of(("check", report_key(view.config.data)))
        going = work is not None and work.living and not work.stopped()
        begun = work is None and view.report is not None and not view.report.complete
        if progress is None:
            progress = work.progress if work and going else () if begun else None
        return data.report_view(view, progress, self.back(view.config.data.path))

    def back(self, path: str) -> str:
        """The file that a data set of ours was made from: as it was chosen, else as it was kept."""
        kept_by_us = Path(path).parent.parent == self.studio.locations.data and ".." not in path
        source = origin_of(Path(path)).get("from", {}) if kept_by_us else {}
        folder = self.studio.locations.data / str(source.get("sha256", "")).strip("/.")
        kept = [str(found) for found in (folder / str(source.get("name", "")),) if source and found.is_file()]
        return self.came_from.get(path, kept[0] if kept else "")

    def rows_outputs(self) -> list[Any]:
        """Everything that ``rows`` may answer."""
        panel = self.parts.data.preview
        return [panel.rows, panel.only, panel.only_code]

    def rows(self, view: View, asked: Asked) -> Answer:
        """A page of the preview."""
        panel = self.parts.data.preview
        found = self.desk.preview(view, asked)
        finding = view.finding(asked.only)
        title = checkup.title_of(asked.only) if finding else ""
        total = found.total if isinstance(found, Preview) else 0
        shown = preview.preview_view(found, asked)
        only = preview.only_view(title, total)
        return {panel.rows: shown, panel.only: only, panel.only_code: json.dumps({"value": {"only": asked.only}})}

    def examined(self, view: View, progress: tuple[int, ...] | None = None) -> Answer:
        """The doctor's panel and its name on the tab."""
        block = self.parts.data
        rows = view.report.usable if view.report and view.measurable else 0
        return {
            block.checkup.found: checkup.checkup_view(view.checkup, rows, progress),
            block.tabs: data.tabs_view(view.checkup),
        }


def window_of(request: gr.Request) -> str:
    """The window that asks."""
    return str(request.session_hash or "")


def count_key(config: RunConfig, spec: ModelSpec) -> Hashable:
    """What counting every row depends on."""
    return "count", near_key(config, spec)


def _asks(config: RunConfig) -> Any:
    """What of a config has to be looked up."""
    return config.data, config.model, config.train.max_length
