"""Cached answers for New run: the model's shape, the file's report, row lengths, findings, the estimate.

Each is kept under what it depends on. ``glance`` uses only what is kept, so that an edit is answered at once.
"""

import contextlib
import traceback
from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.contract.catalogue import ModelSpec
from core.contract.config import DataChoice, RunConfig
from core.contract.data import Checkup, DataFacts, DataReport, Preview
from core.contract.errors import DataError, Fault, HubError, MachineError, ModelError
from core.data.files.made import origin_of
from core.data.read.demands import report_for
from core.data.read.labels import outputs_of
from core.data.service.reader import NO_DATA
from core.estimate import Given, Learned, advise, by_fit, card_choices, estimate, make_it_fit, resolve, use_the_room
from core.estimate.inputs.cards import deciding
from core.models.catalog import find_model
from core.models.hub.cache import is_cached
from core.models.suited import suited, unsuited
from core.runs.control.prepare import tokenizer_folder
from core.runs.record.learned import learned_file, speeds
from studio.pages.new_run.view import View, path_of
from studio.services.long_work import LongWork, Work
from studio.services.recent import Recent
from studio.services.services import Studio

LARGE_BYTES, SMALL_SECONDS = 4 << 20, 2.0
"""A larger file, or one that takes longer, shows its first rows before it is read whole."""
_KEPT = 40
_LATER = {"num_train_epochs", "max_steps", "save_steps", "eval_steps", "save_minutes"}
"""Names of what a probe does not measure: how long the run goes on."""


def cache_of(studio: Studio) -> "PageCache":
    """The studio's one cache: its windows and the routes of their tables share it."""
    known: PageCache = studio.kept.setdefault("new_run", PageCache(studio))
    return known


class PageCache:
    """Looks things up for the page and keeps them. Thread-safe."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self.works = LongWork()
        self.came_from: dict[str, str] = {}
        """Data sets made here to the file that was chosen before."""
        self._known: Recent[Any] = Recent(_KEPT)
        """Shared by all windows; what was dropped is looked up again at a window's next edit."""

    # ── what is known ────────────────────────────────────────────────────────────────────────────────────────────

    def glance(self, config: RunConfig) -> View:
        """The view of what is kept, with the estimate."""
        return self._planned(self._kept_of(config))

    def _kept_of(self, config: RunConfig) -> View:
        view = View(config, self.studio.machine(), source=self._source(config.data))
        view = self._with(view, "spec", "model_fault", _model_key(config))
        view = _for_method(self._with(view, "report", "data_fault", _report_key(config.data)))
        if view.report is None:
            view = replace(view, guess=self._known.get(_guess_key(config.data)))
        if (spec := view.spec) is not None:
            keys = _keys(config, spec)
            view = replace(view, probe=self._known.get(keys["probe"]), checkup=self._known.get(keys["examine"]))
            if view.measurable:
                view = self._with(view, "facts", "data_fault", keys["measure"])
                if view.facts is None and view.data_fault is None:
                    # Until then with the lengths under another limit.
                    return replace(self._with(view, "facts", "data_fault", keys["count"]), waiting=True)
        return replace(view, waiting=not view.looked_at)

    def ready(self, config: RunConfig) -> View:
        """Model and file, looked up where they are not kept; without the estimate, the longest part of a glance."""
        view = self._kept_of(config)
        return view if view.looked_at else self.read(config)

    def asked(self, view: View) -> by_fit.Asked:
        """What the verdict on any model depends on, as the summary's on the chosen one."""
        return by_fit.Asked(view.trained, view.facts, deciding(view.job), self._learned())

    def report(self, config: RunConfig) -> DataReport | None:
        """What is known of the whole file; None until it is read."""
        report = self._known.get(_report_key(config.data))
        return report if isinstance(report, DataReport) and report.complete else None

    def given(self, config: RunConfig) -> Given | None:
        """What a proposal for these choices depends on; None until all of it is known, or where none can be made."""
        spec, report = self._known.get(_model_key(config)), self.report(config)
        if not isinstance(spec, ModelSpec) or report is None:
            return None
        keys = _keys(config, spec)
        facts = self._known.get(keys["measure"]) or self._known.get(keys["count"])  # lengths are those of any limit
        if not isinstance(facts, DataFacts) or not facts.lengths or not config.learning.takes(report.layout):
            return None
        machine = deciding(View(config, self.studio.machine()).job)
        return Given(config, machine, self._learned(), facts=facts, spec=spec, report=report)

    def lacks_hub(self, config: RunConfig) -> bool:
        """Whether the hub did not give what a chosen model needs."""
        spec = self._known.get(_model_key(config))
        measured = self._known.get(_keys(config, spec)["measure"]) if isinstance(spec, ModelSpec) else spec
        return isinstance(measured, HubError | ModelError)

    def row(self, view: View, number: int) -> Preview:
        """One row as the model will see it; none where it is left out.

        Raises:
            DataError: as rendering does.
        """
        if view.spec is None:
            return Preview(rows=(), total=0, template="")
        return self.studio.data.preview(
            path_of(view.config.data), view.config.data, tokenizer_folder(view.spec), _length(view.config, view.spec),
            limit=1, rows=(number,), method=view.method,
        )  # fmt: skip

    def _source(self, data: DataChoice) -> str:
        """The untouched file of a data set with a person's changes; "" where it is untouched itself."""
        path = path_of(data)
        source = self.studio.data.source_of(path) if data.path else path
        return "" if source == path else str(source)

    def file_of(self, path: str) -> str:
        """The untouched file whose rows the table of this one shows."""
        return self._source(DataChoice(path=path)) or path

    def made_from(self, path: str) -> str:
        """The file that a data set of ours was made from: as it was chosen, else as it was kept."""
        home = self.studio.locations.data
        if path in self.came_from or Path(path).parent.parent != home or ".." in path:
            return self.came_from.get(path, "")
        source = origin_of(Path(path)).get("from", {})
        kept = home / str(source.get("sha256", "")).strip("/.") / str(source.get("name", ""))
        return str(kept) if source and kept.is_file() else ""

    def progress(self, view: View) -> dict[str, tuple[Any, ...]]:
        """The progress of long work on these choices, by its kind."""
        if view.spec is None:
            return {}
        works = {kind: self.works.of((kind, key)) for kind, key in _keys(view.config, view.spec).items()}
        told = {kind: work.progress for kind, work in works.items() if work is not None and work.going}
        if view.report is not None and not view.report.complete and works["check"] is None:
            told["check"] = ()  # it begins at once
        return told

    # ── looking up ──────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, config: RunConfig) -> View:
        """``ready`` that looks up model and file anew: all of it where that is quick, else its first rows."""
        self._find(_model_key(config), lambda: find_model(config.model.source, config.model.name))
        if config.data.path:
            self._find(_report_key(config.data), lambda: self._first_look(config.data))
            known = self._known.get(_report_key(config.data))
            if isinstance(known, DataError) and known.code not in NO_DATA:
                with contextlib.suppress(Fault):  # what its columns seem to be, whatever was chosen by hand
                    roles = self.studio.data.roles(path_of(config.data), DataChoice(path=config.data.path))
                    self._known.put(_guess_key(config.data), roles)
        return self._kept_of(config)

    def begin(self, kind: str, view: View) -> Work:
        """Begins long work on these choices, or joins it: ``check``, ``measure``, ``count``, ``examine`` or ``probe``.

        Its result or fault is kept, unless it was stopped.
        """
        config, spec = view.config, view.spec
        if spec is None:
            raise ValueError("nothing can be done before the model is known")
        task, key = getattr(self, f"_{kind}"), _keys(config, spec)[kind]
        return self.works.start((kind, key), lambda work: task(config, spec, work))

    def look(self, config: RunConfig) -> View:
        """Looks up all that the estimate needs, and waits for it."""
        view = self.read(config)
        if view.measurable and view.spec is not None:
            self._measure(config, view.spec)
        return self.glance(config)

    def _check(self, config: RunConfig, _: ModelSpec, work: Work) -> None:
        """Reads the whole of a file of which only the first rows are known."""
        path, data = path_of(config.data), config.data
        self._keep(_report_key(data), lambda: self.studio.data.check(path, data, work.tell, work.stopped), work)

    def _measure(self, config: RunConfig, spec: ModelSpec, _: Work | None = None) -> None:
        """Finds the rows' lengths under the model's tokenizer."""
        data, view = config.data, self._kept_of(config)
        keys, length = _keys(config, spec), _length(config, spec)

        def measured() -> DataFacts:
            folder = tokenizer_folder(spec)
            facts = self.studio.data.facts(path_of(data), data, folder, length, method=view.method)
            return facts.giving(view.outputs)

        self._find(keys["measure"], measured)
        self._known.put(keys["count"], self._known.get(keys["measure"]))

    def _count(self, config: RunConfig, spec: ModelSpec, work: Work) -> None:
        """Tokenises every row, where the lengths are those of a sample; the run itself needs that too."""
        data, folder, method = config.data, tokenizer_folder(spec), self.ready(config).method
        if self.studio.data.tokenise(path_of(data), data, folder, work.tell, work.stopped, method=method):
            self._known.forget(lambda known: isinstance(known, DataFacts) and known.sampled)

    def _examine(self, config: RunConfig, spec: ModelSpec, work: Work) -> None:
        """Has the data doctor look at the rows."""
        data, folder, held_out = config.data, tokenizer_folder(spec), _held_out_of(config)
        method = self.ready(config).method

        def examined() -> Checkup:
            return self.studio.data.checkup(
                path_of(data), data, folder, _length(config, spec), held_out,
                method=method, on_progress=work.tell, cancelled=work.stopped,
            )  # fmt: skip

        self._keep(_keys(config, spec)["examine"], examined, work)

    def _probe(self, config: RunConfig, spec: ModelSpec, work: Work) -> None:
        """Measures ten seconds of real training."""
        view = self.look(config)
        if (facts := view.facts) is None:
            return
        from core.proof.probe.client import probe

        full, _ = resolve(view.trained, spec, facts, view.job, self._learned())
        key, locations = _keys(config, spec)["probe"], self.studio.locations
        self._keep(key, lambda: probe(full, spec, facts, locations, work.tell, work.stopped), work)

    def _first_look(self, data: DataChoice) -> DataReport:
        path, large = path_of(data), False
        with contextlib.suppress(OSError, ValueError):  # reading it tells what is wrong with the path
            large = path.stat().st_size > LARGE_BYTES
        # A small compressed file may contain gigabytes: after SMALL_SECONDS it is read with progress instead.
        return self.studio.data.first_look(path, data, 0.0 if large else SMALL_SECONDS)

    def _planned(self, view: View) -> View:
        """The estimate, what would make it fit or use the room, and advice: arithmetic alone."""
        if (spec := view.spec) is None:
            return view
        if (refused := unsuited(view.trained, spec)) is not None:
            return replace(view, model_fault=refused)
        try:
            view.machine.choosing(view.config.train.cards)
        except MachineError as missing:
            return replace(view, form_fault=missing)
        given = view.trained, spec, view.facts, view.job, self._learned()
        full, resolved = resolve(*given)
        figures = estimate(full, *given[1:])
        view = replace(view, figures=figures, resolved=tuple(resolved))
        if figures.verdict in ("tight", "too_large"):
            view = replace(view, fit=make_it_fit(*given))
        elif view.facts is not None:
            view = replace(view, room=use_the_room(*given))
        if view.facts is None:
            return view  # advice needs counted rows
        whole = view.trained, spec, view.facts, view.machine, self._learned()
        view = replace(view, choices=card_choices(*whole))
        checkup = view.checkup if isinstance(view.checkup, Checkup) else None
        return replace(view, advice=advise(view.trained, spec, view.facts, view.report, checkup))

    def _learned(self) -> Learned:
        """What was measured on this machine; read again when a run or a proof has ended since."""
        places = learned_file(self.studio.locations), self.studio.locations.proofs
        key = ("learned", *(path.stat().st_mtime_ns if path.exists() else 0 for path in places))
        self._find(key, lambda: speeds(self.studio.locations))
        learned = self._known.get(key)
        return learned if isinstance(learned, Learned) else Learned(())

    def _with(self, view: View, name: str, fault: str, key: Hashable) -> View:
        known = self._known.get(key)
        if known is None:
            return view
        return replace(view, **{fault if isinstance(known, Fault) else name: known})

    def _find(self, key: Hashable, find: Callable[[], object]) -> None:
        """Looks an answer up where it is not kept, was a fault, or is a hub model that was downloaded since."""
        known = self._known.get(key)
        from_hub = isinstance(known, ModelSpec) and known.source == "hub" and not known.folder
        if known is None or isinstance(known, Fault) or (from_hub and is_cached(known.name)):
            self._keep(key, find)

    def _keep(self, key: Hashable, find: Callable[[], object], work: Work | None = None) -> None:
        """Keeps an answer or its fault; nothing of stopped work."""
        try:
            self._known.put(key, find())
        except Fault as error:
            if work is None or not work.stopped():
                self._known.put(key, error)
        except Exception:  # noqa: BLE001 - an unforeseen fault is an answer too
            traceback.print_exc()
            self._known.put(key, Fault("work.fault"))


def _for_method(view: View) -> View:
    """The view with what its method learns of the file, or the fault that it cannot learn from it."""
    if view.report is None:
        return view
    try:
        report = report_for(view.report, view.method)
        outputs = outputs_of(view.trained, report) if report.complete else None
        return replace(view, report=report, outputs=outputs)
    except DataError as error:
        return replace(view, report=view.report.under(view.method), data_fault=error)


# ── what an answer depends on ────────────────────────────────────────────────────────────────────────────────────────


def _moment(path: Path) -> tuple[int, int]:
    """When a file was written last, and its size; zeros where there is none."""
    try:
        stamp = path.stat()
    except (OSError, ValueError):
        return 0, 0
    return stamp.st_mtime_ns, stamp.st_size


def _model_key(config: RunConfig) -> Hashable:
    """What the model depends on. A folder that was mended, or written anew, is another one."""
    chosen = config.model
    moment = _moment(Path(chosen.name) / "config.json") if chosen.source == "folder" else None
    return ("model", chosen.source, chosen.name, moment)


def _report_key(data: DataChoice) -> Hashable:
    """What a file's report depends on."""
    return ("report", data.path, _moment(path_of(data)), data.layout, tuple(sorted(data.columns.items())))


def _guess_key(data: DataChoice) -> Hashable:
    """What the proposal for a file's columns depends on."""
    return ("roles", data.path, _moment(path_of(data)))


def _keys(config: RunConfig, spec: ModelSpec) -> dict[str, Hashable]:
    """What each answer depends on, by the work that finds it."""
    data, train, report = config.data, config.train, _report_key(config.data)
    rows = (report, spec.name, spec.revision, config.method, data.train_on, data.template, data.system_prompt)
    timed = tuple(sorted(train.model_dump(exclude=_LATER).items()))
    return {
        "check": report,
        "measure": ("lengths", train.max_length, train.problem_type, rows),
        "count": ("lengths under any limit", train.problem_type, rows),
        "examine": ("checkup", train.max_length, _held_out_of(config), rows),
        "probe": ("probe", config.model, config.lora, report, timed),
    }


def _length(config: RunConfig, spec: ModelSpec) -> int:
    """The limit at which rows are cut for this model."""
    return suited(config, spec)[0].train.max_length


def _held_out_of(config: RunConfig) -> tuple[float, int, int]:
    """What decides which rows are held out."""
    return config.data.eval_fraction, config.data.eval_rows_max, config.train.seed
