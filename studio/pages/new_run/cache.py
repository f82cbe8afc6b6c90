"""What New run knows beside the visitor's choices: the model's shape, the file's report, row lengths, the estimate.

Reading a file, rendering rows and asking the hub take time; they happen in ``look`` and are remembered by what they
depend on. ``glance`` uses only what is remembered, so that an edit is answered at once: steps and memory follow from
remembered lengths by arithmetic alone.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import TypeVar

from core.contract.catalogue import ModelSpec
from core.contract.config import DataChoice, RunConfig
from core.contract.data import DataFacts, DataReport, Preview
from core.contract.errors import StudioError
from core.contract.findings import Checkup
from core.contract.methods import Method
from core.estimate import Learned, advise, estimate, make_it_fit, resolve, use_the_room
from core.models.catalog import find_model
from core.models.hub.cache import is_cached
from core.runs.control.prepare import tokenizer_folder
from core.runs.record.learned import learned_file, speeds
from studio.pages.new_run.data.preview import ROWS_A_PAGE, Asked
from studio.pages.new_run.long_work import unforeseen
from studio.pages.new_run.model import by_fit
from studio.pages.new_run.remembered import Remembered
from studio.pages.new_run.view import (
    View,
    checkup_key,
    facts_key,
    held_out_of,
    model_key,
    near_key,
    path_of,
    probe_key,
    report_key,
)
from studio.services.services import Studio

__all__ = ["PageCache", "View"]

LARGE_BYTES, SMALL_SECONDS = 4 << 20, 2.0
"""A larger file, or one that takes longer, shows its first rows before it is read whole."""
Found = TypeVar("Found")
Progress = Callable[[int, int, int], None]
Cancelled = Callable[[], bool]


class PageCache:
    """Looks things up for the page and remembers them. Thread-safe.

    Args:
        shown: the choices that windows show now: what is known of them is not forgotten.
    """

    def __init__(self, studio: Studio, shown: Callable[[], Iterable[RunConfig]] = tuple) -> None:
        self.studio = studio
        self._shown = shown
        self._known = Remembered(self._in_use)

    def glance(self, config: RunConfig) -> View:
        """What can be said at once, from what is remembered."""
        view = View(config, self.studio.machine())
        view = self._with(view, "spec", "model_fault", model_key(config))
        view = self._with(view, "report", "data_fault", report_key(config.data))
        if (spec := view.spec) is not None:
            found = {"probe": probe_key(config), "checkup": checkup_key(config, spec)}
            view = replace(view, **{name: self._known.get(key) for name, key in found.items()})
            if view.measurable:
                view = self._with(view, "facts", "data_fault", facts_key(config, spec))
                if view.facts is None and view.data_fault is None:
                    # Lengths under another limit are nearly right, for a moment.
                    near = self._with(view, "facts", "data_fault", near_key(config, spec))
                    return replace(self._planned(near), waiting=True)
        return replace(self._planned(view), waiting=not view.looked_at)

    def ready(self, config: RunConfig) -> View:
        """The same, with model and file looked up where they are not known, or not any more."""
        view = self.glance(config)
        return view if view.looked_at else self.read(config)

    def read(self, config: RunConfig) -> View:
        """Finds the model, and looks at the file: at all of it where that is quick, else at its first rows."""
        self._find(model_key(config), lambda: find_model(config.model.source, config.model.name))
        if config.data.path:
            self._find(report_key(config.data), lambda: self._looked(config.data))
        return self.glance(config)

    def check(self, config: RunConfig, on_progress: Progress, cancelled: Cancelled) -> None:
        """Reads the whole of a file of which only the first rows are known. What is wrong with it is remembered too.

        Raises:
            DataError: it was cancelled; the first look then stays.
        """
        key, data = report_key(config.data), config.data
        try:
            self._known.put(key, self.studio.data.check(path_of(data), data, on_progress, cancelled))
        except StudioError as error:
            if cancelled():
                raise
            self._known.put(key, error)

    def measure(self, config: RunConfig) -> View:
        """Finds the rows' lengths under the model's tokenizer."""
        view = self.ready(config)
        if view.measurable and view.spec is not None:
            spec = view.spec
            self._find(facts_key(config, spec), lambda: self._facts(config, spec, view.method))
            self._known.put(near_key(config, spec), self._known.get(facts_key(config, spec)))
        return self.glance(config)

    def count(self, config: RunConfig, on_progress: Callable[[int, int], None], cancelled: Cancelled) -> None:
        """Has every row tokenised, where the lengths are those of a sample; the run itself needs that too.

        Raises:
            StudioError: it cannot be done; the sample's lengths stay.
        """
        view = self.ready(config)
        if not view.measurable or view.spec is None:
            return
        data, folder = config.data, tokenizer_folder(view.spec)
        if self.studio.data.tokenise(path_of(data), data, folder, on_progress, cancelled, method=view.method):
            self._known.forget(lambda known: isinstance(known, DataFacts) and known.sampled)

    def look(self, config: RunConfig) -> View:
        """Finds out what is missing, then says all of it. Takes as long as it takes; runs beside the page."""
        self.read(config)
        return replace(self.measure(config), waiting=False)

    def examine(self, config: RunConfig, on_progress: Callable[[int, int], None], cancelled: Cancelled) -> None:
        """Has the data doctor look at the rows. A fault is remembered, unless it was cancelled."""
        view = self.ready(config)
        if not view.measurable or view.spec is None:
            return
        key, data, held = checkup_key(config, view.spec), config.data, held_out_of(config)
        try:
            folder, length = tokenizer_folder(view.spec), config.train.max_length
            found = self.studio.data.checkup(
                path_of(data), data, folder, length, held, on_progress=on_progress, cancelled=cancelled
            )
        except StudioError as error:
            if not cancelled():
                self._known.put(key, error)
            return
        self._known.put(key, found)

    def probe(self, config: RunConfig, on_stage: Callable[[str], None], cancelled: Cancelled) -> None:
        """Runs ten seconds of the real thing and remembers what it took, or why it could not."""
        view = self.look(config)
        if view.spec is None or view.facts is None:
            return
        from core.probe.client import probe

        full, _ = resolve(view.trained, view.spec, view.facts, view.machine, self._learned())
        try:
            found: object = probe(full, view.spec, view.facts, self.studio.locations, on_stage, cancelled)
        except StudioError as error:
            if cancelled():
                return
            found = error
        self._known.put(probe_key(config), found)

    def preview(self, view: View, asked: Asked) -> Preview | StudioError | None:
        """A page of rows as the model will see them; None where there is nothing to show."""
        if not view.readable or view.spec is None:
            return None
        finding = view.finding(asked.only)
        try:
            return self.studio.data.preview(
                path_of(view.config.data), view.config.data, tokenizer_folder(view.spec), view.config.train.max_length,
                offset=asked.offset, limit=ROWS_A_PAGE, search=asked.search, rows=finding.rows if finding else (),
                method=view.method,
            )  # fmt: skip
        except StudioError as error:
            return error

    def columns(self, view: View) -> tuple[str, ...]:
        """The file's columns for mapping by hand; none where the file cannot be read at all."""
        if view.report is not None:
            return view.report.columns
        try:
            return self.studio.data.columns(path_of(view.config.data)) if view.config.data.path else ()
        except StudioError:
            return ()

    def asked(self, view: View) -> by_fit.Asked:
        """What the verdict on any model depends on: the same as the summary's on the chosen one."""
        return by_fit.Asked(view.trained, view.facts, view.machine, self._learned())

    def _looked(self, data: DataChoice) -> DataReport:
        path, large = path_of(data), False
        with contextlib.suppress(OSError, ValueError):  # what is wrong with the path is said by the reading
            large = path.stat().st_size > LARGE_BYTES
        # A file that is small on the disk may hold gigabytes: what is not read soon is read with progress and a stop.
        return self.studio.data.first_look(path, data, 0.0 if large else SMALL_SECONDS)

    def _facts(self, config: RunConfig, spec: ModelSpec, method: Method) -> DataFacts:
        data, folder = config.data, tokenizer_folder(spec)
        return self.studio.data.facts(path_of(data), data, folder, config.train.max_length, method=method)

    def _planned(self, view: View) -> View:
        """The estimate, what would make it fit or use the room, and advice: arithmetic alone."""
        if (spec := view.spec) is None:
            return view
        learned = self._learned()
        full, resolved = resolve(view.trained, spec, view.facts, view.machine, learned)
        figures = estimate(full, spec, view.facts, view.machine, learned)
        view = replace(view, figures=figures, resolved=tuple(resolved))
        given = view.trained, spec, view.facts, view.machine, learned
        if figures.verdict in ("tight", "too_large"):
            view = replace(view, fit=make_it_fit(*given))
        elif view.facts is not None:
            view = replace(view, room=use_the_room(*given))
        checkup = view.checkup if isinstance(view.checkup, Checkup) else None
        if view.facts is None:
            return view  # what is not counted yet is no ground for advice
        return replace(view, advice=advise(view.trained, spec, view.facts, view.report, checkup))

    def _learned(self) -> Learned:
        """What finished runs taught; read again when a run has finished since."""
        path = learned_file(self.studio.locations)
        key = ("learned", path.stat().st_mtime_ns if path.is_file() else 0)
        self._find(key, lambda: speeds(self.studio.locations))
        found = self._known.get(key)
        return found if isinstance(found, Learned) else Learned(())

    def _with(self, view: View, name: str, fault: str, key: Hashable) -> View:
        found = self._known.get(key)
        if found is None:
            return view
        return replace(view, **{fault if isinstance(found, StudioError) else name: found})

    def _find(self, key: Hashable, work: Callable[[], Found]) -> None:
        """Remembers the answer; an error is remembered for this state of the page only, and tried again next time.

        One that nobody foresaw is an answer too: nobody waits for ever.
        """
        known = self._known.get(key)
        if known is not None and not isinstance(known, StudioError) and not _came_here(known):
            return
        try:
            self._known.put(key, work())
        except StudioError as error:
            self._known.put(key, error)
        except Exception:  # noqa: BLE001 - its whole story goes to the terminal
            traceback.print_exc()
            self._known.put(key, unforeseen())

    def _in_use(self) -> set[Hashable]:
        """The names of all that is known of what windows show."""
        names: set[Hashable] = set()
        for config in self._shown():
            names |= {model_key(config), report_key(config.data)}
            spec = self._known.get(model_key(config))
            if isinstance(spec, ModelSpec):
                names |= {probe_key(config), *(key(config, spec) for key in (near_key, facts_key, checkup_key))}
        return names


def _came_here(known: object) -> bool:
    """Whether a hub model that was not on this machine has been downloaded since."""
    return isinstance(known, ModelSpec) and not known.folder and known.source == "hub" and is_cached(known.name)
