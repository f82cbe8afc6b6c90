"""What New run knows beside the visitor's choices: the model's shape, the file's report, row lengths, the estimate.

Reading a file, rendering rows and asking the hub take time; they happen in ``look`` and are remembered by what they
depend on. ``glance`` uses only what is remembered, so that an edit is answered at once: steps and memory follow from
remembered lengths by arithmetic alone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from core.catalog import find_model
from core.contract.catalogue import ModelSpec
from core.contract.config import DataChoice, RunConfig
from core.contract.data import DataFacts, DataReport, Preview
from core.contract.errors import StudioError
from core.contract.estimate import Estimate, Resolved
from core.estimate import estimate, resolve
from core.hardware import Machine
from core.hub_cache import is_cached
from core.prepare import tokenizer_folder
from studio.house import Studio
from studio.session import home_written_out

__all__ = ["ROWS_A_PAGE", "Desk", "View"]

ROWS_A_PAGE = 3
_KEPT = 24
Found = TypeVar("Found")


@dataclass(frozen=True)
class View:
    """One state of the page. What is not known yet is None; ``waiting`` says that it is being looked for."""

    config: RunConfig
    machine: Machine
    spec: ModelSpec | None = None
    report: DataReport | None = None
    facts: DataFacts | None = None
    figures: Estimate | None = None
    resolved: tuple[Resolved, ...] = ()
    model_fault: StudioError | None = None
    data_fault: StudioError | None = None
    form_fault: StudioError | None = None
    waiting: bool = False


class Desk:
    """Looks things up for the page and remembers them. Thread-safe."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, Any] = OrderedDict()

    def glance(self, config: RunConfig) -> View:
        """What can be said at once, from what is remembered."""
        view = View(config, self.studio.machine())
        view = self._with(view, "spec", "model_fault", _model_key(config))
        view = self._with(view, "report", "data_fault", _report_key(config.data))
        if view.spec and view.report and view.report.usable:
            near = _near(config, view.spec)
            view = self._with(view, "facts", "data_fault", _facts_key(config, view.spec))
            if (
                view.facts is None and view.data_fault is None
            ):  # lengths under another limit: nearly right, for a moment
                return replace(self._estimated(self._with(view, "facts", "data_fault", near)), waiting=True)
        known = view.spec or view.model_fault, view.report or view.data_fault
        return replace(self._estimated(view), waiting=not all(known))

    def look(self, config: RunConfig) -> View:
        """Finds out what is missing, then says all of it. Takes as long as it takes; runs beside the page."""
        self._find(_model_key(config), lambda: find_model(config.model.source, config.model.name))
        if config.data.path:
            self._find(_report_key(config.data), lambda: self.studio.data.report(_path(config.data), config.data))
        view = self.glance(config)
        if view.spec and view.report and view.report.usable:
            spec = view.spec
            self._find(_facts_key(config, spec), lambda: self._facts(config, spec))
            self._remember(_near(config, spec), self._recall(_facts_key(config, spec)))
        return replace(self.glance(config), waiting=False)

    def preview(self, view: View, offset: int) -> Preview | StudioError | None:
        """A page of rows as the model will see them; None where there is nothing to show."""
        if view.spec is None or view.report is None or not view.report.usable:
            return None
        try:
            folder = tokenizer_folder(view.spec)
            data, length = view.config.data, view.config.train.max_length
            return self.studio.data.preview(_path(data), data, folder, length, offset=offset, limit=ROWS_A_PAGE)
        except StudioError as error:
            return error

    def columns(self, view: View) -> tuple[str, ...]:
        """The file's columns for mapping by hand; none where the file cannot be read at all."""
        if view.report is not None:
            return view.report.columns
        try:
            return self.studio.data.columns(_path(view.config.data)) if view.config.data.path else ()
        except StudioError:
            return ()

    def _facts(self, config: RunConfig, spec: ModelSpec) -> DataFacts:
        folder = tokenizer_folder(spec)
        return self.studio.data.facts(_path(config.data), config.data, folder, config.train.max_length)

    def _estimated(self, view: View) -> View:
        if view.spec is None:
            return view
        config = view.config
        if view.report is not None:
            config = config.model_copy(update={"method": view.report.method})
        full, resolved = resolve(config, view.spec, view.facts, view.machine)
        figures = estimate(full, view.spec, view.facts, view.machine)
        return replace(view, figures=figures, resolved=tuple(resolved))

    def _with(self, view: View, name: str, fault: str, key: Hashable) -> View:
        found = self._recall(key)
        if found is None:
            return view
        return replace(view, **{fault if isinstance(found, StudioError) else name: found})

    def _find(self, key: Hashable, work: Callable[[], Found]) -> None:
        """Remembers the answer; an error is remembered for this state of the page only, and tried again next time."""
        known = self._recall(key)
        if known is not None and not isinstance(known, StudioError) and not _came_here(known):
            return
        try:
            self._remember(key, work())
        except StudioError as error:
            self._remember(key, error)

    def _recall(self, key: Hashable) -> Any:
        with self._lock:
            return self._known.get(key)

    def _remember(self, key: Hashable, value: object) -> None:
        with self._lock:
            self._known[key] = value
            self._known.move_to_end(key)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)


def _came_here(known: object) -> bool:
    """Whether a hub model that was not on this machine has been downloaded since."""
    return isinstance(known, ModelSpec) and not known.folder and known.source == "hub" and is_cached(known.name)


def _path(data: DataChoice) -> Path:
    return Path(home_written_out(data.path))


def _model_key(config: RunConfig) -> Hashable:
    return ("model", config.model.source, config.model.name)


def _report_key(data: DataChoice) -> Hashable:
    path = _path(data)
    try:
        stamp = path.stat()
        moment = (stamp.st_mtime_ns, stamp.st_size)
    except OSError:
        moment = (0, 0)
    return ("report", data.path, moment, data.layout, tuple(sorted(data.columns.items())))


def _facts_key(config: RunConfig, spec: ModelSpec) -> Hashable:
    return ("exact", config.train.max_length, _near(config, spec))


def _near(config: RunConfig, spec: ModelSpec) -> Hashable:
    """Facts of these rows under this tokenizer, whatever the length limit."""
    data = config.data
    chosen = (data.train_on, data.template, data.system_prompt)
    return ("facts", _report_key(data), spec.name, spec.revision, chosen)
