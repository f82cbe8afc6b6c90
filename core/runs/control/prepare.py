"""From what a person chose to what can start, for page and command line alike.

    RunConfig with autos ─► model ─► file kept ─► layout ─► lengths ─► every auto resolved ─► estimate

The data file is read and rendered in the data service's children.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.contract.catalogue import ModelSpec
from core.contract.config import TARGETS, LoraChoice, RunConfig
from core.contract.data import DataFacts, DataReport
from core.contract.errors import ConfigError, DataError, RunError
from core.contract.estimate import Estimate, Resolved
from core.contract.methods import METHODS
from core.contract.tasks import Outputs
from core.data.files.keep import keep_file
from core.data.read.demands import unsuited as unsuited_rows
from core.data.read.examples import account_lines, refused_lines
from core.data.read.labels import outputs_of
from core.data.service.data_service import DataService
from core.estimate import estimate, resolve
from core.estimate.fit import chosen
from core.estimate.inputs.model import target_names
from core.machine.hardware import Machine, read_machine
from core.machine.locations import Locations
from core.machine.textfile import one_line
from core.models.catalog import find_model
from core.models.checks.files import read_json
from core.models.checks.weights import linear_names
from core.models.hub.client import fetch_tokenizer
from core.models.outputs import read_outputs
from core.models.positions import is_placed
from core.models.suited import faults_between, put, suited, unsuited
from core.runs.folder.job_folder import RUN_ID, JobFolder
from core.runs.metrics.sinks import expect_installed
from core.runs.record.learned import speeds

_SHAPE = ("r", "lora_alpha", "lora_dropout", "bias", "use_rslora", "use_dora")
"""Fields that adapter_config.json and ``LoraChoice`` share."""
_POSITIONS = ("rope_scaling", "rope_factor", "rope_theta")
_FREE = ("loraplus_lr_ratio", "init_lora_weights")
"""Fields of ``LoraChoice`` that are no part of an adapter: a run that goes on from it has its own."""


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

    def data_lines(self) -> tuple[str, ...]:
        """How the data file was read, and which rows are left out and why, a line each."""
        chosen_only = self.config.learning.answers < METHODS[self.report.method].answers
        told = (
            f"Method {self.config.method}: the chosen answer of each pair is trained, the rejected one is not read.",
        )
        return (*account_lines(self.report), *refused_lines(self.facts), *(told if chosen_only else ()))

    def resolved_lines(self) -> tuple[str, ...]:
        """Each automatic value with its reason, a line each."""
        return tuple(f"{value.key} = {value.value}: {value.reason}" for value in self.resolved)


def prepare(config: RunConfig, locations: Locations, service: DataService) -> Prepared:
    """Resolves everything, keeps the data file, and estimates.

    Raises:
        ConfigError: faults between fields, all at once; or method dpo without pairs; or live metrics are asked for
            whose library is missing.
        RunError: the run to start from is missing, has no checkpoint, or an adapter of another shape than is asked
            for; raised before anything is fetched.
        Fault: the model, the file or the mapping cannot be used.
    """
    if problems := faults_between(config):
        raise ConfigError("config.faults/run", count=len(problems), problems=problems)
    expect_installed(config.train.report_to)
    start = _start(config, locations)
    spec = find_model(config.model.source, config.model.name, config.model.revision)
    _check_suited(config, spec)
    wish = config
    config, follows = suited(config, spec)
    config, taken = _gone_on_from(config, start) if start else (config, [])
    _check_targets(config, spec)
    model = config.model.model_copy(update={"revision": spec.revision, "name": spec.name, "source": spec.source})
    config = config.model_copy(update={"model": model})
    config, report = _with_data(config, locations, service)
    asked = config
    for one in follows:  # open again, so that another model may be chosen after it
        asked = put(asked, one.key, chosen(wish, one.key))
    config = config.with_method(report.method)
    if not config.learning.takes(report.layout):
        raise unsuited_rows(config.trained_method, report)
    _check_suited(config, spec)
    if problems := config.problems():
        raise ConfigError("config.faults/run", count=len(problems), problems=problems)
    outputs = _outputs(config, report, start)
    folder = tokenizer_folder(spec)
    asked, config = _with_revision(asked, folder), _with_revision(config, folder)
    method = config.trained_method
    facts = service.facts(Path(config.data.path), config.data, folder, config.train.max_length, method=method)
    facts = facts.giving(outputs)
    if not sum(facts.trained):
        raise DataError("data.nothing_trained/mapping", path=report.path)
    machine = read_machine(locations.home).choosing(config.train.cards)
    learned = speeds(locations)
    config, resolved = resolve(config, spec, facts, machine, learned)
    reason = METHODS[method].reason
    by_data = [Resolved(key="method", value=method, reason=reason)] if asked.method == "auto" else []
    resolved = [*follows, *taken, *by_data, *resolved]
    figures = estimate(config, spec, facts, machine, learned)
    return Prepared(config, asked, spec, report, facts, tuple(resolved), figures, machine)


def tokenizer_folder(spec: ModelSpec) -> Path:
    """The tokenizer's folder; of a hub model only the tokenizer's files are fetched."""
    return Path(spec.folder) if spec.folder else fetch_tokenizer(spec.name, spec.revision)


def _check_suited(config: RunConfig, spec: ModelSpec) -> None:
    if fault := unsuited(config, spec):
        raise fault


def _check_targets(config: RunConfig, spec: ModelSpec) -> None:
    """Raises ConfigError for target modules that the model lacks, as far as its names are known without it."""
    names = set(config.lora.target_modules if config.learns.adapter else TARGETS)
    known = set(target_names(spec)) | (linear_names(Path(spec.folder)) if spec.folder else set())
    if known and names != set(TARGETS) and (unknown := sorted(names - known)):
        raise ConfigError(
            "model.targets/unknown",
            title=spec.title,
            unknown=", ".join(unknown)[:200],
            known=", ".join(sorted(known))[:400],
        )


def _start(config: RunConfig, locations: Locations) -> JobFolder | None:
    """The run that this one goes on from, which has a checkpoint; None where it begins anew."""
    if not config.resume_from:
        return None
    name = Path(config.resume_from).name
    run = JobFolder(locations.runs / name)
    if not RUN_ID.fullmatch(name) or run.newest_checkpoint() is None:
        raise RunError("run.resume_from/none", resume_from=config.resume_from[:80])
    return run


def _gone_on_from(config: RunConfig, run: JobFolder) -> tuple[RunConfig, list[Resolved]]:
    """The config with the adapter shape of the run that it goes on from, and which fields were taken over; a field
    that was chosen otherwise is refused."""
    name, newest = run.path.name, run.newest_checkpoint()
    assert newest is not None
    earlier, learns = run.config().train.learns, config.train.learns
    why = f"as in {name}, which this run goes on from"
    taken = []
    if earlier != learns:
        if "learns" in config.train.model_fields_set:
            raise RunError(
                "run.resume_from/shape", name=name, others=f"train.learns {earlier}", new=f"train.learns {learns}"
            )
        config = put(config, "train.learns", earlier)
        taken = [Resolved(key="train.learns", value=earlier, reason=why)]
    if config.model.rope_scaling == "auto" and is_placed(run.config().model):
        for field in _POSITIONS:  # an adapter learned beside these positions
            key, value = f"model.{field}", getattr(run.config().model, field)
            config = put(config, key, value)
            taken.append(Resolved(key=key, value=str(value), reason=why))
    if not config.learns.adapter:
        return config, taken
    said = read_json(newest / config.learns.folder / "adapter_config.json")
    there = run.config().lora.model_copy(update={key: said[key] for key in _SHAPE if key in said})
    chosen, new = config.lora.model_fields_set, config.lora.model_dump()
    others = {key: value for key, value in there.model_dump(exclude={*_FREE}).items() if value != new[key]}
    if faults := [key for key in others if key in chosen]:
        raise RunError("run.resume_from/shape", name=name, others=_listed(others, faults), new=_listed(new, faults))
    lora = LoraChoice.model_validate(config.lora.model_dump() | others)
    return config.model_copy(update={"lora": lora}), [*taken] + [
        Resolved(key=f"lora.{key}", value=str(value), reason=why) for key, value in others.items()
    ]


def _outputs(config: RunConfig, report: DataReport, start: JobFolder | None) -> Outputs | None:
    """``outputs_of`` these rows. Raises DataError for labels that cannot be learned as asked, RunError where the run
    that this one goes on from gives something else."""
    outputs = outputs_of(config, report)
    if start is None:
        return outputs
    earlier, task = start.config(), config.learning.task
    name, found = start.path.name, earlier.learning.task
    if found != task:
        raise RunError("run.resume_from/task", wanted=task.title.lower(), name=name, found=found.title.lower())
    newest = start.newest_checkpoint()
    if outputs is None or newest is None:
        return outputs
    there = read_outputs(newest / config.learns.folder)
    numbers = outputs.problem == there.problem == "regression"
    if not (numbers and len(there.names) == len(outputs.names)) and there != outputs:
        raise RunError("run.resume_from/labels", name=name, there=_names(there), new=_names(outputs))
    return outputs


def _names(outputs: Outputs) -> str:
    """Its first scores, and what they are."""
    shown = ", ".join(one_line(name, 30) for name in outputs.names[:5]) + (" …" if outputs.names[5:] else "")
    return f"{len(outputs.names)}, {outputs.problem.replace('_', ' ')}: {shown}"


def _listed(values: dict[str, Any], keys: list[str]) -> str:
    return ", ".join(f"lora.{key} {values[key]}" for key in keys)


def _with_revision(config: RunConfig, folder: Path) -> RunConfig:
    """The config with the commit of the hub snapshot that was looked at, which names its cache folder."""
    if config.model.source != "hub" or config.model.revision or not re.fullmatch(r"[0-9a-f]{40}", folder.name):
        return config
    return put(config, "model.revision", folder.name)


def _with_data(config: RunConfig, locations: Locations, service: DataService) -> tuple[RunConfig, DataReport]:
    source, method = Path(config.data.path).expanduser(), None if config.method == "auto" else config.method
    service.report(source, config.data, method)  # raises before a copy is kept
    kept = keep_file(source, locations)
    service.know(kept)
    report = service.report(kept.path, config.data, method)
    if not report.usable:
        raise DataError(
            "data.nothing_usable",
            name=kept.name,
            rows=report.rows,
            hint=report.problems[0].text if report.problems else "Choose another layout or mapping.",
        )
    chosen = {"path": str(kept.path), "sha256": kept.sha256, "layout": report.layout}
    return config.model_copy(update={"data": config.data.model_copy(update=chosen)}), report
