"""From what a person chose to what can start: the one path that window and command line share.

    RunConfig with autos ─► model found ─► file kept ─► layout recognised ─► lengths ─► every auto resolved ─► estimate

Light floor: the file is read and rendered in the data service's children, never here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from core.catalog import find_model
from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts, DataReport
from core.contract.errors import ConfigError, DataError, RunError
from core.contract.estimate import Estimate, Resolved
from core.data.keep import keep_file
from core.data.service import DataService
from core.estimate import estimate, resolve
from core.hardware import Machine, read_machine
from core.hub import fetch_tokenizer
from core.locations import Locations
from core.runs.folder import RUN_ID, JobFolder
from core.runs.learned import speeds
from core.settings import load as load_settings

__all__ = ["Prepared", "prepare", "tokenizer_folder"]


@dataclass(frozen=True)
class Prepared:
    """A run that may start: ``config`` holds no automatic value, and ``resolved`` says why each is what it is.

    ``asked`` is the same run with the automatic values still open.
    """

    config: RunConfig
    asked: RunConfig
    spec: ModelSpec
    report: DataReport
    facts: DataFacts
    resolved: tuple[Resolved, ...]
    estimate: Estimate
    machine: Machine

    def resolved_lines(self) -> tuple[str, ...]:
        """Each automatic value with its reason, a line each."""
        return tuple(f"{value.key} = {value.value}: {value.reason}" for value in self.resolved)


def prepare(config: RunConfig, locations: Locations, service: DataService) -> Prepared:
    """Resolves everything, keeps the data file, and estimates.

    Raises:
        ConfigError: faults between fields, all at once; or method dpo without pairs.
        RunError: the run to start from is not there, or has no checkpoint; said before anything is fetched.
        StudioError: the model, the file or the mapping cannot be used; one line says why.
    """
    if problems := config.problems():
        raise ConfigError("config.faults", f"This run has {len(problems)} fault(s):", "", problems)
    _check_resume(config, locations)
    wished = config.method
    spec = find_model(config.model.source, config.model.name, config.model.revision)
    config = _with_model(config, spec)
    config, report = _with_data(config, locations, service)
    folder = tokenizer_folder(spec)
    config = _with_revision(config, folder)
    facts = service.facts(Path(config.data.path), config.data, folder, config.train.max_length)
    if not sum(facts.trained):
        raise DataError(
            "data.nothing_trained",
            f"Expected trained tokens in {report.path}, found none under this mapping and length.",
            "Choose another mapping, or a longer 'Longest example'.",
        )
    machine = read_machine(locations.home)
    learned = speeds(locations)
    asked = config
    config, resolved = resolve(asked, spec, facts, machine, learned)
    resolved = [*_changed_method(wished, config.method), *resolved]
    figures = estimate(config, spec, facts, machine, learned, load_settings(locations))
    return Prepared(config, asked, spec, report, facts, tuple(resolved), figures, machine)


def tokenizer_folder(spec: ModelSpec) -> Path:
    """The folder that holds the tokenizer; of a hub model only the tokenizer's files are fetched."""
    return Path(spec.folder) if spec.folder else fetch_tokenizer(spec.name, spec.revision)


def _check_resume(config: RunConfig, locations: Locations) -> None:
    if not config.resume_from:
        return
    name = Path(config.resume_from).name
    if not RUN_ID.fullmatch(name) or JobFolder(locations.runs / name).newest_checkpoint() is None:
        raise RunError(
            "run.resume_from",
            f"Expected a run with a checkpoint to start from, found none called {config.resume_from[:80]!r}.",
            "Choose a run that has one, or leave resume_from empty.",
        )


def _changed_method(wished: str, method: str) -> list[Resolved]:
    """The data decides: pairs are trained as pairs."""
    return [] if wished == method else [Resolved(key="method", value=method, reason="preference data")]


def _with_model(config: RunConfig, spec: ModelSpec) -> RunConfig:
    model = config.model.model_copy(update={"revision": spec.revision, "name": spec.name, "source": spec.source})
    return config.model_copy(update={"model": model})


def _with_revision(config: RunConfig, folder: Path) -> RunConfig:
    """The hub's cache names a snapshot by its commit: the run then names exactly the files that were looked at."""
    if config.model.source != "hub" or config.model.revision or not re.fullmatch(r"[0-9a-f]{40}", folder.name):
        return config
    return config.model_copy(update={"model": config.model.model_copy(update={"revision": folder.name})})


def _with_data(config: RunConfig, locations: Locations, service: DataService) -> tuple[RunConfig, DataReport]:
    kept = keep_file(Path(config.data.path).expanduser(), locations)
    report = service.report(kept.path, config.data)
    if not report.usable:
        raise DataError(
            "data.nothing_usable",
            f"Expected rows to train on in {kept.name}, found {report.rows} rows and none usable.",
            report.problems[0].text if report.problems else "Choose another layout or mapping.",
        )
    if config.method == "dpo" and report.method != "dpo":
        raise ConfigError(
            "config.method",
            f"Expected pairs of answers (chosen, rejected) for method dpo, found {report.layout} rows in {kept.name}.",
            "Choose method sft, or a file with pairs.",
        )
    chosen = {"path": str(kept.path), "sha256": kept.sha256, "layout": report.layout}
    config = config.model_copy(update={"data": config.data.model_copy(update=chosen), "method": report.method})
    return config, report
