"""What was found out for New run: the model's shape, the file's report, row lengths, findings, the estimate.

Reading a file, tokenising rows and asking the hub take time; each answer is kept under what it depends on. ``glance``
uses only what is kept, so that an edit is answered at once: steps and memory follow from known lengths by arithmetic.
"""

import contextlib
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.contract.catalogue import ModelSpec
from core.contract.config import DataChoice, RunConfig
from core.contract.data import DataFacts, DataReport, Preview
from core.contract.errors import Fault
from core.contract.findings import Checkup
from core.data.files.made import origin_of
from core.estimate import Learned, advise, estimate, make_it_fit, resolve, use_the_room
from core.models.catalog import find_model
from core.models.hub.cache import is_cached
from core.runs.control.prepare import tokenizer_folder
from core.runs.record.learned import learned_file, speeds
from studio.pages.new_run.data.preview import ROWS_A_PAGE, Asked
from studio.pages.new_run.long_work import LongWork, Work, unforeseen
from studio.pages.new_run.model import by_fit
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

LARGE_BYTES, SMALL_SECONDS = 4 << 20, 2.0
"""A larger file, or one that takes longer, shows its first rows before it is read whole."""
KEPT = 40
_WORK_KEYS: dict[str, Callable[[RunConfig, ModelSpec], Hashable]] = {
    "check": lambda config, _: report_key(config.data),
    "measure": facts_key,
    "count": near_key,
    "examine": checkup_key,
    "probe": lambda config, _: probe_key(config),
}


class Answers:
    """Answers by what they depend on; those asked for longest ago are forgotten. Thread-safe.

    What a window shows may be forgotten too, for other windows' sake: its next edit then looks it up again.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable) -> Any:
        """The answer, which is the newest by that; None where there is none."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: Hashable, value: object) -> None:
        """Keeps an answer."""
        with self._lock:
            self._known[key] = value
            self._known.move_to_end(key)
            while len(self._known) > self._kept:
                self._known.popitem(last=False)

    def forget(self, which: Callable[[Any], bool]) -> None:
        """Forgets the answers that are such."""
        with self._lock:
            for key in [key for key, known in self._known.items() if which(known)]:
                del self._known[key]


class PageCache:
    """Looks things up for the page and keeps them. Thread-safe."""

    def __init__(self, studio: Studio, kept: int = KEPT) -> None:
        self.studio = studio
        self.models = by_fit.ByFit()
        self.works = LongWork()
        self.came_from: dict[str, str] = {}
        """Data sets made here to the file that was chosen before."""
        self._known = Answers(kept)

    # ── what is known ────────────────────────────────────────────────────────────────────────────────────────────

    def glance(self, config: RunConfig) -> View:
        """What can be said at once, from what is kept."""
        view = View(config, self.studio.machine())
        view = self._with(view, "spec", "model_fault", model_key(config))
        view = self._with(view, "report", "data_fault", report_key(config.data))
        if (spec := view.spec) is not None:
            probe, checkup = self._known.get(probe_key(config)), self._known.get(checkup_key(config, spec))
            view = replace(view, probe=probe, checkup=checkup)
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

    def asked(self, view: View) -> by_fit.Asked:
        """What the verdict on any model depends on: the same as the summary's on the chosen one."""
        return by_fit.Asked(view.trained, view.facts, view.machine, self._learned())

    def preview(self, view: View, asked: Asked) -> Preview | Fault | None:
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
        except Fault as error:
            return error

    def columns(self, view: View) -> tuple[str, ...]:
        """The file's columns for mapping by hand; none where the file cannot be read at all."""
        if view.report is not None:
            return view.report.columns
        try:
            return self.studio.data.columns(path_of(view.config.data)) if view.config.data.path else ()
        except Fault:
            return ()

    def made_from(self, path: str) -> str:
        """The file that a data set of ours was made from: as it was chosen, else as it was kept."""
        home = self.studio.locations.data
        if path in self.came_from or Path(path).parent.parent != home or ".." in path:
            return self.came_from.get(path, "")
        source = origin_of(Path(path)).get("from", {})
        kept = home / str(source.get("sha256", "")).strip("/.") / str(source.get("name", ""))
        return str(kept) if source and kept.is_file() else ""

    def progress(self, view: View) -> dict[str, tuple[Any, ...]]:
        """How far the long work on these choices is, by its kind."""
        report, spec = view.report, view.spec
        if spec is None:
            return {}
        going = {kind: self.works.going((kind, key(view.config, spec))) for kind, key in _WORK_KEYS.items()}
        told = {kind: work.progress for kind, work in going.items() if work is not None}
        if report is not None and not report.complete and not self.works.of(("check", report_key(view.config.data))):
            told["check"] = ()  # it begins at once
        return told

    # ── finding out ──────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, config: RunConfig) -> View:
        """Finds the model, and looks at the file: at all of it where that is quick, else at its first rows."""
        self._find(model_key(config), lambda: find_model(config.model.source, config.model.name))
        if config.data.path:
            self._find(report_key(config.data), lambda: self._first_look(config.data))
        return self.glance(config)

    def begin(self, kind: str, view: View) -> Work:
        """Begins long work on these choices, or joins it: ``check``, ``measure``, ``count``, ``examine`` or ``probe``.

        What it finds, or what is wrong, is kept; of what was stopped nothing is.
        """
        config, spec = view.config, view.spec
        if spec is None:
            raise ValueError("nothing can be done before the model is known")
        task = getattr(self, f"_{kind}")
        return self.works.start((kind, _WORK_KEYS[kind](config, spec)), lambda work: task(config, spec, work))

    def look(self, config: RunConfig) -> View:
        """Finds out all that the estimate needs, and waits for it."""
        view = self.read(config)
        if view.measurable and view.spec is not None:
            self._measure(config, view.spec)
        return self.glance(config)

    def _check(self, config: RunConfig, _: ModelSpec, work: Work) -> None:
        """Reads the whole of a file of which only the first rows are known."""
        path, data = path_of(config.data), config.data
        self._outcome(report_key(data), work, lambda: self.studio.data.check(path, data, work.tell, work.stopped))

    def _measure(self, config: RunConfig, spec: ModelSpec, _: Work | None = None) -> None:
        """Finds the rows' lengths under the model's tokenizer."""
        data, folder, method = config.data, tokenizer_folder(spec), self.glance(config).method
        key, length = facts_key(config, spec), config.train.max_length
        self._find(key, lambda: self.studio.data.facts(path_of(data), data, folder, length, method=method))
        self._known.put(near_key(config, spec), self._known.get(key))

    def _count(self, config: RunConfig, spec: ModelSpec, work: Work) -> None:
        """Tokenises every row, where the lengths are those of a sample; the run itself needs that too."""
        data, folder, method = config.data, tokenizer_folder(spec), self.ready(config).method
        if self.studio.data.tokenise(path_of(data), data, folder, work.tell, work.stopped, method=method):
            self._known.forget(lambda known: isinstance(known, DataFacts) and known.sampled)

    def _examine(self, config: RunConfig, spec: ModelSpec, work: Work) -> None:
        """Has the data doctor look at the rows."""
        data, folder, held_out = config.data, tokenizer_folder(spec), held_out_of(config)

        def examined() -> Checkup:
            return self.studio.data.checkup(
                path_of(data), data, folder, config.train.max_length, held_out,
                on_progress=work.tell, cancelled=work.stopped,
            )  # fmt: skip

        self._outcome(checkup_key(config, spec), work, examined)

    def _probe(self, config: RunConfig, spec: ModelSpec, work: Work) -> None:
        """Runs ten seconds of the real thing."""
        view = self.look(config)
        if (facts := view.facts) is None:
            return
        from core.probe.client import probe

        full, _ = resolve(view.trained, spec, facts, view.machine, self._learned())
        locations = self.studio.locations
        self._outcome(probe_key(config), work, lambda: probe(full, spec, facts, locations, work.tell, work.stopped))

    def _outcome(self, key: Hashable, work: Work, task: Callable[[], object]) -> None:
        """Keeps what a task gives, or its fault; nothing of one that was stopped."""
        try:
            self._known.put(key, task())
        except Fault as error:
            if not work.stopped():
                self._known.put(key, error)

    def _first_look(self, data: DataChoice) -> DataReport:
        path, large = path_of(data), False
        with contextlib.suppress(OSError, ValueError):  # what is wrong with the path is said by the reading
            large = path.stat().st_size > LARGE_BYTES
        # A file that is small on the disk may hold gigabytes: what is not read soon is read with progress and a stop.
        return self.studio.data.first_look(path, data, 0.0 if large else SMALL_SECONDS)

    def _planned(self, view: View) -> View:
        """The estimate, what would make it fit or use the room, and advice: arithmetic alone."""
        if (spec := view.spec) is None:
            return view
        given = view.trained, spec, view.facts, view.machine, self._learned()
        full, resolved = resolve(*given)
        figures = estimate(full, *given[1:])
        view = replace(view, figures=figures, resolved=tuple(resolved))
        if figures.verdict in ("tight", "too_large"):
            view = replace(view, fit=make_it_fit(*given))
        elif view.facts is not None:
            view = replace(view, room=use_the_room(*given))
        if view.facts is None:
            return view  # what is not counted yet is no ground for advice
        checkup = view.checkup if isinstance(view.checkup, Checkup) else None
        return replace(view, advice=advise(view.trained, spec, view.facts, view.report, checkup))

    def _learned(self) -> Learned:
        """What finished runs taught; read again when a run has finished since."""
        path = learned_file(self.studio.locations)
        key = ("learned", path.stat().st_mtime_ns if path.is_file() else 0)
        self._find(key, lambda: speeds(self.studio.locations))
        learned = self._known.get(key)
        return learned if isinstance(learned, Learned) else Learned(())

    def _with(self, view: View, name: str, fault: str, key: Hashable) -> View:
        known = self._known.get(key)
        if known is None:
            return view
        return replace(view, **{fault if isinstance(known, Fault) else name: known})

    def _find(self, key: Hashable, work: Callable[[], object]) -> None:
        """Keeps an answer. An error is kept for this state of the page only, and tried again next time; so is a hub
        model that was not on this machine, where it has been downloaded since."""
        known = self._known.get(key)
        from_hub = isinstance(known, ModelSpec) and known.source == "hub" and not known.folder
        again = isinstance(known, Fault) or (from_hub and is_cached(known.name))
        if known is not None and not again:
            return
        try:
            self._known.put(key, work())
        except Fault as error:
            self._known.put(key, error)
        except Exception:  # noqa: BLE001 - an unforeseen fault is an answer too: nobody waits for ever
            traceback.print_exc()
            self._known.put(key, unforeseen())
